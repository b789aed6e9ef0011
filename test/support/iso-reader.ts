// Reads ISO 9660 images with Rock Ridge names, written from the standards and not from the writer; only what a seed has.

export interface IsoContent {
  readonly label: string
  readonly files: ReadonlyMap<string, Buffer>
}

const sector = 2048

/** @throws Error where the image breaks a rule that Linux depends on */
export function readIso(image: Buffer): IsoContent {
  const primary = image.subarray(16 * sector, 17 * sector)
  check(primary[0] === 1 && primary.toString('latin1', 1, 6) === 'CD001', 'no primary volume descriptor')
  const last = image.subarray(17 * sector, 18 * sector)
  check(last[0] === 255 && last.toString('latin1', 1, 6) === 'CD001', 'no terminator after it')
  check(both16(primary, 128) === sector, 'another block size')
  check(both32(primary, 80) * sector === image.byteLength, 'the volume is not as large as it says')
  const root = record(primary, 156)
  check(root.directory, 'the root is no directory')
  const littleTable = primary.readUInt32LE(140) * sector
  const bigTable = primary.readUInt32BE(148) * sector
  check(image.readUInt32LE(littleTable + 2) === root.extent, 'the path table points elsewhere')
  check(image.readUInt32BE(bigTable + 2) === root.extent, 'the other path table points elsewhere')

  const files = new Map<string, Buffer>()
  const records = [...recordsOf(image.subarray(root.extent * sector, root.extent * sector + root.size))]
  const self = records[0]
  check(self?.id === '\0' && self.extent === root.extent && records[1]?.id === '\x01', 'no . and .. come first')
  check(self?.entries.get('SP')?.subarray(0, 2).toString('hex') === 'beef', 'no SP entry in the first record')
  const reference = self?.entries.get('ER')
  check(reference?.toString('latin1', 4, 4 + (reference[0] ?? 0)) === 'RRIP_1991A', 'no Rock Ridge reference')
  const ids = records.slice(2).map(({ id }) => id)
  check(ids.join() === [...ids].sort().join(), 'the records are not in order')
  for (const { id, extent, size, directory, entries } of records.slice(2)) {
    const name = entries.get('NM')
    check(!directory && /^[A-Z0-9_]{1,8}\.[A-Z0-9_]{0,3};1$/.test(id), `identifier ${id} is not of level 1`)
    check(name?.[0] === 0, 'a name is continued')
    check((entries.get('PX')?.readUInt32LE(0) ?? 0) >> 12 === 0o10, 'it is no regular file')
    check((extent + Math.ceil(size / sector)) * sector <= image.byteLength, 'a file lies outside of the image')
    files.set(name?.toString('latin1', 1) ?? id, image.subarray(extent * sector, extent * sector + size))
  }
  return { label: primary.toString('latin1', 40, 72).trimEnd(), files }
}

interface IsoRecord {
  readonly extent: number
  readonly size: number
  readonly directory: boolean
  readonly id: string
  /** System-use entries by signature, without their four bytes of head. */
  readonly entries: ReadonlyMap<string, Buffer>
}

function* recordsOf(directory: Buffer): Generator<IsoRecord> {
  let offset = 0
  while (offset < directory.byteLength && directory[offset] !== 0) {
    yield record(directory, offset)
    offset += directory[offset] ?? 0
  }
}

function record(source: Buffer, start: number): IsoRecord {
  const bytes = source.subarray(start, start + (source[start] ?? 0))
  const idLength = bytes[32] ?? 0
  const entries = new Map<string, Buffer>()
  let offset = 33 + idLength + (idLength % 2 === 0 ? 1 : 0)
  while (offset + 4 <= bytes.byteLength) {
    const length = bytes[offset + 2] ?? 0
    check(length >= 4 && bytes[offset + 3] === 1, 'a system-use entry has no sensible head')
    entries.set(bytes.toString('latin1', offset, offset + 2), bytes.subarray(offset + 4, offset + length))
    offset += length
  }
  return {
    extent: both32(bytes, 2),
    size: both32(bytes, 10),
    directory: ((bytes[25] ?? 0) & 2) !== 0,
    id: bytes.toString('latin1', 33, 33 + idLength),
    entries,
  }
}

function both32(bytes: Buffer, offset: number): number {
  check(bytes.readUInt32LE(offset) === bytes.readUInt32BE(offset + 4), 'the two byte orders differ')
  return bytes.readUInt32LE(offset)
}

function both16(bytes: Buffer, offset: number): number {
  check(bytes.readUInt16LE(offset) === bytes.readUInt16BE(offset + 2), 'the two byte orders differ')
  return bytes.readUInt16LE(offset)
}

function check(holds: boolean, complaint: string): void {
  if (!holds) throw new Error(complaint)
}

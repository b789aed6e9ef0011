// Finds a NoCloud seed in an ISO 9660 image, as a guest's kernel and cloud-init would; written apart from what builds seeds.

export interface Seed {
  readonly userData: Buffer
  readonly metaData: Buffer
  readonly vendorData: Buffer | undefined
}

/** Reads at most `length` bytes at `offset`, fewer at the end. */
export type ReadAt = (offset: number, length: number) => Buffer

const sectorBytes = 2048

/** Undefined when there is no readable image labelled cidata with user-data and meta-data in it. */
export function readSeed(read: ReadAt): Seed | undefined {
  const descriptor = read(16 * sectorBytes, sectorBytes)
  if (descriptor.length < sectorBytes || descriptor[0] !== 1 || descriptor.toString('latin1', 1, 6) !== 'CD001')
    return undefined
  if (descriptor.toString('latin1', 40, 72).trim().toLowerCase() !== 'cidata') return undefined
  const files = new Map<string, Buffer>()
  const root = { extent: descriptor.readUInt32LE(158), size: descriptor.readUInt32LE(166) }
  for (const entry of directory(read(root.extent * sectorBytes, root.size))) {
    const data = read(entry.extent * sectorBytes, entry.size)
    // A cut-off image has the names and not the bytes.
    if (data.length < entry.size) return undefined
    files.set(entry.name, data)
  }
  const userData = files.get('user-data')
  const metaData = files.get('meta-data')
  if (userData === undefined || metaData === undefined) return undefined
  return { userData, metaData, vendorData: files.get('vendor-data') }
}

interface Entry {
  readonly name: string
  readonly extent: number
  readonly size: number
}

/** Regular files of a directory (ECMA-119, 9.1). */
function* directory(bytes: Buffer): Generator<Entry> {
  for (let at = 0; at < bytes.length;) {
    const length = bytes.readUInt8(at)
    if (length === 0) {
      // Records do not cross sectors; the rest of this one is padding.
      at = (Math.floor(at / sectorBytes) + 1) * sectorBytes
      continue
    }
    const record = bytes.subarray(at, at + length)
    at += length
    if (record.length < 34) return
    const isDirectory = (record.readUInt8(25) & 2) !== 0
    if (isDirectory) continue
    const nameLength = record.readUInt8(32)
    const isoName = record.toString('latin1', 33, 33 + nameLength)
    const systemUse = record.subarray(33 + nameLength + (nameLength % 2 === 0 ? 1 : 0))
    yield {
      name: rockRidgeName(systemUse) ?? isoName.replace(/\.?;\d+$/, '').toLowerCase(),
      extent: record.readUInt32LE(2),
      size: record.readUInt32LE(10),
    }
  }
}

/** The NM entries (RRIP 1.10, 4.1.4). */
function rockRidgeName(systemUse: Buffer): string | undefined {
  let name: string | undefined
  for (let at = 0; at + 5 <= systemUse.length;) {
    const length = systemUse.readUInt8(at + 2)
    if (length < 4) break
    if (systemUse.toString('latin1', at, at + 2) === 'NM') {
      name = (name ?? '') + systemUse.toString('latin1', at + 5, at + length)
    }
    at += length
  }
  return name
}

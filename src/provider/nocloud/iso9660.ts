// Writes a small ISO 9660 image with Rock Ridge names in memory. Own code, because no npm library writes one without calling
// a native tool, and a seed must be built where there is none. Only what a seed needs: one root directory of regular files.

/** A file in the root directory. */
export interface IsoFile {
  /** The name Linux shows, case and dashes kept; at most 100 bytes of ASCII. */
  readonly name: string
  readonly data: Uint8Array
}

export interface IsoImage {
  /** Volume label, at most 32 characters. cloud-init looks for `cidata`. */
  readonly volumeLabel: string
  /** Recorded in every date field. */
  readonly createdAt: Date
  /** Free text of the primary volume descriptor's application-use area, at most 512 bytes. */
  readonly applicationUse: Uint8Array
  readonly files: readonly IsoFile[]
}

export const sectorBytes = 2048
/** Byte offset of the primary volume descriptor: the first 16 sectors are not used. */
export const descriptorOffset = 16 * sectorBytes
/** Where in the primary volume descriptor the application-use area is (ECMA-119, 8.4.32). */
export const applicationUseOffset = 883
export const applicationUseBytes = 512

const primarySector = 16
const terminatorSector = 17
const littleEndianTableSector = 18
const bigEndianTableSector = 19
const rootSector = 20
const firstFileSector = 21
const fixedRecordBytes = 33
const maxNameBytes = 100
const directoryFlag = 2
const rockRidgeId = 'RRIP_1991A'
const rockRidgeText = 'THE ROCK RIDGE INTERCHANGE PROTOCOL PROVIDES SUPPORT FOR POSIX FILE SYSTEM SEMANTICS'

/** @throws RangeError when a label, a name or the set of files does not fit */
export function buildIso(image: IsoImage): Buffer {
  let sector = firstFileSector
  const placed = image.files.map((file, index) => {
    const extent = sector
    sector += sectorsOf(file.data.byteLength)
    return { ...file, extent, isoName: `FILE${String(index).padStart(4, '0')}.;1` }
  })
  const output = Buffer.alloc(sector * sectorBytes)
  const date = recordDate(image.createdAt)
  writeDescriptors(output, image, sector)
  pathTable(output.subarray(littleEndianTableSector * sectorBytes), 'little')
  pathTable(output.subarray(bigEndianTableSector * sectorBytes), 'big')

  const records = [
    directoryRecord({
      extent: rootSector,
      size: sectorBytes,
      date,
      isoName: '\0',
      systemUse: [susp(), posix('dir'), extensionReference()],
    }),
    directoryRecord({ extent: rootSector, size: sectorBytes, date, isoName: '\x01', systemUse: [posix('dir')] }),
    ...placed.map((file) =>
      directoryRecord({
        extent: file.extent,
        size: file.data.byteLength,
        date,
        isoName: file.isoName,
        systemUse: [posix('file'), alternateName(file.name)],
      }),
    ),
  ]
  const directory = Buffer.concat(records)
  if (directory.byteLength > sectorBytes) throw new RangeError('the root directory must fit into one sector')
  directory.copy(output, rootSector * sectorBytes)
  for (const file of placed) output.set(file.data, file.extent * sectorBytes)
  return output
}

function sectorsOf(bytes: number): number {
  // An empty file gets a sector too, so that its extent lies within the image.
  return Math.max(1, Math.ceil(bytes / sectorBytes))
}

function writeDescriptors(output: Buffer, image: IsoImage, sectors: number): void {
  if (image.applicationUse.byteLength > applicationUseBytes) throw new RangeError('the application-use area is full')
  const primary = output.subarray(primarySector * sectorBytes, terminatorSector * sectorBytes)
  primary[0] = 1
  primary.write('CD001', 1, 'latin1')
  primary[6] = 1
  padded(primary, 8, 32, '')
  padded(primary, 40, 32, image.volumeLabel)
  bothEndian32(primary, 80, sectors)
  bothEndian16(primary, 120, 1)
  bothEndian16(primary, 124, 1)
  bothEndian16(primary, 128, sectorBytes)
  bothEndian32(primary, 132, pathTableBytes)
  primary.writeUInt32LE(littleEndianTableSector, 140)
  primary.writeUInt32BE(bigEndianTableSector, 148)
  const date = recordDate(image.createdAt)
  directoryRecord({ extent: rootSector, size: sectorBytes, date, isoName: '\0', systemUse: [] }).copy(primary, 156)
  for (const [offset, length] of textFields) padded(primary, offset, length, '')
  for (const offset of [813, 830]) primary.write(longDate(image.createdAt), offset, 'latin1')
  for (const offset of [847, 864]) primary.write('0'.repeat(16), offset, 'latin1')
  primary[881] = 1
  primary.set(image.applicationUse, applicationUseOffset)

  const terminator = output.subarray(terminatorSector * sectorBytes)
  terminator[0] = 255
  terminator.write('CD001', 1, 'latin1')
  terminator[6] = 1
}

/** Identifier fields that stay blank: volume set, publisher, preparer, application, copyright, abstract, bibliography. */
const textFields: readonly (readonly [offset: number, length: number])[] = [
  [190, 128],
  [318, 128],
  [446, 128],
  [574, 128],
  [702, 37],
  [739, 37],
  [776, 37],
]

const pathTableBytes = 10

function pathTable(target: Buffer, endian: 'little' | 'big'): void {
  target[0] = 1
  if (endian === 'little') {
    target.writeUInt32LE(rootSector, 2)
    target.writeUInt16LE(1, 6)
  } else {
    target.writeUInt32BE(rootSector, 2)
    target.writeUInt16BE(1, 6)
  }
}

interface DirectoryEntry {
  readonly extent: number
  readonly size: number
  readonly date: Buffer
  /** `\0` is the directory itself, `\x01` its parent. */
  readonly isoName: string
  readonly systemUse: readonly Buffer[]
}

function directoryRecord(entry: DirectoryEntry): Buffer {
  const name = Buffer.from(entry.isoName, 'latin1')
  const nameEnd = even(fixedRecordBytes + name.byteLength)
  const systemUse = Buffer.concat(entry.systemUse)
  const record = Buffer.alloc(even(nameEnd + systemUse.byteLength))
  if (record.byteLength > 254) throw new RangeError('a directory record is at most 254 bytes long')
  record[0] = record.byteLength
  bothEndian32(record, 2, entry.extent)
  bothEndian32(record, 10, entry.size)
  entry.date.copy(record, 18)
  record[25] = name.byteLength === 1 ? directoryFlag : 0
  bothEndian16(record, 28, 1)
  record[32] = name.byteLength
  name.copy(record, fixedRecordBytes)
  systemUse.copy(record, nameEnd)
  return record
}

/** SP: says in the root's own record that system-use entries follow (SUSP 1.12, 5.3). */
function susp(): Buffer {
  return systemUseEntry('SP', Buffer.from([0xbe, 0xef, 0]))
}

/** ER: says that the entries are Rock Ridge; without it Linux prefers Joliet (SUSP 1.12, 5.5). */
function extensionReference(): Buffer {
  return systemUseEntry(
    'ER',
    Buffer.concat([
      Buffer.from([rockRidgeId.length, rockRidgeText.length, 0, 1]),
      Buffer.from(rockRidgeId + rockRidgeText, 'latin1'),
    ]),
  )
}

/** PX: mode, links, owner and group; readable by everyone, owned by root (RRIP 1.10, 4.1.1). */
function posix(kind: 'dir' | 'file'): Buffer {
  const data = Buffer.alloc(32)
  bothEndian32(data, 0, kind === 'dir' ? 0o040555 : 0o100444)
  bothEndian32(data, 8, kind === 'dir' ? 2 : 1)
  return systemUseEntry('PX', data)
}

/** NM: the name POSIX systems show (RRIP 1.10, 4.1.4). */
function alternateName(name: string): Buffer {
  if (!/^[!-~]+$/.test(name) || name.includes('/') || name.length > maxNameBytes) {
    throw new RangeError(`${JSON.stringify(name)} is not a file name of at most ${maxNameBytes} ASCII characters`)
  }
  return systemUseEntry('NM', Buffer.concat([Buffer.from([0]), Buffer.from(name, 'latin1')]))
}

function systemUseEntry(signature: string, data: Buffer): Buffer {
  return Buffer.concat([Buffer.from(signature, 'latin1'), Buffer.from([4 + data.byteLength, 1]), data])
}

function padded(target: Buffer, offset: number, length: number, text: string): void {
  if (text.length > length) throw new RangeError(`${JSON.stringify(text)} is longer than ${length} characters`)
  target.write(text.padEnd(length, ' '), offset, 'latin1')
}

function bothEndian32(target: Buffer, offset: number, value: number): void {
  target.writeUInt32LE(value, offset)
  target.writeUInt32BE(value, offset + 4)
}

function bothEndian16(target: Buffer, offset: number, value: number): void {
  target.writeUInt16LE(value, offset)
  target.writeUInt16BE(value, offset + 2)
}

/** ECMA-119, 9.1.5; in UTC. */
function recordDate(date: Date): Buffer {
  return Buffer.from([
    date.getUTCFullYear() - 1900,
    date.getUTCMonth() + 1,
    date.getUTCDate(),
    date.getUTCHours(),
    date.getUTCMinutes(),
    date.getUTCSeconds(),
    0,
  ])
}

/** ECMA-119, 8.4.26.1 without its last byte, the zone, which is zero for UTC. */
function longDate(date: Date): string {
  const digits = date.toISOString().replaceAll(/[-:T]/g, '')
  return `${digits.slice(0, 14)}${digits.slice(15, 17)}`
}

function even(value: number): number {
  return value + (value % 2)
}

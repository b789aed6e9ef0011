// What a file's first bytes say about its format, as libvirt's probe sees it; and the first bytes of a new qcow2 file.
import type { VolumeContent } from './volume-content.ts'

const magic = Buffer.from('QFI\xfb', 'latin1')
const headerBytes = 104
const isoMagicOffset = 32_769

export interface Qcow2Header {
  /** Virtual size, bytes. */
  readonly capacity: number
  readonly backingPath?: string
  readonly backingFormat?: string
}

/** Undefined when the file is no qcow2. */
export function readQcow2(content: VolumeContent): Qcow2Header | undefined {
  const head = content.read(0, 4096)
  if (head.length < 72 || !head.subarray(0, 4).equals(magic)) return undefined
  const capacity = Number(head.readBigUInt64BE(24))
  const offset = Number(head.readBigUInt64BE(8))
  const length = head.readUInt32BE(16)
  if (offset === 0 || length === 0) return { capacity }
  const backingPath = content.read(offset, length).toString('utf8')
  const backingFormat = extension(head, offset)
  return backingFormat === undefined ? { capacity, backingPath } : { capacity, backingPath, backingFormat }
}

/** The header extension that names the backing file's format (qcow2 specification, 0xe2792aca). */
function extension(head: Buffer, end: number): string | undefined {
  for (let at = headerBytes; at + 8 <= end;) {
    const type = head.readUInt32BE(at)
    const length = head.readUInt32BE(at + 4)
    if (type === 0xe2792aca) return head.toString('latin1', at + 8, at + 8 + length)
    if (type === 0) return undefined
    at += 8 + Math.ceil(length / 8) * 8
  }
  return undefined
}

/** A version 3 header with its backing file (qcow2 specification); what follows in a real file is left out. */
export function qcow2Header(header: Qcow2Header): Buffer {
  const { backingPath = '', backingFormat = '' } = header
  const format = Buffer.from(backingFormat)
  const extensions = Buffer.alloc(format.length === 0 ? 8 : 16 + Math.ceil(format.length / 8) * 8)
  if (format.length > 0) {
    extensions.writeUInt32BE(0xe2792aca, 0)
    extensions.writeUInt32BE(format.length, 4)
    format.copy(extensions, 8)
  }
  const backing = Buffer.from(backingPath)
  const head = Buffer.alloc(headerBytes)
  magic.copy(head)
  head.writeUInt32BE(3, 4)
  if (backing.length > 0) {
    head.writeBigUInt64BE(BigInt(headerBytes + extensions.length), 8)
    head.writeUInt32BE(backing.length, 16)
  }
  head.writeUInt32BE(16, 20)
  head.writeBigUInt64BE(BigInt(header.capacity), 24)
  head.writeUInt32BE(headerBytes, 100)
  return Buffer.concat([head, extensions, backing])
}

export type VolumeFormat = 'raw' | 'qcow2' | 'iso'

/** What a refresh of the pool takes the file for. */
export function probeFormat(content: VolumeContent): VolumeFormat {
  if (readQcow2(content) !== undefined) return 'qcow2'
  return content.read(isoMagicOffset, 5).toString('latin1') === 'CD001' ? 'iso' : 'raw'
}

// What an image's first bytes tell of the disk in it; not whether the image is sound.
import type { ImageChoice } from './placement.ts'

/** qcow2 specification: magic at 0, size of the virtual disk at 24, big endian. */
const magic = Buffer.from('QFI\xfb', 'latin1')
const sizeOffset = 24
const headBytes = sizeOffset + 8

/** Reads the size of an image's disk from its bytes as they pass. */
export class VirtualSize {
  readonly #format: ImageChoice['format']
  #head = Buffer.alloc(0)

  constructor(format: ImageChoice['format']) {
    this.#format = format
  }

  update(chunk: Uint8Array): void {
    if (this.#format === 'raw' || this.#head.byteLength >= headBytes) return
    this.#head = Buffer.concat([this.#head, chunk.subarray(0, headBytes - this.#head.byteLength)])
  }

  /** @param fileBytes size of the whole file. Undefined when the image is not of the format that it is said to have. */
  bytes(fileBytes: number): number | undefined {
    if (this.#format === 'raw') return fileBytes
    if (this.#head.byteLength < headBytes || !this.#head.subarray(0, magic.length).equals(magic)) return undefined
    const size = this.#head.readBigUInt64BE(sizeOffset)
    return size <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(size) : undefined
  }
}

// The bytes of one volume's file: sparse, in memory up to a limit, counted and hashed beyond it. It knows no formats.
import { createHash, type Hash } from 'node:crypto'

const blockBytes = 4096
const chunkBytes = 65_536

/** A read of bytes that were only counted. */
export class NotKeptError extends Error {
  override readonly name = 'NotKeptError'
}

export class VolumeContent {
  /** What `stat` would call the size, bytes. */
  length: number
  /** Bytes that are kept; those behind are counted and hashed only. */
  readonly #keepBytes: number
  readonly #chunks = new Map<number, Buffer>()
  /** End of what was written in each chunk: blocks up to there are allocated. */
  readonly #written = new Map<number, number>()
  /** Follows an upload from the first byte on; lost when somebody writes elsewhere. */
  #hash: { readonly state: Hash; at: number } | undefined = { state: createHash('sha256'), at: 0 }

  constructor(lengthBytes: number, keepBytes: number) {
    this.length = lengthBytes
    this.#keepBytes = keepBytes
  }

  /** Allocated bytes, whole blocks. */
  get allocation(): number {
    let bytes = 0
    for (const end of this.#written.values()) bytes += Math.ceil(end / blockBytes) * blockBytes
    return bytes
  }

  write(offset: number, data: Uint8Array): void {
    this.#follow(offset, data)
    let done = 0
    while (done < data.length) {
      const at = offset + done
      const index = Math.floor(at / chunkBytes)
      const within = at % chunkBytes
      const part = data.subarray(done, done + chunkBytes - within)
      if (at < this.#keepBytes) this.#chunk(index).set(part, within)
      this.#written.set(index, Math.max(this.#written.get(index) ?? 0, within + part.length))
      done += part.length
    }
    this.length = Math.max(this.length, offset + data.length)
  }

  /** At most `length` bytes, fewer at the end of the file. */
  read(offset: number, length: number): Buffer {
    const end = Math.min(this.length, offset + length)
    const result = Buffer.alloc(Math.max(0, end - offset))
    for (let at = offset; at < end;) {
      const index = Math.floor(at / chunkBytes)
      const within = at % chunkBytes
      const size = Math.min(chunkBytes - within, end - at)
      const chunk = this.#chunks.get(index)
      if (chunk !== undefined) chunk.copy(result, at - offset, within, within + size)
      else if (this.#written.has(index)) throw new NotKeptError(`only the first ${this.#keepBytes} bytes are kept`)
      at += size
    }
    return result
  }

  /** SHA-256 of the whole file in hex. */
  sha256(): string {
    if (this.#hash?.at === this.length) return this.#hash.state.copy().digest('hex')
    return createHash('sha256').update(this.read(0, this.length)).digest('hex')
  }

  #chunk(index: number): Buffer {
    const known = this.#chunks.get(index)
    if (known !== undefined) return known
    const fresh = Buffer.alloc(chunkBytes)
    this.#chunks.set(index, fresh)
    return fresh
  }

  #follow(offset: number, data: Uint8Array): void {
    // A second upload starts at the first byte again.
    if (offset === 0) this.#hash = { state: createHash('sha256'), at: 0 }
    if (this.#hash === undefined) return
    if (this.#hash.at !== offset) {
      this.#hash = undefined
      return
    }
    this.#hash.state.update(data)
    this.#hash.at += data.length
  }
}

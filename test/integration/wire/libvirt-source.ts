// A source of upload data that a test can look into: how far it was read, whether it was released, and when it hangs.

/** Bytes that are no repetition of a short piece, so that a lost or doubled one shows. */
export function pattern(length: number): Buffer {
  const bytes = Buffer.allocUnsafe(length)
  for (let i = 0; i < length; i++) bytes[i] = (i * 31 + (i >> 8) * 7) & 0xff
  return bytes
}

export class TestSource implements AsyncIterable<Uint8Array>, AsyncIterator<Uint8Array> {
  /** Pieces given. */
  pulled = 0
  released = false
  readonly #pieces: Iterator<Uint8Array>
  readonly #after: Error | 'end' | 'hang after the last'
  readonly #hanging = Promise.withResolvers<undefined>()
  readonly #release = Promise.withResolvers<undefined>()

  /** @param after what comes after the last piece: the end, an error, or nothing at all until {@link letGo} */
  constructor(pieces: Iterable<Uint8Array>, after: Error | 'end' | 'hang after the last' = 'end') {
    this.#pieces = pieces[Symbol.iterator]()
    this.#after = after
  }

  [Symbol.asyncIterator](): this {
    return this
  }

  async next(): Promise<IteratorResult<Uint8Array>> {
    const piece = this.#pieces.next()
    if (piece.done !== true) {
      this.pulled++
      return piece
    }
    if (this.#after instanceof Error) throw this.#after
    if (this.#after === 'hang after the last') {
      this.#hanging.resolve(undefined)
      await this.#release.promise
    }
    return { done: true, value: undefined }
  }

  return(): Promise<IteratorResult<Uint8Array>> {
    this.released = true
    return Promise.resolve({ done: true, value: undefined })
  }

  /** Resolves when all pieces were taken and the reader waits for more. */
  async hanging(): Promise<void> {
    await this.#hanging.promise
  }

  /** Ends a source that hangs. */
  letGo(): void {
    this.#release.resolve(undefined)
  }

  /** Resolves when the reader has stopped taking pieces: none was taken in a second. */
  async quiet(): Promise<void> {
    for (;;) {
      const before = this.pulled
      await new Promise((resolve) => setTimeout(resolve, 1000))
      if (this.pulled === before && before > 0) return
    }
  }
}

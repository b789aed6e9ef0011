// An ssh2 channel as a stream that keeps node's promises: a lost connection is an error, and no write hangs for ever.
import { Duplex } from 'node:stream'
import type { Channel } from 'ssh2'
import { toError } from '../../lib/errors.ts'

/** Two of libvirt's usual packets. */
const keptGatherBytes = 2 ** 19

/**
 * Why the channel is not handed out as it is: ssh2 overrides `destroy` so that nothing is destroyed, never answers a
 * write to a closed channel, shows a cut TCP connection as a clean end of data, and throws from a timer-like callback
 * when a channel is resumed after its connection ended.
 */
export class ForwardedStream extends Duplex {
  readonly #channel: Channel
  readonly #isAlive: () => boolean
  readonly #beforeWrite: () => void
  /** Where pieces are joined; kept, because allocating as much for each write has the garbage collector run all the time. */
  #gather = Buffer.alloc(0)
  readonly #onData = (chunk: Buffer) => {
    if (!this.push(chunk)) this.#channel.pause()
  }

  /**
   * @param isAlive false from the moment that the connection is known to be lost
   * @param beforeWrite told of each write that ssh2 is about to turn into packets
   */
  constructor(channel: Channel, isAlive: () => boolean, beforeWrite: () => void = () => undefined) {
    super({ allowHalfOpen: false })
    this.#channel = channel
    this.#isAlive = isAlive
    this.#beforeWrite = beforeWrite
    channel.on('data', this.#onData)
    channel.on('end', () => this.push(null))
    channel.on('error', (error: Error) => this.destroy(error))
    // The far side closed the channel; what it sent before is delivered first.
    channel.on('close', () => {
      if (this.readableEnded) this.destroy()
      else this.once('end', () => this.destroy())
    })
  }

  override _read(): void {
    if (this.#isAlive()) this.#channel.resume()
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, callback: (error?: Error | null) => void): void {
    try {
      this.#beforeWrite()
      this.#channel.write(chunk, callback)
    } catch (error) {
      callback(toError(error))
    }
  }

  override _writev(
    chunks: { chunk: Buffer; encoding: BufferEncoding }[],
    callback: (error?: Error | null) => void,
  ): void {
    const length = chunks.reduce((sum, { chunk }) => sum + chunk.length, 0)
    const memory = this.#gather.length >= length ? this.#gather : Buffer.allocUnsafeSlow(length)
    let end = 0
    for (const { chunk } of chunks) end += chunk.copy(memory, end)
    this.#gather = Buffer.alloc(0)
    this._write(memory.subarray(0, length), 'utf8', (error) => {
      // ssh2 has copied all of it into packets. What a burst has needed is not kept.
      if (length <= keptGatherBytes) this.#gather = memory
      callback(error)
    })
  }

  override _final(callback: (error?: Error | null) => void): void {
    if (this.#isAlive()) this.#channel.end()
    callback()
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    this.#channel.off('data', this.#onData)
    if (this.#isAlive()) {
      // What still comes is read and dropped, so that the close of the far side is seen.
      this.#channel.resume()
      this.#channel.close()
    } else {
      this.#channel.pause()
    }
    callback(error)
  }
}

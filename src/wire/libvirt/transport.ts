// A Duplex as a sequence of packets with backpressure both ways; it knows no calls and no keepalive.
import type { Duplex } from 'node:stream'
import { toError } from '../../lib/errors.ts'
import { LibvirtConnectionError } from './errors.ts'
import { FrameDecoder, type Frame } from './frame.ts'

export interface TransportHandlers {
  /** A packet came. */
  onFrame(frame: Frame): void
  /** All that was written has left for the peer. */
  onDrain(): void
  /** The stream is of no more use. Called at most once, never after {@link FrameTransport.destroy}. */
  onEnd(error: LibvirtConnectionError): void
}

interface DrainWaiter {
  readonly resolve: () => void
  readonly reject: (error: Error) => void
}

/** Owns the stream from construction to {@link destroy}. */
export class FrameTransport {
  readonly #stream: Duplex
  readonly #handlers: TransportHandlers
  readonly #decoder = new FrameDecoder()
  readonly #drainWaiters = new Set<DrainWaiter>()
  #holds = 0
  #live = true

  constructor(stream: Duplex, handlers: TransportHandlers) {
    this.#stream = stream
    this.#handlers = handlers
    stream.on('error', this.#onError)
    stream.on('end', this.#onEnd)
    stream.on('close', this.#onClose)
    stream.on('drain', this.#onDrain)
    stream.on('data', this.#onData)
    // A stream that died before it got here will not say so again.
    if (stream.destroyed) queueMicrotask(this.#onClose)
  }

  /** Whether a reader asked to leave incoming bytes where they are. */
  get held(): boolean {
    return this.#holds > 0
  }

  /** Hands pieces over, to be written as one. False: wait for {@link drained} before writing more bulk data. */
  write(...pieces: readonly Uint8Array[]): boolean {
    if (!this.#live) return true
    const stream = this.#stream
    let goOn = true
    stream.cork()
    for (const piece of pieces) goOn = stream.write(piece)
    stream.uncork()
    return goOn
  }

  /** Resolves once everything written has left, rejects with the reason of {@link destroy}. */
  async drained(): Promise<void> {
    if (!this.#live || !this.#stream.writableNeedDrain) return
    await new Promise<void>((resolve, reject) => this.#drainWaiters.add({ resolve, reject }))
  }

  /** Stops reading until as many {@link release} follow. Calls and keepalives wait too, so hold only for a moment. */
  hold(): void {
    this.#holds++
    if (this.#holds === 1 && this.#live) this.#stream.pause()
  }

  release(): void {
    this.#holds--
    if (this.#holds === 0 && this.#live) this.#stream.resume()
  }

  /** Ends the stream at once, without waiting for what is still to be written. Idempotent. */
  destroy(reason: Error): void {
    if (!this.#live) return
    this.#live = false
    const stream = this.#stream
    stream.off('end', this.#onEnd)
    stream.off('drain', this.#onDrain)
    stream.off('data', this.#onData)
    // The listeners for error and close stay until the close: a late ECONNRESET must not become an uncaught exception.
    stream.destroy()
    for (const waiter of this.#drainWaiters) waiter.reject(reason)
    this.#drainWaiters.clear()
  }

  readonly #onData = (chunk: Buffer) => {
    try {
      this.#decoder.push(chunk, (frame) => {
        if (this.#live) this.#handlers.onFrame(frame)
      })
    } catch (error) {
      this.#end(new LibvirtConnectionError('PROTOCOL', toError(error).message, { cause: error }))
    }
  }

  readonly #onDrain = () => {
    for (const waiter of this.#drainWaiters) waiter.resolve()
    this.#drainWaiters.clear()
    this.#handlers.onDrain()
  }

  readonly #onError = (error: Error) => {
    this.#end(
      new LibvirtConnectionError('CLOSED', `the connection to libvirtd failed: ${error.message}`, { cause: error }),
    )
  }

  readonly #onEnd = () => this.#end(new LibvirtConnectionError('CLOSED', 'libvirtd closed the connection'))

  readonly #onClose = () => {
    this.#stream.off('error', this.#onError)
    this.#stream.off('close', this.#onClose)
    this.#end(new LibvirtConnectionError('CLOSED', 'the connection to libvirtd was closed'))
  }

  #end(error: LibvirtConnectionError): void {
    if (this.#live) this.#handlers.onEnd(error)
  }
}

// One transfer from its opening call to the daemon's last word; where data comes from or goes to is upload.ts and download.ts.
import type { Timer } from '../../lib/clock.ts'
import { exhaustive } from '../../lib/exhaustive.ts'
import { encodedCallFrame, remoteError } from './call.ts'
import { encodeArgs, streamFrame } from './codec.ts'
import { LibvirtConnectionError, type LibvirtError } from './errors.ts'
import type { Exchange, ExchangeHost } from './exchange.ts'
import { MessageStatus, MessageType, type Frame } from './frame.ts'
import type { Procedures } from './protocol.gen.ts'

/** How long the daemon may take to confirm that a transfer was given up, milliseconds; then the connection ends. */
export const streamAbortTimeoutMs = 5000

/** How long the daemon may take to answer the call that opens a transfer, milliseconds; then the connection ends. */
export const streamOpenTimeoutMs = 30_000

export type StreamProcedure = 'STORAGE_VOL_UPLOAD' | 'STORAGE_VOL_DOWNLOAD'

export interface StreamHandlers {
  /** Data of a download. Empty: there is no more. */
  onData(data: Buffer): void
  /** The daemon gave the transfer up, or the connection ended. Called at most once, and not after {@link StreamExchange.abort}. */
  onFailed(error: LibvirtError | LibvirtConnectionError): void
}

/**
 * - `queued`: waits for a place, for as long as its owner lets it.
 * - `opening`: the reply to the call is awaited.
 * - `cancelled`: the owner left while the call was under way: a stream that opens all the same is aborted.
 * - `failed`: the daemon's error overtook its reply, which still holds the place.
 * - `finishing`, `aborting`: our last packet is written, the daemon's last word is awaited.
 */
type State =
  | { readonly kind: 'queued' }
  | { readonly kind: 'opening'; readonly serial: number; readonly timer: Timer }
  | { readonly kind: 'cancelled'; readonly serial: number; readonly timer: Timer }
  | { readonly kind: 'failed'; readonly serial: number; readonly timer: Timer }
  | { readonly kind: 'open'; readonly serial: number }
  | { readonly kind: 'finishing'; readonly serial: number; readonly timer: Timer | undefined }
  | { readonly kind: 'aborting'; readonly serial: number; readonly timer: Timer }
  | { readonly kind: 'done' }

export class StreamExchange implements Exchange {
  readonly procedure: StreamProcedure
  readonly slow = true
  readonly #host: ExchangeHost
  readonly #args: Buffer
  readonly #handlers: StreamHandlers
  readonly #opened = Promise.withResolvers<undefined>()
  readonly #ended = Promise.withResolvers<undefined>()
  #state: State = { kind: 'queued' }

  /** Submit it at once. Throws XdrError when `args` cannot be written. */
  constructor(
    host: ExchangeHost,
    procedure: StreamProcedure,
    args: Procedures[StreamProcedure]['args'],
    handlers: StreamHandlers,
  ) {
    this.#host = host
    this.procedure = procedure
    this.#args = encodeArgs(procedure, args)
    this.#handlers = handlers
    // Both are awaited by whoever is interested; a transfer that ends while nobody looks is no unhandled rejection.
    this.#opened.promise.catch(() => undefined)
    this.#ended.promise.catch(() => undefined)
  }

  /** Resolves with the opening reply. Data written before it is lost without a word, so wait; that of a download may precede it. */
  async opened(): Promise<void> {
    await this.#opened.promise
  }

  /** Writes one data packet, given in pieces. False: wait for the host's `drained`. */
  send(packet: readonly Uint8Array[]): boolean {
    return this.#state.kind === 'open' ? this.#host.write(...packet) : true
  }

  /** Serial for the headers of data packets. */
  get serial(): number {
    return 'serial' in this.#state ? this.#state.serial : 0
  }

  /** Says that all data was sent or taken. Resolves when the daemon confirms; it may still answer an error instead. */
  async finish(): Promise<void> {
    if (this.#state.kind === 'open') {
      const { serial } = this.#state
      this.#setState({ kind: 'finishing', serial, timer: undefined })
      this.#host.write(streamFrame(this.procedure, serial, 'OK'))
    }
    await this.#ended.promise
  }

  /**
   * Gives the transfer up, whatever it is doing. Resolves at once when it has ended or its stream is not open yet, else
   * with the daemon's confirmation or the end of the connection. Never rejects.
   */
  async abort(): Promise<void> {
    const state = this.#state
    switch (state.kind) {
      case 'queued':
        this.#end(undefined)
        this.#host.exchanges.withdraw(this)
        return
      case 'opening':
        // Not awaited: the place stays taken until the answer, but the caller need not.
        this.#setState({ ...state, kind: 'cancelled' })
        return
      case 'open':
        this.#sendAbort(state.serial)
        break
      case 'finishing':
        // The daemon has heard the finish and would not answer an abort: only bound the wait.
        if (state.timer === undefined) this.#setState({ ...state, timer: this.#abortTimer() })
        break
      case 'cancelled':
        return
      case 'aborting':
      case 'failed':
      case 'done':
        break
      default:
        return exhaustive(state)
    }
    await this.#ended.promise.catch(() => undefined)
  }

  start(serial: number): void {
    this.#setState({ kind: 'opening', serial, timer: this.#host.clock.after(streamOpenTimeoutMs, this.#onUnanswered) })
    this.#host.write(encodedCallFrame(this.procedure, serial, this.#args))
  }

  onFrame(frame: Frame): void {
    try {
      if (frame.type === MessageType.REPLY) this.#onReply(frame)
      else if (frame.type === MessageType.STREAM) this.#onStream(frame)
      else this.#violation('a packet of a kind that was not asked for')
    } catch (error) {
      this.#violation('an error that cannot be read', error)
    }
  }

  onClosed(error: LibvirtConnectionError): void {
    this.#end(error)
  }

  #onReply(frame: Frame): void {
    const state = this.#state
    if (state.kind === 'failed') {
      this.#setState({ kind: 'done' })
      this.#host.exchanges.done(state.serial)
      return
    }
    if (state.kind !== 'opening' && state.kind !== 'cancelled') {
      this.#violation('a second reply')
      return
    }
    if (frame.status === MessageStatus.ERROR) {
      this.#end(remoteError(this.procedure, frame))
      this.#host.exchanges.done(state.serial)
      return
    }
    if (state.kind === 'cancelled') {
      this.#sendAbort(state.serial)
      return
    }
    this.#setState({ kind: 'open', serial: state.serial })
    this.#opened.resolve(undefined)
  }

  #onStream(frame: Frame): void {
    const state = this.#state
    if (state.kind === 'opening' || state.kind === 'cancelled') {
      this.#onEarlyStream(frame, state)
      return
    }
    if (state.kind !== 'open' && state.kind !== 'finishing' && state.kind !== 'aborting') {
      this.#violation('a stream packet that nothing asked for')
      return
    }
    switch (frame.status) {
      case MessageStatus.CONTINUE:
        // After our last packet what was still queued on the daemon's side comes in; nobody wants it.
        if (state.kind !== 'open') return
        if (this.procedure === 'STORAGE_VOL_DOWNLOAD') this.#handlers.onData(frame.payload)
        else this.#violation('data for an upload')
        return
      case MessageStatus.OK:
        if (state.kind === 'open') {
          this.#violation('an end that was not asked for')
          return
        }
        this.#end(undefined)
        break
      case MessageStatus.ERROR:
        this.#end(remoteError(this.procedure, frame))
        break
      default:
        this.#violation(`a stream packet with status ${frame.status}`)
        return
    }
    this.#host.exchanges.done(state.serial)
  }

  /** One of libvirtd's threads replies while another already sends. */
  #onEarlyStream(frame: Frame, state: Extract<State, { kind: 'opening' | 'cancelled' }>): void {
    if (frame.status === MessageStatus.ERROR) {
      this.#fail(remoteError(this.procedure, frame), { ...state, kind: 'failed' })
    } else if (frame.status !== MessageStatus.CONTINUE || this.procedure !== 'STORAGE_VOL_DOWNLOAD') {
      this.#violation('a stream packet before the reply')
    } else if (state.kind === 'opening') {
      this.#handlers.onData(frame.payload)
    }
  }

  #sendAbort(serial: number): void {
    this.#setState({ kind: 'aborting', serial, timer: this.#abortTimer() })
    this.#host.write(streamFrame(this.procedure, serial, 'ERROR'))
  }

  #end(error: LibvirtError | LibvirtConnectionError | undefined): void {
    if (error !== undefined) {
      this.#fail(error, { kind: 'done' })
      return
    }
    this.#setState({ kind: 'done' })
    this.#ended.resolve(undefined)
  }

  #fail(error: LibvirtError | LibvirtConnectionError, next: State): void {
    const { kind } = this.#state
    this.#setState(next)
    this.#opened.reject(error)
    this.#ended.reject(error)
    if (kind === 'queued' || kind === 'opening' || kind === 'open' || kind === 'finishing')
      this.#handlers.onFailed(error)
  }

  #setState(next: State): void {
    const previous = this.#state
    if ('timer' in previous && !('timer' in next && next.timer === previous.timer)) previous.timer?.cancel()
    this.#state = next
  }

  #violation(what: string, cause?: unknown): void {
    const message = `libvirtd sent ${what} for ${this.procedure}`
    this.#host.fail(new LibvirtConnectionError('PROTOCOL', message, cause === undefined ? undefined : { cause }))
  }

  #abortTimer(): Timer {
    return this.#host.clock.after(streamAbortTimeoutMs, () =>
      this.#host.fail(
        new LibvirtConnectionError('TIMEOUT', `libvirtd did not confirm the end of ${this.procedure} in time`),
      ),
    )
  }

  readonly #onUnanswered = () => {
    const message = `libvirtd did not answer ${this.procedure} within ${streamOpenTimeoutMs} ms`
    this.#host.fail(new LibvirtConnectionError('TIMEOUT', message))
  }
}

// One connection to libvirtd over any Duplex: opening, calls, transfers, events, keepalive and its one end; it dials nothing.
import type { Duplex } from 'node:stream'
import { abortReason, type Clock, type Timer } from '../../lib/clock.ts'
import { errorMessage, toError } from '../../lib/errors.ts'
import { Call, type CallOptions, type CallTrace } from './call.ts'
import { KeepaliveProcedure, eventName, keepaliveFrame } from './codec.ts'
import { download, downloadAll, type DownloadOptions } from './download.ts'
import { LibvirtConnectionError } from './errors.ts'
import {
  readEvent,
  registerDomainEvent,
  registerStoragePoolEvent,
  type DomainEventName,
  type EventRegistration,
  type LibvirtEvent,
  type StoragePoolEventName,
} from './events.ts'
import { ExchangeTable, type ExchangeHost } from './exchange.ts'
import { MessageType, type Frame } from './frame.ts'
import { handshake, type HandshakeResult } from './handshake.ts'
import { Keepalive, defaultKeepalive, type KeepalivePolicy } from './keepalive.ts'
import {
  procedures,
  programs,
  type Domain,
  type ProcedureName,
  type Procedures,
  type StoragePool,
  type StorageVol,
} from './protocol.gen.ts'
import { FrameTransport } from './transport.ts'
import { upload, type UploadOptions } from './upload.ts'

export type LibvirtTrace =
  | CallTrace
  /** A packet that changes nothing: an unknown event, a late stream packet. */
  | { readonly kind: 'ignored'; readonly what: string }
  /** A listener of ours threw; the others were still called. */
  | { readonly kind: 'listenerFailed'; readonly error: Error }

export interface LibvirtConnectionOptions {
  readonly clock: Clock
  /** Default `qemu:///system`. */
  readonly uri?: string
  /** Gives the opening up; without effect afterwards. */
  readonly signal: AbortSignal
  /** Budget of the opening, milliseconds. */
  readonly timeoutMs: number
  /** Default {@link defaultKeepalive}; null for none. */
  readonly keepalive?: KeepalivePolicy | null
  readonly onTrace?: (trace: LibvirtTrace) => void
}

/** How long {@link LibvirtConnection.close} waits for the daemon, milliseconds. */
export const closeTimeoutMs = 5000

type State =
  | { readonly kind: 'opening'; readonly budget: Timer }
  | { readonly kind: 'open'; readonly keepalive: Keepalive | undefined }
  | { readonly kind: 'closing'; readonly budget: Timer; readonly reason: LibvirtConnectionError }
  | { readonly kind: 'closed'; readonly reason: LibvirtConnectionError }

export class LibvirtConnection {
  /** Resolves once, with the reason, when the connection has ended. */
  readonly closed: Promise<LibvirtConnectionError>
  readonly #clock: Clock
  readonly #onTrace: (trace: LibvirtTrace) => void
  readonly #transport: FrameTransport
  readonly #host: ExchangeHost
  readonly #exchanges = new ExchangeTable()
  readonly #listeners = new Set<(event: LibvirtEvent) => void>()
  readonly #closed = Promise.withResolvers<LibvirtConnectionError>()
  #state: State
  #supportsEvents = false

  /**
   * Authenticates and opens the driver. The stream is the connection's from here on; when opening fails it is destroyed.
   * Throws `LibvirtError` as the daemon answers, {@link LibvirtConnectionError}, or the signal's reason.
   */
  static async open(stream: Duplex, options: LibvirtConnectionOptions): Promise<LibvirtConnection> {
    const connection = new LibvirtConnection(stream, options)
    await connection.#open(options)
    return connection
  }

  private constructor(stream: Duplex, options: LibvirtConnectionOptions) {
    const { clock } = options
    this.#clock = clock
    this.#onTrace = options.onTrace ?? (() => undefined)
    this.closed = this.#closed.promise
    this.#state = {
      kind: 'opening',
      budget: clock.after(options.timeoutMs, () =>
        this.destroy(
          new LibvirtConnectionError('TIMEOUT', `libvirtd did not let us in within ${options.timeoutMs} ms`),
        ),
      ),
    }
    this.#transport = new FrameTransport(stream, {
      onFrame: this.#onFrame,
      onDrain: () => this.#alive(),
      // After our goodbye the daemon hangs up; that is our end, not its.
      onEnd: (error) => this.destroy(this.#state.kind === 'closing' ? this.#state.reason : error),
    })
    const transport = this.#transport
    this.#host = {
      clock,
      exchanges: this.#exchanges,
      write: (...pieces) => transport.write(...pieces),
      drained: () => transport.drained(),
      hold: () => transport.hold(),
      release: () => transport.release(),
      fail: (error) => this.destroy(error),
    }
  }

  get state(): State['kind'] {
    return this.#state.kind
  }

  /** Whether the daemon has the event calls that {@link registerDomainEvents} uses. */
  get supportsEvents(): boolean {
    return this.#supportsEvents
  }

  /** Calls and transfers that hold a place now, and those that wait for one. */
  get load(): { readonly active: number; readonly queued: number } {
    return { active: this.#exchanges.activeCount, queued: this.#exchanges.queuedCount }
  }

  /**
   * One call. Throws `LibvirtError` as the daemon answers, {@link LibvirtConnectionError}, the signal's reason, or
   * XdrError when `args` cannot be written. Opening, closing and transfers have methods of their own.
   */
  async call<P extends ProcedureName>(
    procedure: P,
    args: Procedures[P]['args'],
    options: CallOptions,
  ): Promise<Procedures[P]['ret']> {
    if (procedures[procedure].stream !== null || procedure === 'CONNECT_OPEN' || procedure === 'CONNECT_CLOSE') {
      throw new TypeError(`${procedure} is not a plain call: the connection has a method for it`)
    }
    this.#requireOpen(options.signal)
    const call = new Call(this.#host, procedure, args, options, this.#onTrace)
    this.#exchanges.submit(call)
    return await call.result
  }

  /** See {@link upload}. */
  async upload(vol: StorageVol, source: AsyncIterable<Uint8Array>, options: UploadOptions): Promise<{ bytes: number }> {
    this.#requireOpen(options.signal)
    return await upload(this.#host, vol, source, options)
  }

  /** See {@link download}. */
  async *download(vol: StorageVol, options: DownloadOptions): AsyncGenerator<Buffer, void, undefined> {
    this.#requireOpen(options.signal)
    yield* download(this.#host, vol, options)
  }

  /** See {@link downloadAll}. */
  async downloadAll(vol: StorageVol, options: DownloadOptions & { readonly maxBytes: number }): Promise<Buffer> {
    this.#requireOpen(options.signal)
    return await downloadAll(this.#host, vol, options)
  }

  /** Hears every event of every registration, also those that come before the reply to the registration. @returns stops it */
  onEvent(listener: (event: LibvirtEvent) => void): () => void {
    // A wrapper of its own, so that adding one function twice needs taking it away twice.
    const entry = (event: LibvirtEvent) => listener(event)
    this.#listeners.add(entry)
    return () => this.#listeners.delete(entry)
  }

  async registerDomainEvents(
    name: DomainEventName,
    options: CallOptions & { readonly dom?: Domain },
  ): Promise<EventRegistration> {
    return await registerDomainEvent((...call) => this.call(...call), name, options.dom ?? null, options)
  }

  async registerStoragePoolEvents(
    name: StoragePoolEventName,
    options: CallOptions & { readonly pool?: StoragePool },
  ): Promise<EventRegistration> {
    return await registerStoragePoolEvent((...call) => this.call(...call), name, options.pool ?? null, options)
  }

  /**
   * Says goodbye, waits for the daemon for at most {@link closeTimeoutMs}, then destroys. New and queued calls are turned
   * away at once; those under way end with the connection. Idempotent, never rejects.
   */
  async close(): Promise<void> {
    const ours = new LibvirtConnectionError('CLOSED', 'the connection was closed by this side')
    if (this.#state.kind === 'opening') this.destroy(ours)
    if (this.#state.kind === 'open') {
      const budget = this.#clock.after(closeTimeoutMs, () => this.destroy(ours))
      this.#setState({ kind: 'closing', budget, reason: ours })
      this.#exchanges.closeQueue(ours)
      const goodbye = new Call(this.#host, 'CONNECT_CLOSE', null, { timeoutMs: closeTimeoutMs }, this.#onTrace)
      this.#exchanges.submitAtOnce(goodbye)
      const destroy = () => this.destroy(ours)
      goodbye.result.then(destroy, destroy)
    }
    await this.closed
  }

  /** Ends the connection at once: what is under way rejects, the stream is destroyed. Waits for nothing. Idempotent. */
  destroy(reason: Error): void {
    if (this.#state.kind === 'closed') return
    const error =
      reason instanceof LibvirtConnectionError
        ? reason
        : new LibvirtConnectionError('CLOSED', reason.message, { cause: reason })
    this.#setState({ kind: 'closed', reason: error })
    this.#transport.destroy(error)
    this.#exchanges.close(error)
    this.#listeners.clear()
    this.#closed.resolve(error)
  }

  async #open(options: LibvirtConnectionOptions): Promise<void> {
    const { signal, timeoutMs } = options
    const onAbort = () => this.destroy(abortReason(signal))
    signal.addEventListener('abort', onAbort, { once: true })
    const policy = options.keepalive === undefined ? defaultKeepalive : options.keepalive
    try {
      signal.throwIfAborted()
      const result = await handshake(
        async (procedure, args) => {
          const call = new Call(this.#host, procedure, args, { timeoutMs }, this.#onTrace)
          this.#exchanges.submit(call)
          return await call.result
        },
        { uri: options.uri ?? 'qemu:///system', keepalive: policy !== null },
      )
      this.#enterOpen(result, policy)
    } catch (error) {
      this.destroy(toError(error))
      throw signal.aborted ? abortReason(signal) : error
    } finally {
      signal.removeEventListener('abort', onAbort)
    }
  }

  #enterOpen(result: HandshakeResult, policy: KeepalivePolicy | null): void {
    const state = this.#state
    if (state.kind === 'closed') throw state.reason
    this.#supportsEvents = result.events
    const keepalive =
      policy === null || !result.keepalive
        ? undefined
        : new Keepalive(this.#clock, policy, {
            ping: () => this.#transport.write(keepaliveFrame('PING')),
            deaf: () => this.#transport.held,
            silent: (ms) =>
              this.destroy(new LibvirtConnectionError('KEEPALIVE', `libvirtd was silent for ${Math.round(ms)} ms`)),
          })
    this.#setState({ kind: 'open', keepalive })
  }

  /** The only place where the state changes; each state's timer ends with it. */
  #setState(next: State): void {
    const previous = this.#state
    if (previous.kind === 'open') previous.keepalive?.stop()
    else if (previous.kind !== 'closed') previous.budget.cancel()
    this.#state = next
  }

  #requireOpen(signal: AbortSignal | undefined): void {
    signal?.throwIfAborted()
    const state = this.#state
    if (state.kind === 'closed') throw state.reason
    if (state.kind !== 'open') throw new LibvirtConnectionError('CLOSED', 'the connection is being closed')
  }

  #alive(): void {
    if (this.#state.kind === 'open') this.#state.keepalive?.alive()
  }

  readonly #onFrame = (frame: Frame) => {
    this.#alive()
    if (frame.program === programs.KEEPALIVE.number) {
      if (frame.procedure === KeepaliveProcedure.PING) this.#transport.write(keepaliveFrame('PONG'))
      return
    }
    switch (frame.type) {
      case MessageType.MESSAGE:
        this.#onMessage(frame)
        return
      case MessageType.REPLY:
      case MessageType.STREAM:
      case MessageType.STREAM_HOLE:
        this.#onAnswer(frame)
        return
      default:
        this.destroy(new LibvirtConnectionError('PROTOCOL', `libvirtd sent a packet of type ${frame.type}`))
    }
  }

  #onAnswer(frame: Frame): void {
    const exchange = this.#exchanges.find(frame.serial)
    if (exchange === undefined) {
      // Packets of a stream that has ended were on their way; a reply nobody waits for cannot be.
      if (frame.type !== MessageType.REPLY) this.#ignored(`stream packet for serial ${frame.serial}`)
      else this.destroy(new LibvirtConnectionError('PROTOCOL', `libvirtd answered a call that was not made`))
      return
    }
    const { program, number } = procedures[exchange.procedure]
    if (frame.procedure !== number || frame.program !== programs[program].number) {
      const message = `libvirtd answered ${exchange.procedure} with program ${frame.program} procedure ${frame.procedure}`
      this.destroy(new LibvirtConnectionError('PROTOCOL', message))
      return
    }
    exchange.onFrame(frame)
  }

  #onMessage(frame: Frame): void {
    const name = eventName(frame.program, frame.procedure)
    if (name === undefined) {
      this.#ignored(`event ${frame.procedure} of program ${frame.program}`)
      return
    }
    let event: LibvirtEvent
    try {
      event = readEvent(name, frame.payload)
    } catch (error) {
      const message = `an event ${name} cannot be read: ${errorMessage(error)}`
      this.destroy(new LibvirtConnectionError('PROTOCOL', message, { cause: error }))
      return
    }
    for (const listener of this.#listeners) {
      try {
        listener(event)
      } catch (error) {
        this.#onTrace({ kind: 'listenerFailed', error: toError(error) })
      }
    }
  }

  #ignored(what: string): void {
    this.#onTrace({ kind: 'ignored', what })
  }
}

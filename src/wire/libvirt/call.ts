// One call from its place in the queue to its reply; a call that opens a transfer is in stream.ts.
import { abortReason, type Timer } from '../../lib/clock.ts'
import { exhaustive } from '../../lib/exhaustive.ts'
import { decodeError, decodeRet, encodeArgs } from './codec.ts'
import { LibvirtConnectionError, LibvirtError } from './errors.ts'
import type { Exchange, ExchangeHost } from './exchange.ts'
import { MessageStatus, MessageType, encodeFrame, type Frame } from './frame.ts'
import { procedures, programs, type ProcedureName, type Procedures } from './protocol.gen.ts'

export interface CallOptions {
  /** Rejects the promise at once. A call that was sent keeps its place on the connection until it is answered. */
  readonly signal?: AbortSignal
  /**
   * Budget for the answer once the call was sent, milliseconds; the connection ends with it. Waiting for a place has as
   * much again, and ends in `BUSY` with the connection alive.
   */
  readonly timeoutMs: number
  /** Asked when the call's turn has come, right before it is sent. What it throws is the call's result, and nothing is sent. */
  readonly beforeSend?: () => void
  /** The daemon may need seconds for it, as for whatever asks the guest's agent: leave a place for quick calls. */
  readonly slow?: boolean
}

/**
 * How a call ended, for tracing. `abandoned`: answered after the caller had given up. `withdrawn`: never sent, given up
 * in the queue. `closed`: the connection ended first.
 */
export interface CallTrace {
  readonly kind: 'call'
  readonly procedure: ProcedureName
  readonly outcome: 'ok' | 'error' | 'abandoned' | 'withdrawn' | 'closed'
  /** Wait for a place, milliseconds. */
  readonly queuedMs: number
  /** From sending to the end, milliseconds. */
  readonly durationMs: number
}

type State =
  | { readonly kind: 'queued'; readonly timer: Timer }
  | { readonly kind: 'sent'; readonly serial: number; readonly timer: Timer; readonly sentAt: number }
  | { readonly kind: 'abandoned'; readonly serial: number; readonly timer: Timer; readonly sentAt: number }
  | { readonly kind: 'done' }

/** Packet of a call whose arguments are encoded already. */
export function encodedCallFrame(procedure: ProcedureName, serial: number, args: Uint8Array): Buffer {
  const { program, number } = procedures[procedure]
  const { number: programNumber, version } = programs[program]
  const type = MessageType.CALL
  return encodeFrame(
    { program: programNumber, version, procedure: number, type, serial, status: MessageStatus.OK },
    args,
  )
}

/** The error in a packet with status ERROR. Throws XdrError. */
export function remoteError(procedure: ProcedureName, frame: Frame): LibvirtError {
  return new LibvirtError(procedure, decodeError(frame.payload))
}

export class Call<P extends ProcedureName> implements Exchange {
  readonly procedure: P
  readonly slow: boolean
  readonly result: Promise<Procedures[P]['ret']>
  readonly #host: ExchangeHost
  readonly #args: Buffer
  readonly #options: CallOptions
  readonly #trace: (trace: CallTrace) => void
  readonly #settle: PromiseWithResolvers<Procedures[P]['ret']>
  readonly #createdAt: number
  #state: State

  /** Throws XdrError when `args` cannot be written. Submit it at once. */
  constructor(
    host: ExchangeHost,
    procedure: P,
    args: Procedures[P]['args'],
    options: CallOptions,
    trace: (trace: CallTrace) => void,
  ) {
    this.#host = host
    this.procedure = procedure
    this.slow = options.slow ?? false
    this.#args = encodeArgs(procedure, args)
    this.#options = options
    this.#trace = trace
    this.#settle = Promise.withResolvers()
    this.result = this.#settle.promise
    this.#createdAt = host.clock.monotonic()
    this.#state = { kind: 'queued', timer: host.clock.after(options.timeoutMs, this.#onQueuedTooLong) }
    options.signal?.addEventListener('abort', this.#onAbort, { once: true })
  }

  start(serial: number): void {
    try {
      this.#options.beforeSend?.()
    } catch (error) {
      this.#settle.reject(error)
      this.#finish('withdrawn')
      this.#host.exchanges.done(serial)
      return
    }
    this.#leaveState()
    const { clock } = this.#host
    const timer = clock.after(this.#options.timeoutMs, this.#onUnanswered)
    this.#state = { kind: 'sent', serial, timer, sentAt: clock.monotonic() }
    this.#host.write(encodedCallFrame(this.procedure, serial, this.#args))
  }

  onFrame(frame: Frame): void {
    const state = this.#state
    if (state.kind !== 'sent' && state.kind !== 'abandoned') return
    if (frame.type !== MessageType.REPLY) {
      this.#host.fail(
        new LibvirtConnectionError('PROTOCOL', `stream packet for ${this.procedure}, which opens no stream`),
      )
      return
    }
    let outcome: 'ok' | 'error'
    try {
      outcome = this.#settleWith(frame)
    } catch (error) {
      this.#host.fail(
        new LibvirtConnectionError('PROTOCOL', `the reply to ${this.procedure} cannot be read`, { cause: error }),
      )
      return
    }
    this.#finish(state.kind === 'abandoned' ? 'abandoned' : outcome)
    this.#host.exchanges.done(state.serial)
  }

  onClosed(error: LibvirtConnectionError): void {
    this.#settle.reject(error)
    this.#finish('closed')
  }

  #settleWith(frame: Frame): 'ok' | 'error' {
    if (frame.status === MessageStatus.ERROR) {
      this.#settle.reject(remoteError(this.procedure, frame))
      return 'error'
    }
    this.#settle.resolve(decodeRet(this.procedure, frame.payload))
    return 'ok'
  }

  #finish(outcome: CallTrace['outcome']): void {
    const state = this.#state
    const now = this.#host.clock.monotonic()
    const sentAt = state.kind === 'sent' || state.kind === 'abandoned' ? state.sentAt : now
    this.#leaveState()
    this.#state = { kind: 'done' }
    this.#options.signal?.removeEventListener('abort', this.#onAbort)
    this.#trace({
      kind: 'call',
      procedure: this.procedure,
      outcome,
      queuedMs: sentAt - this.#createdAt,
      durationMs: now - sentAt,
    })
  }

  /** A state's timer dies with it, except that a call given up goes on being timed. */
  #leaveState(): void {
    const state = this.#state
    if (state.kind !== 'done') state.timer.cancel()
  }

  readonly #onAbort = () => {
    const { signal } = this.#options
    if (signal === undefined) return
    const state = this.#state
    switch (state.kind) {
      case 'queued':
        this.#settle.reject(abortReason(signal))
        this.#finish('withdrawn')
        this.#host.exchanges.withdraw(this)
        return
      case 'sent':
        this.#settle.reject(abortReason(signal))
        this.#state = { ...state, kind: 'abandoned' }
        return
      case 'abandoned':
      case 'done':
        return
      default:
        exhaustive(state)
    }
  }

  readonly #onQueuedTooLong = () => {
    const message = `no place for ${this.procedure} on the connection within ${this.#options.timeoutMs} ms`
    this.#settle.reject(new LibvirtConnectionError('BUSY', message))
    this.#finish('withdrawn')
    this.#host.exchanges.withdraw(this)
  }

  readonly #onUnanswered = () => {
    const message = `libvirtd did not answer ${this.procedure} within ${this.#options.timeoutMs} ms`
    this.#host.fail(new LibvirtConnectionError('TIMEOUT', message))
  }
}

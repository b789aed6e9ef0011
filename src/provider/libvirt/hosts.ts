// The connections of one provider to its hosts: who shares one, who gets one of its own, when one is dialled anew. How to dial is in dial.ts.
import { raceSignal } from '../../lib/deadline.ts'
import { toError } from '../../lib/errors.ts'
import { ProviderError } from '../errors.ts'
import type { HostApi } from './host-api.ts'

/** One connection to one host. */
export interface HostSession {
  readonly api: HostApi
  /** Resolves when it has ended, for whatever reason; never rejects. */
  readonly closed: Promise<unknown>
  /** Says goodbye first. Idempotent. */
  close(): Promise<void>
  /** Ends it at once. Idempotent. */
  destroy(reason: Error): void
}

/** @throws the errors of the wires, or the signal's reason */
export type DialHost = (host: string, signal: AbortSignal) => Promise<HostSession>

/**
 * `shared` carries the ordinary calls of all operations on a host. `agent` carries the guest agents' answers alone: a frozen
 * agent holds a call for seconds, and a few of those make the daemon deaf to everything else on that connection.
 */
export type Line = 'shared' | 'agent'

/** Who wants to know of the shared connections. */
export interface SharedLineEvents {
  /** A new one is there, and nobody uses it yet; when this rejects it is given up. */
  opened(host: string, api: HostApi, signal: AbortSignal): Promise<void>
  /** It has ended, for whatever reason. */
  lost(host: string): void
}

type LineState =
  | { readonly kind: 'idle' }
  | { readonly kind: 'dialling'; readonly dial: Dial }
  | { readonly kind: 'open'; readonly session: HostSession }

interface Dial {
  readonly session: Promise<HostSession>
  readonly abort: AbortController
  waiters: number
}

export class HostConnections {
  readonly #dial: DialHost
  readonly #shared: SharedLineEvents | undefined
  readonly #lines = new Map<string, LineState>()
  readonly #fresh = new Set<HostSession>()
  readonly #closing = new AbortController()

  constructor(dial: DialHost, shared?: SharedLineEvents) {
    this.#dial = dial
    this.#shared = shared
  }

  /** The host's connection of that kind, dialled when there is none. Callers that come meanwhile wait for the same dial. */
  async line(host: string, line: Line, signal: AbortSignal): Promise<HostApi> {
    signal.throwIfAborted()
    this.#requireOpen(host)
    const key = `${line} ${host}`
    const state = this.#lines.get(key) ?? { kind: 'idle' }
    if (state.kind === 'open') return state.session.api
    const dial = state.kind === 'dialling' ? state.dial : this.#begin(key, host, line)
    dial.waiters++
    try {
      return (await raceSignal(dial.session, signal)).api
    } finally {
      dial.waiters--
      // Nobody waits for it any more; whoever comes later dials anew.
      if (dial.waiters === 0) dial.abort.abort(new Error('nobody waits for this connection any more'))
    }
  }

  /** Runs `work` on a connection of its own, closed afterwards; destroyed when the signal ended the work. */
  async fresh<T>(host: string, signal: AbortSignal, work: (api: HostApi) => Promise<T>): Promise<T> {
    this.#requireOpen(host)
    const session = await this.#dial(host, AbortSignal.any([signal, this.#closing.signal]))
    this.#fresh.add(session)
    try {
      return await work(session.api)
    } finally {
      this.#fresh.delete(session)
      if (signal.aborted) session.destroy(toError(signal.reason))
      else void session.close()
    }
  }

  /** Calls in flight end as those of a lost connection do. */
  async close(): Promise<void> {
    const reason = new Error('the provider was closed')
    this.#closing.abort(reason)
    for (const session of this.#fresh) session.destroy(reason)
    const open = [...this.#lines.values()].flatMap((state) => (state.kind === 'open' ? [state.session] : []))
    await Promise.all(open.map((session) => session.close()))
  }

  #begin(key: string, host: string, line: Line): Dial {
    const abort = new AbortController()
    const signal = AbortSignal.any([abort.signal, this.#closing.signal])
    const session = line === 'shared' ? this.#dialShared(host, signal) : this.#dial(host, signal)
    const dial: Dial = { session, abort, waiters: 0 }
    this.#lines.set(key, { kind: 'dialling', dial })
    session.then(
      (opened) => this.#opened(key, host, line, dial, opened),
      () => this.#dropDial(key, dial),
    )
    abort.signal.addEventListener('abort', () => this.#dropDial(key, dial), { once: true })
    return dial
  }

  #opened(key: string, host: string, line: Line, dial: Dial, session: HostSession): void {
    const state = this.#lines.get(key)
    if (this.#closing.signal.aborted || state?.kind !== 'dialling' || state.dial !== dial) {
      session.destroy(new Error('nobody waits for this connection any more'))
      return
    }
    this.#lines.set(key, { kind: 'open', session })
    void session.closed.then(() => {
      const current = this.#lines.get(key)
      if (current?.kind === 'open' && current.session === session) this.#lines.set(key, { kind: 'idle' })
      if (line === 'shared' && !this.#closing.signal.aborted) this.#shared?.lost(host)
    })
  }

  async #dialShared(host: string, signal: AbortSignal): Promise<HostSession> {
    const session = await this.#dial(host, signal)
    try {
      await this.#shared?.opened(host, session.api, signal)
      return session
    } catch (thrown) {
      session.destroy(toError(thrown))
      throw thrown
    }
  }

  #dropDial(key: string, dial: Dial): void {
    const state = this.#lines.get(key)
    if (state?.kind === 'dialling' && state.dial === dial) this.#lines.set(key, { kind: 'idle' })
  }

  #requireOpen(host: string): void {
    if (!this.#closing.signal.aborted) return
    throw ProviderError.transient(`host ${host}: the provider was closed, because its entry in the config changed`, {
      code: 'ProviderClosed',
      target: host,
    })
  }
}

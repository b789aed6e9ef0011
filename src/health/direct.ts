// Whether a check URL answers without any proxy, shared by all probes of that URL; it never decides whose fault a failure is.
import { type Clock } from '../lib/clock.ts'
import { deadline } from '../lib/deadline.ts'
import { errorMessage } from '../lib/errors.ts'

export type DirectAnswer =
  | { readonly kind: 'reachable' }
  | { readonly kind: 'unreachable'; readonly message: string }
  /** No direct request to this URL has ever succeeded: egress may be forbidden here, so a failure says nothing. */
  | { readonly kind: 'noEvidence' }

export type FetchDirectly = (url: URL, signal: AbortSignal) => Promise<{ readonly status: number }>

interface UrlState {
  everSucceeded: boolean
  checkedMs: number
  pending: Promise<DirectAnswer> | undefined
  last: DirectAnswer
}

/** One answer serves everybody who asks within this time, milliseconds. */
const freshMs = 2000
/** URLs remembered; of more, those that nobody asked for the longest are forgotten. */
const maxUrls = 1000

/** Direct checks by URL: concurrent ones share a request. */
export class DirectChecks {
  readonly #urls = new Map<string, UrlState>()
  readonly #clock: Clock
  readonly #fetch: FetchDirectly
  readonly #stopping = new AbortController()

  constructor(options: { readonly clock: Clock; readonly fetch: FetchDirectly }) {
    this.#clock = options.clock
    this.#fetch = options.fetch
  }

  /** Asks the URL itself. Never rejects; an abort of one caller does not end the request others wait for. */
  async check(url: string, timeoutMs: number): Promise<DirectAnswer> {
    const state = this.#urls.get(url) ?? {
      everSucceeded: false,
      checkedMs: Number.NEGATIVE_INFINITY,
      pending: undefined,
      last: { kind: 'noEvidence' },
    }
    this.#remember(url, state)
    if (state.pending !== undefined) return await state.pending
    if (this.#clock.monotonic() - state.checkedMs < freshMs) return state.last
    state.pending = this.#ask(url, state, timeoutMs)
    return await state.pending
  }

  /** Ends the requests in flight; they count as unanswered. */
  stop(): void {
    this.#stopping.abort(new Error('the direct checks were stopped'))
  }

  /** The last one asked for is the last in order. */
  #remember(url: string, state: UrlState): void {
    this.#urls.delete(url)
    this.#urls.set(url, state)
    if (this.#urls.size <= maxUrls) return
    const [oldest] = this.#urls.keys()
    if (oldest !== undefined) this.#urls.delete(oldest)
  }

  async #ask(url: string, state: UrlState, timeoutMs: number): Promise<DirectAnswer> {
    using budget = deadline(this.#clock, `direct request to ${new URL(url).host}`, timeoutMs, this.#stopping.signal)
    try {
      const { status } = await this.#fetch(new URL(url), budget.signal)
      if (isSuccess(status)) {
        state.everSucceeded = true
        state.last = { kind: 'reachable' }
      } else {
        state.last = failed(state, `it answers ${status} without the proxy too`)
      }
    } catch (thrown) {
      state.last = failed(state, `it cannot be reached without the proxy either: ${errorMessage(thrown)}`)
    } finally {
      state.checkedMs = this.#clock.monotonic()
      state.pending = undefined
    }
    return state.last
  }
}

/** Any answer of the target that a working proxy would pass on as a success. */
export function isSuccess(status: number): boolean {
  return status >= 200 && status < 400
}

function failed(state: UrlState, message: string): DirectAnswer {
  return state.everSucceeded ? { kind: 'unreachable', message } : { kind: 'noEvidence' }
}

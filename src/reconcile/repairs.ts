// How soon an instance that was just made or started may be again when it is found stopped or gone; it repairs nothing.
import { backoffDelayMs, type BackoffPolicy, type Random } from '../lib/backoff.ts'
import type { Clock } from '../lib/clock.ts'

/** Pause after an instance was made to run: none has stopped yet, one has just after, and so on. */
const backoff: BackoffPolicy = { baseMs: 1000, maxMs: 300_000, jitter: 0.5 }
/** An instance that ran this long begins anew, milliseconds: longer than every pause. */
const steadyMs = 600_000

interface Run {
  readonly atMs: number
  /** Times in a row that it was made to run. */
  readonly times: number
  readonly pauseMs: number
}

/** In memory only: after a restart of the operator the first repair is made at once. */
export class Repairs {
  readonly #clock: Clock
  readonly #random: Random
  readonly #runs = new Map<string, Run>()

  constructor(options: { readonly clock: Clock; readonly random: Random }) {
    this.#clock = options.clock
    this.#random = options.random
  }

  /** @param key of the Proxy; a create of its instance has returned, so it ran a moment ago */
  ran(key: string): void {
    const atMs = this.#clock.monotonic()
    const last = this.#runs.get(key)
    const times = last === undefined || atMs - last.atMs >= steadyMs ? 1 : last.times + 1
    this.#runs.set(key, { atMs, times, pauseMs: backoffDelayMs(backoff, times - 1, this.#random) })
  }

  /** Milliseconds until it may be repaired; 0 when it may be now. */
  waitMs(key: string): number {
    const run = this.#runs.get(key)
    return run === undefined ? 0 : Math.max(run.atMs + run.pauseMs - this.#clock.monotonic(), 0)
  }

  forget(key: string): void {
    this.#runs.delete(key)
  }
}

// A queue of keys with delays and one worker per key; it knows neither what a key means nor who works.
import { abortReason, type Clock, type Timer } from '../lib/clock.ts'
import { backoffDelayMs, type BackoffPolicy, type Random } from '../lib/backoff.ts'

/** Hooks for metrics; durations in milliseconds. */
export interface QueueMetrics {
  /** Keys that wait for a worker now; scheduled ones do not count. */
  depth(keys: number): void
  added(): void
  /** A worker took a key that had waited `waitedMs`. */
  started(waitedMs: number): void
  finished(workedMs: number): void
  retried(): void
}

export interface WorkQueueOptions {
  readonly clock: Clock
  readonly random: Random
  /** Delays of `addRateLimited`; default 1 s to 5 min with half of it jitter. */
  readonly backoff?: BackoffPolicy
  readonly metrics?: QueueMetrics
}

/** 1 s to 5 min: the answer to an error whose cause is not known to pass sooner. */
export const defaultBackoff: BackoffPolicy = { baseMs: 1000, maxMs: 300_000, jitter: 0.5 }

interface Scheduled {
  readonly dueMs: number
  readonly timer: Timer
}

interface Waiter {
  readonly give: (key: string | undefined) => void
}

/**
 * A key is in at most one of each: waiting, being worked on, scheduled. Adding one that waits changes nothing; adding
 * one that is being worked on makes it wait again afterwards. Of two schedules for a key the earlier counts, and
 * whoever takes the key takes its schedule with it: what comes next is the new outcome's to say.
 */
export class WorkQueue {
  readonly #clock: Clock
  readonly #random: Random
  readonly #backoff: BackoffPolicy
  readonly #metrics: QueueMetrics | undefined
  /** Waiting keys in order, with when they began to wait. */
  readonly #waiting = new Map<string, number>()
  /** Keys being worked on, with when that began. */
  readonly #working = new Map<string, number>()
  /** Keys being worked on that were added meanwhile. */
  readonly #again = new Set<string>()
  readonly #scheduled = new Map<string, Scheduled>()
  readonly #failures = new Map<string, number>()
  readonly #waiters = new Set<Waiter>()
  readonly #idle = new Set<() => void>()
  #shutDown = false

  constructor(options: WorkQueueOptions) {
    this.#clock = options.clock
    this.#random = options.random
    this.#backoff = options.backoff ?? defaultBackoff
    this.#metrics = options.metrics
    this.#metrics?.depth(0)
  }

  /** Keys that wait for a worker. */
  get depth(): number {
    return this.#waiting.size
  }

  /** Keys being worked on. */
  get active(): number {
    return this.#working.size
  }

  /** Wait now. */
  add(key: string): void {
    if (this.#shutDown || this.#waiting.has(key) || this.#again.has(key)) return
    this.#metrics?.added()
    if (this.#working.has(key)) this.#again.add(key)
    else this.#enqueue(key)
  }

  /** Wait from `delayMs` on. */
  addAfter(key: string, delayMs: number): void {
    if (this.#shutDown) return
    if (delayMs <= 0) {
      this.add(key)
      return
    }
    // A key that waits is taken before the delay is over, and with it this schedule.
    if (this.#waiting.has(key)) return
    const dueMs = this.#clock.monotonic() + delayMs
    const scheduled = this.#scheduled.get(key)
    if (scheduled !== undefined && scheduled.dueMs <= dueMs) return
    scheduled?.timer.cancel()
    const timer = this.#clock.after(delayMs, () => {
      this.#scheduled.delete(key)
      this.add(key)
    })
    this.#scheduled.set(key, { dueMs, timer })
  }

  /** Wait after a delay that grows with every call since the last {@link forget}. */
  addRateLimited(key: string): void {
    if (this.#shutDown) return
    const failures = this.#failures.get(key) ?? 0
    this.#failures.set(key, failures + 1)
    this.#metrics?.retried()
    this.addAfter(key, backoffDelayMs(this.#backoff, failures, this.#random))
  }

  /** The key is fine: its next retry is a first one again. Not a removal. */
  forget(key: string): void {
    this.#failures.delete(key)
  }

  /** Retries asked for since the last {@link forget}. */
  failures(key: string): number {
    return this.#failures.get(key) ?? 0
  }

  /** The next key, once there is one; undefined when the queue was shut down. Every key taken must be given to {@link done}. */
  take(signal: AbortSignal): Promise<string | undefined> {
    if (signal.aborted) return Promise.reject(abortReason(signal))
    const [next] = this.#waiting
    if (next !== undefined) return Promise.resolve(this.#start(next[0], next[1]))
    if (this.#shutDown) return Promise.resolve(undefined)
    return new Promise((resolve, reject) => {
      const onAbort = () => {
        this.#waiters.delete(waiter)
        reject(abortReason(signal))
      }
      const waiter: Waiter = {
        give: (key) => {
          signal.removeEventListener('abort', onAbort)
          resolve(key)
        },
      }
      this.#waiters.add(waiter)
      signal.addEventListener('abort', onAbort, { once: true })
    })
  }

  /** The key is no longer worked on. */
  done(key: string): void {
    const startedMs = this.#working.get(key)
    if (startedMs === undefined) return
    this.#working.delete(key)
    this.#metrics?.finished(this.#clock.monotonic() - startedMs)
    if (this.#again.delete(key)) this.#enqueue(key)
    this.#tellIdle()
  }

  /**
   * Takes no more keys and forgets the scheduled ones. Resolves when the waiting keys were taken and all work is done;
   * with nobody taking keys that is never, so give it a signal.
   */
  async shutDown(signal?: AbortSignal): Promise<void> {
    this.#shutDown = true
    for (const { timer } of this.#scheduled.values()) timer.cancel()
    this.#scheduled.clear()
    for (const waiter of this.#waiters) waiter.give(undefined)
    this.#waiters.clear()
    await this.#untilIdle(signal)
  }

  #enqueue(key: string): void {
    this.#waiting.set(key, this.#clock.monotonic())
    const [waiter] = this.#waiters
    if (waiter !== undefined) {
      this.#waiters.delete(waiter)
      waiter.give(this.#start(key, this.#clock.monotonic()))
      return
    }
    this.#metrics?.depth(this.#waiting.size)
  }

  #start(key: string, sinceMs: number): string {
    const nowMs = this.#clock.monotonic()
    this.#waiting.delete(key)
    this.#scheduled.get(key)?.timer.cancel()
    this.#scheduled.delete(key)
    this.#working.set(key, nowMs)
    this.#metrics?.depth(this.#waiting.size)
    this.#metrics?.started(nowMs - sinceMs)
    return key
  }

  #untilIdle(signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted === true) {
        reject(abortReason(signal))
        return
      }
      const onAbort = () => {
        this.#idle.delete(onIdle)
        if (signal !== undefined) reject(abortReason(signal))
      }
      const onIdle = () => {
        signal?.removeEventListener('abort', onAbort)
        resolve()
      }
      signal?.addEventListener('abort', onAbort, { once: true })
      this.#idle.add(onIdle)
      this.#tellIdle()
    })
  }

  #tellIdle(): void {
    if (!this.#shutDown || this.#working.size > 0 || this.#waiting.size > 0) return
    for (const onIdle of this.#idle) onIdle()
    this.#idle.clear()
  }
}

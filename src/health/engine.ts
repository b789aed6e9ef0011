// The schedule of probes and the store of their verdicts; what a verdict changes is for others to decide.
import { isDeepStrictEqual } from 'node:util'
import type { ProbeTarget, Verdict } from '../api/probe.ts'
import { backoffDelayMs, type Random } from '../lib/backoff.ts'
import type { Timer } from '../lib/clock.ts'
import { errorMessage } from '../lib/errors.ts'
import { Semaphore } from '../lib/semaphore.ts'
import type { Logger } from '../observe/logger.ts'
import type { Metrics } from '../observe/metrics.ts'
import { initialHealth, nextHealth, verdictOf, type HealthState } from './hysteresis.ts'
import { probe, type ProbeDependencies } from './probe.ts'

export interface HealthEngineOptions extends ProbeDependencies {
  readonly random: Random
  readonly log: Logger
  readonly metrics: Pick<Metrics, 'probeDuration'>
  /** Probes at the same time, over all proxies. */
  readonly maxConcurrentProbes: number
  /** Called with the key when its verdict changed in more than latency. */
  readonly onTransition: (key: string) => void
}

interface Probed {
  readonly key: string
  readonly target: ProbeTarget
  readonly sinceMs: number
  readonly abort: AbortController
  state: HealthState
  attempts: number
  timer: Timer | undefined
}

/** A proxy that never worked is asked again this soon, so that one that just came up is found within a second. */
const startupBackoff = { baseMs: 200, jitter: 0.2 }
/** While it is starting, the longest pause, milliseconds. */
const startupMaxMs = 1000
/** Share of the interval by which probes are spread. */
const spread = 0.2

/** Probes what it is told to watch, until told to forget it. */
export class HealthEngine {
  readonly #options: HealthEngineOptions
  readonly #probed = new Map<string, Probed>()
  readonly #slots: Semaphore

  constructor(options: HealthEngineOptions) {
    this.#options = options
    this.#slots = new Semaphore(options.maxConcurrentProbes)
  }

  /** Begins or changes the probing of `key`; the first probe follows at once. Idempotent for an equal target. */
  watch(key: string, target: ProbeTarget): void {
    const current = this.#probed.get(key)
    if (current !== undefined && sameTarget(current.target, target)) return
    this.forget(key)
    const entry: Probed = {
      key,
      target,
      sinceMs: this.#options.clock.monotonic(),
      abort: new AbortController(),
      state: initialHealth,
      attempts: 0,
      timer: undefined,
    }
    this.#probed.set(key, entry)
    this.#schedule(entry, 0)
  }

  forget(key: string): void {
    const entry = this.#probed.get(key)
    if (entry === undefined) return
    this.#probed.delete(key)
    entry.timer?.cancel()
    entry.abort.abort(new Error(`${key} is no longer probed`))
  }

  verdict(key: string): Verdict {
    const entry = this.#probed.get(key)
    return entry === undefined ? { kind: 'pending' } : verdictOf(entry.state)
  }

  /** Ends every probe, and the direct checks with them; nothing is reported afterwards. */
  stop(): void {
    for (const key of [...this.#probed.keys()]) this.forget(key)
    this.#options.direct.stop()
  }

  #schedule(entry: Probed, delayMs: number): void {
    entry.timer = this.#options.clock.after(delayMs, () => {
      void this.#run(entry)
    })
  }

  async #run(entry: Probed): Promise<void> {
    const { clock, log, metrics } = this.#options
    const { signal } = entry.abort
    try {
      const before = verdictOf(entry.state)
      const result = await this.#slots.run(async () => {
        const startedMs = clock.monotonic()
        try {
          return await probe(entry.target, this.#options, signal)
        } finally {
          metrics.probeDuration.observe((clock.monotonic() - startedMs) / 1000)
        }
      }, signal)
      const { settings } = entry.target
      const ageMs = clock.monotonic() - entry.sinceMs
      entry.state = nextHealth(entry.state, result, { ...settings, startupMs: settings.intervalMs }, ageMs)
      const after = verdictOf(entry.state)
      log.debug('proxy probed', { proxy: entry.key, result: result.kind, verdict: after.kind })
      if (!sameVerdict(before, after)) this.#options.onTransition(entry.key)
    } catch (thrown) {
      if (signal.aborted) return
      log.error('probe could not be made', { proxy: entry.key, error: errorMessage(thrown) })
    }
    // forgotten while the result was on its way
    if (signal.aborted) return
    this.#schedule(entry, this.#delayMs(entry))
    entry.attempts++
  }

  #delayMs(entry: Probed): number {
    const { intervalMs } = entry.target.settings
    const { clock, random } = this.#options
    if (entry.state.decided.kind === 'pending' && clock.monotonic() - entry.sinceMs < intervalMs) {
      return backoffDelayMs({ ...startupBackoff, maxMs: Math.min(startupMaxMs, intervalMs) }, entry.attempts, random)
    }
    return intervalMs * (1 - spread / 2 + spread * random())
  }
}

function sameTarget(a: ProbeTarget, b: ProbeTarget): boolean {
  const { credentials: x, ...restA } = a
  const { credentials: y, ...restB } = b
  return isDeepStrictEqual(restA, restB) && x?.username === y?.username && x?.password.reveal() === y?.password.reveal()
}

function sameVerdict(a: Verdict, b: Verdict): boolean {
  const withoutLatency = (verdict: Verdict) => (verdict.kind === 'healthy' ? { ...verdict, latencyMs: 0 } : verdict)
  return isDeepStrictEqual(withoutLatency(a), withoutLatency(b))
}

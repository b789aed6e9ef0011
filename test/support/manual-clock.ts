// A clock that moves only when told to; timers fire in order of their time.
import type { Clock, Timer } from '../../src/lib/clock.ts'

interface Pending {
  readonly atMs: number
  readonly order: number
  readonly fire: () => void
}

export class ManualClock implements Clock {
  #nowMs = 0
  #order = 0
  readonly #pending = new Set<Pending>()
  readonly #epochMs: number

  constructor(epochMs = Date.UTC(2026, 0, 1)) {
    this.#epochMs = epochMs
  }

  now(): number {
    return this.#epochMs + this.#nowMs
  }

  monotonic(): number {
    return this.#nowMs
  }

  after(delayMs: number, fire: () => void): Timer {
    const entry: Pending = { atMs: this.#nowMs + Math.max(0, delayMs), order: this.#order++, fire }
    this.#pending.add(entry)
    return { cancel: () => this.#pending.delete(entry) }
  }

  /** Timers that wait to fire. */
  get pendingCount(): number {
    return this.#pending.size
  }

  /** Delay of the next timer, milliseconds. */
  get nextDelayMs(): number | undefined {
    const next = this.#next()
    return next === undefined ? undefined : next.atMs - this.#nowMs
  }

  /** Moves time on, firing what is due; lets promises settle before and after each timer. */
  async advance(ms: number): Promise<void> {
    const end = this.#nowMs + ms
    await settle()
    for (;;) {
      const next = this.#next()
      if (next === undefined || next.atMs > end) break
      this.#pending.delete(next)
      this.#nowMs = next.atMs
      next.fire()
      await settle()
    }
    this.#nowMs = end
    await settle()
  }

  #next(): Pending | undefined {
    return [...this.#pending].sort((a, b) => a.atMs - b.atMs || a.order - b.order)[0]
  }
}

/** Enough turns of the event loop for chains of resolved promises. */
async function settle(): Promise<void> {
  for (let turn = 0; turn < 5; turn++) await new Promise((resolve) => setImmediate(resolve))
}

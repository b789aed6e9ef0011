// Notices a peer that fell silent; it writes no packet itself and does not end the connection.
import type { Clock, Timer } from '../../lib/clock.ts'

export interface KeepalivePolicy {
  /** Silence after which a ping is sent, milliseconds. Default 5000, as libvirt's own. */
  readonly intervalMs: number
  /** Pings without any sign of life after which the peer counts as gone. Default 5, as libvirt's own. */
  readonly maxUnanswered: number
}

export const defaultKeepalive: KeepalivePolicy = { intervalMs: 5000, maxUnanswered: 5 }

export interface KeepaliveHandlers {
  ping(): void
  /** Whether we ourselves keep the peer's bytes from coming in; silence means nothing then. */
  deaf(): boolean
  /** Called once; the keepalive has stopped. @param silentMs how long nothing came */
  silent(silentMs: number): void
}

/** Runs from construction to {@link stop}. */
export class Keepalive {
  readonly #clock: Clock
  readonly #policy: KeepalivePolicy
  readonly #handlers: KeepaliveHandlers
  #lastSign: number
  #unanswered = 0
  #timer: Timer

  constructor(clock: Clock, policy: KeepalivePolicy, handlers: KeepaliveHandlers) {
    this.#clock = clock
    this.#policy = policy
    this.#handlers = handlers
    this.#lastSign = clock.monotonic()
    this.#timer = clock.after(policy.intervalMs, this.#onTimer)
  }

  /** A packet came, or the peer took what we had to write. */
  alive(): void {
    this.#lastSign = this.#clock.monotonic()
    this.#unanswered = 0
  }

  stop(): void {
    this.#timer.cancel()
  }

  readonly #onTimer = () => {
    if (this.#handlers.deaf()) this.alive()
    const silentMs = this.#clock.monotonic() - this.#lastSign
    // Signs of life only move this mark: a timer per packet would cost more than looking again later.
    const dueMs = this.#policy.intervalMs * (this.#unanswered + 1)
    if (silentMs < dueMs) {
      this.#timer = this.#clock.after(dueMs - silentMs, this.#onTimer)
      return
    }
    if (this.#unanswered >= this.#policy.maxUnanswered) {
      this.#handlers.silent(silentMs)
      return
    }
    this.#unanswered++
    this.#timer = this.#clock.after(this.#policy.intervalMs, this.#onTimer)
    this.#handlers.ping()
  }
}

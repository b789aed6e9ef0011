// The daemon's pings to a client that asked for them, and the end of one that went silent.
import type { Clock, Timer } from '../../../../src/lib/clock.ts'

/** libvirtd.conf: keepalive_interval and keepalive_count. */
const intervalMs = 5000
const count = 5

export interface KeepaliveActions {
  readonly ping: () => void
  readonly dead: () => void
}

export class ServerKeepalive {
  readonly #clock: Clock
  readonly #actions: KeepaliveActions
  #timer: Timer | undefined
  #unanswered = 0
  #stopped = false

  constructor(clock: Clock, actions: KeepaliveActions) {
    this.#clock = clock
    this.#actions = actions
  }

  /** Idempotent. */
  start(): void {
    if (this.#timer === undefined && !this.#stopped) this.#arm()
  }

  /** Anything that the client sent counts as life. */
  heard(): void {
    this.#unanswered = 0
    if (this.#timer === undefined) return
    this.#timer.cancel()
    this.#arm()
  }

  stop(): void {
    this.#stopped = true
    this.#timer?.cancel()
  }

  #arm(): void {
    this.#timer = this.#clock.after(intervalMs, () => {
      if (this.#unanswered >= count) {
        this.#actions.dead()
        return
      }
      this.#unanswered++
      this.#actions.ping()
      this.#arm()
    })
  }
}

// Notices a host that went silent. It only listens; the questions are sent by ssh2.
import type { Clock, Timer } from '../../lib/clock.ts'

/** The watch over one connection. */
export interface SilenceWatch {
  /** Something came from the host. Any byte counts as life: behind a long upload an answer can take longer than a period. */
  heard(): void
  /** Idempotent. */
  stop(): void
}

/**
 * Calls `onSilent` once, two periods after the last byte: in the first one a question is due, in the second its answer.
 * @param periodMs milliseconds
 */
export function watchSilence(clock: Clock, periodMs: number, onSilent: () => void): SilenceWatch {
  let lastHeard = clock.monotonic()
  let timer: Timer = clock.after(periodMs, ask)

  function ask(): void {
    const quietMs = clock.monotonic() - lastHeard
    if (quietMs < periodMs) {
      timer = clock.after(periodMs - quietMs, ask)
      return
    }
    // A period of its own even when this one came late: after a process was stopped its timers fire before its sockets are
    // read, and what has arrived meanwhile must count.
    const askedAt = clock.monotonic()
    timer = clock.after(periodMs, () => {
      if (lastHeard < askedAt) onSilent()
      else ask()
    })
  }

  return {
    heard: () => {
      lastHeard = clock.monotonic()
    },
    stop: () => timer.cancel(),
  }
}

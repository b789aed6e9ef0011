// Time as an interface, so that the whole operator can run under a seeded scheduler; not a date library.

/** A pending timer. */
export interface Timer {
  /** Idempotent; a cancelled timer never fires. */
  cancel(): void
}

/** Source of time and timers. Everything that waits takes one. */
export interface Clock {
  /** Wall clock, milliseconds since the epoch. Only for timestamps shown to people or compared with other hosts. */
  now(): number
  /** Milliseconds from an arbitrary origin that never goes back. For every duration and deadline. */
  monotonic(): number
  /** Calls `fire` once, `delayMs` from now. */
  after(delayMs: number, fire: () => void): Timer
}

/** Longest delay that setTimeout takes without firing at once (signed 32 bits). */
const maxTimeoutMs = 2 ** 31 - 1

/** The machine's own clock. */
export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  after(delayMs, fire) {
    const timeout = setTimeout(fire, Math.min(Math.max(delayMs, 0), maxTimeoutMs))
    return { cancel: () => clearTimeout(timeout) }
  },
}

/**
 * Resolves after `delayMs`, or rejects with the signal's reason as soon as it aborts.
 * @param delayMs milliseconds
 */
export function sleep(clock: Clock, delayMs: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted === true) {
      reject(abortReason(signal))
      return
    }
    const onAbort = () => {
      timer.cancel()
      if (signal !== undefined) reject(abortReason(signal))
    }
    const timer = clock.after(delayMs, () => {
      signal?.removeEventListener('abort', onAbort)
      resolve()
    })
    signal?.addEventListener('abort', onAbort, { once: true })
  })
}

/** The signal's reason as an Error, whatever it was aborted with. */
export function abortReason(signal: AbortSignal): Error {
  const reason: unknown = signal.reason
  return reason instanceof Error ? reason : new Error('aborted', { cause: reason })
}

// Notices a host that went silent. It only listens to the byte counter; the questions are sent by ssh2.
import type { Clock } from '../../lib/clock.ts'

/** Stops the watch; idempotent. */
export type StopKeepalive = () => void

/**
 * Calls `onSilent` once when `received()` has not moved during two periods in a row. Any byte counts as life, not just an
 * answer to the keepalive: behind a long upload the answer can take longer than the period.
 * @param periodMs milliseconds
 */
export function watchSilence(
  clock: Clock,
  periodMs: number,
  received: () => number,
  onSilent: () => void,
): StopKeepalive {
  let last = received()
  let silentPeriods = 0
  const check = () => {
    const now = received()
    silentPeriods = now === last ? silentPeriods + 1 : 0
    last = now
    if (silentPeriods >= 2) onSilent()
    else timer = clock.after(periodMs, check)
  }
  let timer = clock.after(periodMs, check)
  return () => timer.cancel()
}

// Waiting for a condition with a deadline, in place of sleeps.
import { setTimeout as delay } from 'node:timers/promises'

/**
 * Asks `probe` until it returns something other than undefined and false, and returns that.
 * @param timeoutMs generous: it is only ever used up by a failure
 */
export async function eventually<T>(
  what: string,
  probe: () => T | undefined | false | Promise<T | undefined | false>,
  timeoutMs = 30_000,
): Promise<T> {
  const end = performance.now() + timeoutMs
  let last: unknown
  for (;;) {
    try {
      const value = await probe()
      if (value !== undefined && value !== false) return value
      last = undefined
    } catch (thrown) {
      last = thrown
    }
    if (performance.now() > end) throw new Error(`${what} did not come true within ${timeoutMs} ms`, { cause: last })
    await delay(10)
  }
}

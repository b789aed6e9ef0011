// Waits for a condition of the world outside this process; not for one that an event or a promise tells.
import { setTimeout as sleep } from 'node:timers/promises'

/**
 * Tries `attempt` until it neither throws nor returns `undefined`, and returns what it returned.
 * @param budgetMs milliseconds after which the last failure is thrown, as the cause of an error that names `what`
 */
export async function eventually<T>(what: string, budgetMs: number, attempt: () => Promise<T | undefined>): Promise<T> {
  const end = performance.now() + budgetMs
  for (;;) {
    let failure: unknown
    try {
      const value = await attempt()
      if (value !== undefined) return value
    } catch (error) {
      failure = error
    }
    if (performance.now() > end) throw new Error(`not within ${budgetMs / 1000} s: ${what}`, { cause: failure })
    await sleep(100)
  }
}

// A fair counting semaphore whose waiters can give up; not a queue of work.
import { abortReason } from './clock.ts'

interface Waiter {
  readonly grant: () => void
}

/** At most `permits` holders at a time; waiters are served in order of arrival. */
export class Semaphore {
  #free: number
  readonly #waiters = new Set<Waiter>()

  constructor(permits: number) {
    this.#free = permits
  }

  /** Waits for a permit. The returned function gives it back and may be called any number of times. */
  async acquire(signal?: AbortSignal): Promise<() => void> {
    if (signal?.aborted === true) throw abortReason(signal)
    if (this.#free > 0) {
      this.#free--
      return this.#releaseOnce()
    }
    return await new Promise((resolve, reject) => {
      const onAbort = () => {
        this.#waiters.delete(waiter)
        if (signal !== undefined) reject(abortReason(signal))
      }
      const waiter: Waiter = {
        grant: () => {
          signal?.removeEventListener('abort', onAbort)
          resolve(this.#releaseOnce())
        },
      }
      this.#waiters.add(waiter)
      signal?.addEventListener('abort', onAbort, { once: true })
    })
  }

  /** Runs `work` while holding a permit. */
  async run<T>(work: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    const release = await this.acquire(signal)
    try {
      return await work()
    } finally {
      release()
    }
  }

  #releaseOnce(): () => void {
    let held = true
    return () => {
      if (!held) return
      held = false
      const [next] = this.#waiters
      if (next === undefined) {
        this.#free++
        return
      }
      this.#waiters.delete(next)
      next.grant()
    }
  }
}

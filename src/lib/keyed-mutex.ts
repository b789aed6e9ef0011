// One holder at a time per key; locks of different keys never wait for each other.
import { Semaphore } from './semaphore.ts'

interface Entry {
  readonly semaphore: Semaphore
  users: number
}

/** Mutual exclusion by key, first come first served. A key costs memory only while somebody holds or waits for it. */
export class KeyedMutex {
  readonly #entries = new Map<string, Entry>()

  /** Runs `work` while holding `key`. Waiting ends with the signal; a running `work` ends by itself. */
  async run<T>(key: string, work: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    const entry = this.#entries.get(key) ?? { semaphore: new Semaphore(1), users: 0 }
    this.#entries.set(key, entry)
    entry.users++
    try {
      return await entry.semaphore.run(work, signal)
    } finally {
      entry.users--
      if (entry.users === 0) this.#entries.delete(key)
    }
  }
}

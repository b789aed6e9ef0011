// Long work that several callers need at once is done once: each waits with its own signal, and it ends when the last one left.
import { raceSignal } from '../../lib/deadline.ts'

/** One caller that waits. */
export interface Participant {
  readonly signal: AbortSignal
  mayMutate(): boolean
  progress(message: string): void
}

/** The callers together, as the work sees them. */
export interface Company {
  /** Aborts when the last participant has left. */
  readonly signal: AbortSignal
  /** One participant that may is enough. */
  mayMutate(): boolean
  /** Told to all, and to those who come later. */
  progress(message: string): void
}

interface Work {
  readonly result: Promise<unknown>
  readonly abort: AbortController
  readonly participants: Set<Participant>
  lastProgress: string | undefined
}

export class SharedWork {
  readonly #running = new Map<string, Work>()

  /** Whether there is work of that key to join. */
  isRunning(key: string): boolean {
    return this.#running.get(key)?.abort.signal.aborted === false
  }

  /** Joins the work of that key, or begins it. `T` must be the same for every use of a key. */
  async run<T>(key: string, participant: Participant, begin: (company: Company) => Promise<T>): Promise<T> {
    for (;;) {
      participant.signal.throwIfAborted()
      const running = this.#running.get(key)
      if (running?.abort.signal.aborted !== true) {
        return await this.#join(running ?? this.#begin(key, begin), participant)
      }
      // Everyone has left it, and it is still letting go of what it holds.
      await raceSignal(
        running.result.catch(() => undefined),
        participant.signal,
      )
    }
  }

  async #join<T>(work: Work, participant: Participant): Promise<T> {
    work.participants.add(participant)
    if (work.lastProgress !== undefined) participant.progress(work.lastProgress)
    try {
      const result: unknown = await raceSignal(work.result, participant.signal)
      return result as T
    } finally {
      work.participants.delete(participant)
      if (work.participants.size === 0) work.abort.abort(new Error('nobody waits for it any more'))
    }
  }

  #begin<T>(key: string, begin: (company: Company) => Promise<T>): Work {
    const abort = new AbortController()
    const participants = new Set<Participant>()
    const company: Company = {
      signal: abort.signal,
      mayMutate: () => [...participants].some((participant) => participant.mayMutate()),
      progress: (message) => {
        work.lastProgress = message
        for (const participant of participants) participant.progress(message)
      },
    }
    // Begun a turn later, when the first participant is in: the work asks its company at once.
    const result = Promise.resolve().then(() => begin(company))
    const work: Work = { result, abort, participants, lastProgress: undefined }
    this.#running.set(key, work)
    result
      .catch(() => undefined)
      .finally(() => {
        if (this.#running.get(key) === work) this.#running.delete(key)
      })
    return work
  }
}

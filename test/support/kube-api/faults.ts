// The ways in which the in-process API can be told to misbehave; each until it is told otherwise.
import { ApiError } from './api-error.ts'

export interface Failure {
  readonly status: number
  /** Only so many requests; default: until released. */
  readonly times?: number
  readonly method?: string
  /** Only requests whose path matches. */
  readonly path?: RegExp
  /** Only requests whose query matches. */
  readonly query?: RegExp
  readonly retryAfterSeconds?: number
}

interface ActiveFailure {
  readonly failure: Failure
  left: number
}

const reasons: Readonly<Record<number, string>> = {
  401: 'Unauthorized',
  403: 'Forbidden',
  409: 'Conflict',
  410: 'Expired',
  429: 'TooManyRequests',
  500: 'InternalError',
  503: 'ServiceUnavailable',
}

export class Faults {
  readonly #failures = new Set<ActiveFailure>()
  readonly #lost = new Map<string, number>()
  #swallow = 0
  /** Nothing is written to watches, old and new, and none is ended. */
  watchesStalled = false
  /** How a watch from a forgotten resourceVersion is refused. A real server does it by event. */
  expiredWatch: 'event' | 'status' = 'event'

  /** Answers matching requests with an error. The returned function ends that. */
  fail(failure: Failure): () => void {
    const active: ActiveFailure = { failure, left: failure.times ?? Number.POSITIVE_INFINITY }
    this.#failures.add(active)
    return () => {
      this.#failures.delete(active)
    }
  }

  /** Does what the next requests of a method ask, and cuts the connection in place of the answer. */
  loseAnswers(method: string, count: number): void {
    this.#lost.set(method, (this.#lost.get(method) ?? 0) + count)
  }

  takeLostAnswer(method: string): boolean {
    const left = this.#lost.get(method) ?? 0
    if (left > 0) this.#lost.set(method, left - 1)
    return left > 0
  }

  /** Withholds the next events from all watches, which stay open and silent about them. */
  swallowEvents(count: number): void {
    this.#swallow += count
  }

  takeSwallowed(): boolean {
    if (this.#swallow === 0) return false
    this.#swallow--
    return true
  }

  /** @throws ApiError when the request is to fail */
  check(method: string, path: string, query: string): void {
    for (const active of this.#failures) {
      const { failure } = active
      if (failure.method !== undefined && failure.method !== method) continue
      if (failure.path !== undefined && !failure.path.test(path)) continue
      if (failure.query !== undefined && !failure.query.test(query)) continue
      active.left--
      if (active.left <= 0) this.#failures.delete(active)
      const reason = reasons[failure.status] ?? 'Unknown'
      throw new ApiError(failure.status, reason, 'told to fail', undefined, failure.retryAfterSeconds)
    }
  }
}

// Errors of the discovery API as RFC 9457 problem documents.

export interface Problem {
  readonly status: number
  readonly title: string
  /** What was wrong with this request and the way out. */
  readonly detail: string
}

/** A request that cannot be served; becomes a problem document. */
export class ProblemError extends Error {
  override readonly name = 'ProblemError'
  readonly code = 'DISCOVERY_PROBLEM'
  readonly problem: Problem
  readonly headers: Readonly<Record<string, string>>

  constructor(problem: Problem, headers: Readonly<Record<string, string>> = {}) {
    super(problem.detail)
    this.problem = problem
    this.headers = headers
  }
}

export function badRequest(detail: string): ProblemError {
  return new ProblemError({ status: 400, title: 'Bad request', detail })
}

export const problemType = 'application/problem+json'

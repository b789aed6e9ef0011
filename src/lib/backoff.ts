// Retry delays as a pure function of the attempt; whether to retry at all is decided elsewhere.

/** Uniform in [0, 1), like Math.random. */
export type Random = () => number

export interface BackoffPolicy {
  /** Delay of the first retry, milliseconds, before jitter. */
  readonly baseMs: number
  /** Largest delay, milliseconds, jitter included. */
  readonly maxMs: number
  /** Share of the delay that is random, 0 to 1: 0.2 gives 80 to 100 % of it. */
  readonly jitter: number
}

/** Delay before retry number `attempt` (0 is the first), milliseconds: doubles each time up to the maximum. */
export function backoffDelayMs(policy: BackoffPolicy, attempt: number, random: Random): number {
  const full = Math.min(policy.maxMs, policy.baseMs * 2 ** Math.min(attempt, 52))
  return full * (1 - policy.jitter * random())
}

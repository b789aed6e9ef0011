// How single probe results become a verdict, as pure functions; no timers, no requests.
import type { Verdict } from '../api/probe.ts'

/** What one probe found, with the blame already laid. */
export type ProbeResult =
  | { readonly kind: 'success'; readonly latencyMs: number; readonly egressIP?: string }
  | { readonly kind: 'failure'; readonly reason: string; readonly message: string }
  /** The check's own target fails without the proxy too. */
  | { readonly kind: 'targetDown'; readonly message: string }

export interface Thresholds {
  readonly failureThreshold: number
  readonly successThreshold: number
  /** How long a proxy that never worked may fail before that is a verdict, milliseconds: it may still be starting. */
  readonly startupMs: number
}

/** Everything that the next verdict depends on. */
export interface HealthState {
  /** The last verdict that was about the proxy itself. */
  readonly decided: Exclude<Verdict, { kind: 'unknown' }>
  /** Why the check's target is down, while it is. */
  readonly targetDown?: string
  /** Results of the same kind in a row. */
  readonly successes: number
  readonly failures: number
}

export const initialHealth: HealthState = { decided: { kind: 'pending' }, successes: 0, failures: 0 }

export function verdictOf(state: HealthState): Verdict {
  if (state.targetDown === undefined) return state.decided
  return { kind: 'unknown', reason: 'TargetUnreachable', message: state.targetDown }
}

/**
 * The state after one more result.
 * @param ageMs time since the target is probed, milliseconds
 */
export function nextHealth(
  state: HealthState,
  result: ProbeResult,
  thresholds: Thresholds,
  ageMs: number,
): HealthState {
  const { decided } = state
  switch (result.kind) {
    case 'targetDown':
      // says nothing about the proxy: the counts stand still
      return { ...state, targetDown: result.message }
    case 'success': {
      const successes = state.successes + 1
      if (decided.kind !== 'healthy' && successes < thresholds.successThreshold) {
        return { decided, successes, failures: 0 }
      }
      const { latencyMs, egressIP } = result
      const healthy: Verdict = { kind: 'healthy', latencyMs, ...(egressIP === undefined ? {} : { egressIP }) }
      return { decided: healthy, successes, failures: 0 }
    }
    case 'failure': {
      const failures = state.failures + 1
      const starting = decided.kind === 'pending' && ageMs < thresholds.startupMs
      if (decided.kind !== 'unhealthy' && (starting || failures < thresholds.failureThreshold)) {
        return { decided, successes: 0, failures }
      }
      const { reason, message } = result
      return { decided: { kind: 'unhealthy', reason, message }, successes: 0, failures }
    }
  }
}

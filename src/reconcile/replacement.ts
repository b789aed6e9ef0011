// When an unhealthy instance is replaced (spec.healthCheck.replaceAfter), one at a time per provider; pure.
import { findCondition } from '../api/conditions.ts'
import { parseDurationMs } from '../api/duration.ts'
import { proxyConditions, type Proxy } from '../api/proxy.ts'
import type { World } from './world.ts'

export type ReplacementDue =
  | { readonly kind: 'never' }
  /** Unless it recovers, in so many milliseconds. */
  | { readonly kind: 'later'; readonly inMs: number }
  | { readonly kind: 'now' }

/** How soon it is looked again whether another replacement of the provider has ended, milliseconds. */
const turnRecheckMs = 10_000
/** Longer than a download, a boot and the user-data take: what ails all of a provider must not roll through them. */
const leastTurnMs = 1_800_000

/**
 * Since when it is unhealthy is read from the condition, which survives a restart. What the probes say now must agree: after a
 * restart, another port or other credentials they begin anew, and nothing is replaced for a verdict from before.
 */
export function replacementDue(world: World): ReplacementDue {
  const { nowMs, observation, proxy, status, verdict } = world
  const afterMs = replaceAfterMs(proxy)
  if (afterMs === undefined || verdict.kind !== 'unhealthy') return { kind: 'never' }
  if (status.observedGeneration !== proxy.metadata.generation) return { kind: 'never' }
  // what cannot be read may be in trouble with its host, and would not be deleted either
  if (observation.kind !== 'seen' || observation.instance.state !== 'running') return { kind: 'never' }
  const healthy = findCondition(status.conditions, proxyConditions.healthy)
  if (healthy?.status !== 'False') return { kind: 'never' }
  const { ip } = observation.instance
  // what the probes say is of another address
  if (ip !== undefined && status.ip !== undefined && ip !== status.ip) return { kind: 'never' }
  const sinceUnhealthyMs = Date.parse(healthy.lastTransitionTime) + afterMs - nowMs
  const inMs = Math.max(sinceUnhealthyMs, settleMs(proxy) - world.steadyForMs)
  if (inMs > 0) return { kind: 'later', inMs }
  return world.replacing === undefined ? { kind: 'now' } : { kind: 'later', inMs: turnRecheckMs }
}

/**
 * Whether the Proxy takes the turn of its provider: from when its unhealthy instance is to be deleted until the next one works.
 * One that does not come to that gives way after its own replaceAfter, or half an hour where that is longer.
 */
export function takesTurn(proxy: Proxy, nowMs: number): boolean {
  const { replacement } = proxy.status ?? {}
  if (replacement === undefined || proxy.metadata.deletionTimestamp !== undefined || proxy.spec.suspend) return false
  return nowMs < Date.parse(replacement.since) + Math.max(replaceAfterMs(proxy) ?? 0, leastTurnMs)
}

/** How long an instance must have been back, from a pause or with its host, before it is blamed: the probes' time to say so. */
function settleMs({ spec }: Proxy): number {
  const { failureThreshold, interval, timeout } = spec.healthCheck
  return failureThreshold * (parseDurationMs(interval) ?? 0) + (parseDurationMs(timeout) ?? 0)
}

function replaceAfterMs(proxy: Proxy): number | undefined {
  const { replaceAfter } = proxy.spec.healthCheck
  return replaceAfter === undefined ? undefined : parseDurationMs(replaceAfter)
}

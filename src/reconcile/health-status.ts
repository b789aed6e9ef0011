// The status of a ProviderHealth from one round of checks: pure functions; nothing is checked or written here.
import { setCondition } from '../api/conditions.ts'
import type { ProviderHealthStatus, TargetHealth as TargetStatus } from '../api/provider-health.ts'
import type { TargetHealth } from '../provider/contract.ts'

/** A round that changes nothing but times and latencies is written at most this often, milliseconds. */
export const rewriteEveryMs = 300_000

/** @param before the status so far: times of transitions and what is retained carry over */
export function healthStatus(
  before: ProviderHealthStatus,
  type: string,
  targets: readonly TargetHealth[],
  nowMs: number,
): ProviderHealthStatus {
  const now = new Date(nowMs).toISOString()
  const readyCount = targets.filter(({ ready }) => ready).length
  const ready = readyCount === targets.length
  const first = targets.find((target) => !target.ready)
  const condition = {
    type: 'Ready',
    status: ready ? ('True' as const) : ('False' as const),
    reason: first?.reason ?? 'Reachable',
    message: first === undefined ? 'all targets are ready' : `${first.name}: ${first.message}`,
  }
  return {
    ...before,
    type,
    ready,
    readyTargets: `${readyCount}/${targets.length}`,
    checkedAt: now,
    targets: targets.map((target) => targetStatus(before, target, now)),
    conditions: setCondition(before.conditions, condition, now),
  }
}

/** Whether a round is to be written: something but times and latencies changed, or the last write is long ago. */
export function isWorthWriting(before: ProviderHealthStatus | undefined, after: ProviderHealthStatus): boolean {
  if (before?.checkedAt === undefined || after.checkedAt === undefined) return true
  if (JSON.stringify(lasting(before)) !== JSON.stringify(lasting(after))) return true
  return Date.parse(after.checkedAt) - Date.parse(before.checkedAt) >= rewriteEveryMs
}

function targetStatus(before: ProviderHealthStatus, target: TargetHealth, now: string): TargetStatus {
  const { name, address, ready, reason, message, latencyMs, details } = target
  const old = before.targets?.find((other) => other.name === name)
  return {
    name,
    address,
    ready,
    reason,
    message,
    latencyMillis: Math.round(latencyMs),
    details: { ...details },
    lastTransitionTime: old?.ready === ready ? old.lastTransitionTime : now,
  }
}

/** What is worth a write, in an order that does not depend on the server's. */
function lasting(status: ProviderHealthStatus): unknown {
  const { type, ready, readyTargets, targets = [], conditions = [] } = status
  return [
    type,
    ready,
    readyTargets,
    targets.map(({ name, address, ready: up, reason, message, details = {} }) => [
      [name, address, up, reason, message],
      Object.entries(details).sort(([a], [b]) => (a < b ? -1 : 1)),
    ]),
    conditions.map((condition) => [condition.type, condition.status, condition.reason, condition.message]),
  ]
}

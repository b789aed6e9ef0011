// The parts that statuses of a Proxy are made of: conditions, phase, what is dropped together; pure, and nothing is decided here.
import { findCondition, removeCondition, setCondition, type ConditionStatus } from '../api/conditions.ts'
import { proxyConditions, type ProxyPhase, type ProxyStatus } from '../api/proxy.ts'
import { suspendReason, withSuspension } from './messages.ts'
import type { World } from './world.ts'

export function deleting(world: World, reason: string, message: string): ProxyStatus {
  const told = provisioned(acted(world, world.status), world, 'False', reason, message)
  const unknown = healthy(told, world, 'Unknown', 'Deleting', 'the proxy is being deleted')
  return phased(unknown, world, 'Deleting')
}

export function withoutAddress(status: ProxyStatus, world: World, phase: ProxyPhase): ProxyStatus {
  const { ip: _ip, endpoint: _endpoint, egressIP: _egressIP, ...rest } = status
  return phased(healthy(rest, world, 'Unknown', 'NoAddress', 'there is no address to probe'), world, phase)
}

export function withoutInstance(status: ProxyStatus): ProxyStatus {
  const { providerID: _id, instanceName: _name, intents: _intents, specHash: _hash, ...rest } = withoutLatch(status)
  const { ip: _ip, endpoint: _endpoint, egressIP: _egressIP, ...left } = without(rest, proxyConditions.outdated)
  // an unhealthy one is gone, and with it the reason to delete what is found from now on
  return left.replacement === undefined ? left : { ...left, replacement: { ...left.replacement, deleted: true } }
}

/** The instance that took the place of an unhealthy one works, or cannot be made: the next of the provider may be replaced. */
export function withoutReplacement(status: ProxyStatus): ProxyStatus {
  if (status.replacement?.deleted !== true) return status
  const { replacement: _replacement, ...rest } = status
  return rest
}

/** The status without that condition. */
export function without(status: ProxyStatus, type: string): ProxyStatus {
  if (findCondition(status.conditions, type) === undefined) return status
  return { ...status, conditions: removeCondition(status.conditions, type) }
}

export function withoutLatch(status: ProxyStatus): ProxyStatus {
  const { latch: _latch, ...rest } = status
  return rest
}

export function acted(world: World, status: ProxyStatus): ProxyStatus {
  const { generation } = world.proxy.metadata
  return generation === undefined ? status : { ...status, observedGeneration: generation }
}

export function phased(status: ProxyStatus, world: World, phase: ProxyPhase): ProxyStatus {
  const ready = phase === 'Ready'
  const message = ready ? 'the proxy works' : `the proxy is ${phase}`
  const reason = ready ? 'Healthy' : phase
  return { ...conditioned(status, world, proxyConditions.ready, ready ? 'True' : 'False', reason, message), phase }
}

/** While the spec says suspend that is the reason, and whatever else there is to say stands in the message. */
export function provisioned(
  status: ProxyStatus,
  world: World,
  value: ConditionStatus,
  reason: string,
  message: string,
): ProxyStatus {
  const { suspend } = world.proxy.spec
  const why = suspend ? suspendReason : reason
  return conditioned(
    status,
    world,
    proxyConditions.provisioned,
    value,
    why,
    suspend ? withSuspension(message) : message,
  )
}

export function healthy(
  status: ProxyStatus,
  world: World,
  value: ConditionStatus,
  reason: string,
  message: string,
): ProxyStatus {
  return conditioned(status, world, proxyConditions.healthy, value, reason, message)
}

/** Set while the instance is known to be made from something else than what is configured; what was not read now stands. */
export function outdated(status: ProxyStatus, world: World): ProxyStatus {
  const { observation } = world
  if (observation.kind !== 'seen') return status
  const message = observation.instance.outdated
  if (message === undefined) return without(status, proxyConditions.outdated)
  return conditioned(status, world, proxyConditions.outdated, 'True', 'ConfigChanged', message)
}

function conditioned(
  status: ProxyStatus,
  world: World,
  type: string,
  value: ConditionStatus,
  reason: string,
  message: string,
): ProxyStatus {
  const { generation } = world.proxy.metadata
  const update = {
    type,
    status: value,
    reason,
    message,
    ...(generation === undefined ? {} : { observedGeneration: generation }),
  }
  return { ...status, conditions: setCondition(status.conditions, update, new Date(world.nowMs).toISOString()) }
}

export function nameOf(world: World): string {
  return world.status.instanceName ?? world.instanceName
}

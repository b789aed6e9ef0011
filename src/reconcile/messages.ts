// Sentences for people that stand in conditions and Events; pure, and nothing secret comes in.
import { findCondition } from '../api/conditions.ts'
import { proxyConditions, type Proxy } from '../api/proxy.ts'
import { exhaustive } from '../lib/exhaustive.ts'
import type { RepairReason } from './decide.ts'
import type { Withheld } from './suspend.ts'
import type { Observation, OperationFailure, World } from './world.ts'

/** What failed, and which attempt it was. It changes with every attempt and never in between. */
export function describeFailure(failure: OperationFailure): string {
  const attempt = failure.failures === 1 ? '' : ` (attempt ${failure.failures})`
  return `${failure.error.message}${attempt}`
}

/** Why a running instance has no address yet. */
export function describeUnaddressed(name: string, observation: Observation): string {
  switch (observation.kind) {
    case 'failed':
      return `waiting for the address of instance ${name}; it could not be read: ${observation.error.message}`
    case 'seen':
      return observation.instance.state === 'running'
        ? `instance ${name} runs and has told no address yet`
        : `instance ${name} is ${observation.instance.state}`
    case 'unread':
    case 'gone':
      return `waiting for the address of instance ${name}`
  }
}

export function missingProviderMessage(proxy: Proxy): string {
  const provider = proxy.spec.provider ?? ''
  return `provider "${provider}" is not in the providers config: add it there, or delete the Proxy and name another`
}

/** Reason of the condition Provisioned while the spec says suspend. */
export const suspendReason = 'Suspended'

export function withSuspension(message: string): string {
  return `${message}; spec.suspend is true: nothing is changed on the hypervisor`
}

/** What would be done if the spec did not say suspend. */
export function describeWithheld(name: string, withheld: Withheld): string {
  switch (withheld) {
    case 'create':
      return `instance ${name} is not created`
    case 'start':
      return `instance ${name} is stopped and not started`
    case 'createAgain':
      return `instance ${name} is gone and not created again`
    case 'replace':
      return `instance ${name} is not replaced`
    case 'delete':
      return `instance ${name} is not deleted`
    default:
      return exhaustive(withheld)
  }
}

/** Why a repair waits. It does not change while it waits. */
export function describeRepair(name: string, why: RepairReason): string {
  return why === 'gone'
    ? `instance ${name} is gone again soon after it was created: it is created again after a pause`
    : `instance ${name} stopped again soon after it was started: it is started again after a pause`
}

/** How long it was unhealthy, and why. */
export function describeReplacement({ proxy, status }: World, name: string): string {
  const healthy = findCondition(status.conditions, proxyConditions.healthy)
  const after = proxy.spec.healthCheck.replaceAfter
  if (healthy?.status !== 'False' || after === undefined) return `replacing instance ${name}, which was unhealthy`
  return `replacing instance ${name}, which was unhealthy for ${after} (${healthy.reason}: ${healthy.message})`
}

/** Whose the address is that the instance reports; undefined when it may have it. */
export function describeTaken({ observation, status, taken }: World, name: string): string | undefined {
  if (observation.kind !== 'seen' || observation.instance.state === 'stopped') return undefined
  const ip = observation.instance.ip ?? status.ip
  const holder = ip === undefined ? undefined : taken[ip]
  if (ip === undefined || holder === undefined) return undefined
  return `instance ${name} reports the address ${ip}, which Proxy ${holder} has: it is not used while that is so`
}

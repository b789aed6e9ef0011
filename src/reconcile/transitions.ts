// The Events that tell people what happened to a Proxy: a pure function from what was decided; sending is elsewhere.
import { findCondition } from '../api/conditions.ts'
import { proxyConditions, type ProxyStatus } from '../api/proxy.ts'
import type { EventNote } from '../kube/events.ts'
import { exhaustive } from '../lib/exhaustive.ts'
import { isUnadopted, type AbandonedInstance, type Action, type CreateReason, type DeleteReason } from './decide.ts'
import {
  describeFailure,
  describeRepair,
  describeReplacement,
  describeTaken,
  missingProviderMessage,
  suspendReason,
  withSuspension,
} from './messages.ts'
import type { World } from './world.ts'

/** What is to be told about an action that was done, given the status before and after it. */
export function eventsFor(world: World, action: Action, after: ProxyStatus): readonly EventNote[] {
  return [...suspensionEvents(world, action, after), ...actionEvents(world, action, after)]
}

function actionEvents(world: World, action: Action, after: ProxyStatus): readonly EventNote[] {
  const name = world.status.instanceName ?? world.instanceName
  switch (action.kind) {
    case 'forget':
    case 'addFinalizer':
      return []
    case 'letGo':
      return letGoEvents(world, action.why, name)
    case 'startCreate':
      return createEvents(world, action.why)
    case 'startDelete':
      return [deleteEvent(world, action.why, name)]
    case 'adopt':
      return [normal('InstanceCreated', `instance ${name} runs (${action.providerID})`)]
    case 'clear':
      return [...action.abandoned.map(abandonedEvent), normal('InstanceDeleted', `instance ${name} is gone`)]
    case 'release':
      if (world.operation.kind !== 'deleted') return []
      return [...action.abandoned.map(abandonedEvent), normal('InstanceDeleted', `instance ${name} is gone`)]
    case 'latch':
      return [warning(action.error.code, action.error.message)]
    case 'watch':
      return [
        ...watchEvents(world, action.concern),
        ...adoptionEvents(world, name),
        ...instanceEvents(world, after),
        ...healthEvents(world, after),
      ]
    case 'probe':
      return healthEvents(world, after)
    case 'hold':
      return [...holdEvents(world, action.hold), ...instanceEvents(world, after), ...healthEvents(world, after)]
    default:
      return exhaustive(action)
  }
}

function letGoEvents(world: World, why: Extract<Action, { kind: 'letGo' }>['why'], name: string): EventNote[] {
  switch (why) {
    case 'specChanged':
      return [normal('CreateAborted', `the spec changed while instance ${name} was being created`)]
    case 'suspend':
      return world.operation.kind === 'deleting'
        ? [normal('DeleteAborted', `spec.suspend became true while instance ${name} was being deleted`)]
        : [normal('CreateAborted', `spec.suspend became true while instance ${name} was being created`)]
    case 'deletion':
    case 'otherObject':
      return []
    default:
      return exhaustive(why)
  }
}

/** When it is suspended, what waits for its end, and its end. */
function suspensionEvents(world: World, action: Action, after: ProxyStatus): EventNote[] {
  const before = findCondition(world.status.conditions, proxyConditions.provisioned)
  const now = findCondition(after.conditions, proxyConditions.provisioned)
  if (now?.reason === suspendReason) {
    const waits = action.kind === 'hold' && action.hold.on === 'suspend' && before?.message !== now.message
    return waits || before?.reason !== suspendReason ? [normal(suspendReason, now.message)] : []
  }
  return before?.reason === suspendReason ? [normal('Resumed', 'spec.suspend is false again')] : []
}

function createEvents(world: World, why: CreateReason): EventNote[] {
  const name = world.status.instanceName ?? world.instanceName
  switch (why) {
    case 'new':
      // attempts after failures were told as failures
      return world.operation.kind === 'createFailed' ? [] : [normal('Creating', `creating instance ${name}`)]
    case 'retry':
      return [normal('Retrying', `trying again to create instance ${name}`)]
    case 'gone':
      return [warning('InstanceGone', `instance ${name} is gone from its host: creating it again`)]
    case 'stopped':
      return [warning('InstanceStopped', `instance ${name} was stopped: starting it`)]
    case 'unadopted':
      return [normal('Adopting', `instance ${name} has the mark of another type: giving it the provider's own`)]
    default:
      return exhaustive(why)
  }
}

function adoptionEvents(world: World, name: string): EventNote[] {
  const { operation } = world
  if (operation.kind !== 'createFailed' || !isUnadopted(world)) return []
  const { message } = operation.failure.error
  return [warning('AdoptionFailed', `instance ${name} keeps the mark of another type: ${message}`)]
}

function deleteEvent(world: World, why: DeleteReason, name: string): EventNote {
  switch (why) {
    case 'deletion':
      return normal('Deleting', `deleting instance ${name}`)
    case 'specChanged':
      return normal('Replacing', `the spec changed: replacing instance ${name}`)
    case 'userDataChanged':
      return normal('UserDataChanged', `the user-data in the Secret changed: replacing instance ${name}`)
    case 'markDiffers':
      return warning('MarkDiffers', `instance ${name} was made from another spec than recorded: replacing it`)
    case 'unhealthy':
      return warning('ReplacingUnhealthy', describeReplacement(world, name))
    default:
      return exhaustive(why)
  }
}

function holdEvents(world: World, hold: Extract<Action, { kind: 'hold' }>['hold']): EventNote[] {
  switch (hold.on) {
    case 'backoff':
    case 'deleteBackoff':
      return isNew(world, hold.failure.error.code, describeFailure(hold.failure))
    case 'quota':
      return isNew(world, 'QuotaExceeded', describeFailure(hold.failure))
    case 'providerMissing':
      return isNew(world, 'ProviderNotConfigured', missingProviderMessage(world.proxy))
    case 'userData':
      return isNew(world, hold.reason, hold.message)
    case 'repair': {
      const reason = hold.why === 'gone' ? 'InstanceGone' : 'InstanceStopped'
      return isNew(world, reason, describeRepair(world.status.instanceName ?? world.instanceName, hold.why))
    }
    case 'suspend':
    case 'creating':
    case 'deleting':
    case 'lettingGo':
    case 'latch':
    case 'unmanaged':
      return []
    default:
      return exhaustive(hold)
  }
}

function watchEvents(world: World, concern?: { readonly reason: string; readonly message: string }): EventNote[] {
  if (concern !== undefined) return isNew(world, concern.reason, concern.message)
  const { observation } = world
  if (observation.kind === 'failed' && observation.error.kind === 'permanent') {
    return [warning(observation.error.code, observation.error.message)]
  }
  if (observation.kind !== 'seen') return []
  const name = world.status.instanceName ?? world.instanceName
  if (observation.instance.state === 'paused') {
    return isNew(world, 'InstancePaused', `instance ${name} is paused: resume it on the host`)
  }
  const taken = describeTaken(world, name)
  return taken === undefined ? [] : isNew(world, 'AddressTaken', taken)
}

/** What became known of the instance, whatever else is done about it. */
function instanceEvents({ status }: World, after: ProxyStatus): EventNote[] {
  const notes: EventNote[] = []
  if (after.ip !== undefined && after.ip !== status.ip) {
    const moved =
      status.ip === undefined
        ? normal('AddressAssigned', `the instance has address ${after.ip}`)
        : normal('AddressChanged', `the address changed from ${status.ip} to ${after.ip}`)
    notes.push(moved)
  }
  const outdated = findCondition(after.conditions, proxyConditions.outdated)
  const before = findCondition(status.conditions, proxyConditions.outdated)
  if (outdated !== undefined && outdated.message !== before?.message) notes.push(warning('Outdated', outdated.message))
  return notes
}

/** Healthy as it was and as it is: only a change of its reason is told. */
function healthEvents(world: World, after: ProxyStatus): EventNote[] {
  const before = findCondition(world.status.conditions, proxyConditions.healthy)
  const now = findCondition(after.conditions, proxyConditions.healthy)
  if (now === undefined || (before?.status === now.status && before.reason === now.reason)) return []
  switch (now.status) {
    case 'True':
      return [normal('Healthy', `${after.endpoint ?? 'the proxy'} works`)]
    case 'False':
      return [warning('Unhealthy', `${now.reason}: ${now.message}`)]
    case 'Unknown':
      return ['NoAddress', 'NotProbed', 'Deleting'].includes(now.reason) ? [] : [warning(now.reason, now.message)]
  }
}

/** A failure that the Provisioned condition does not tell yet. */
function isNew(world: World, reason: string, message: string): EventNote[] {
  const before = findCondition(world.status.conditions, proxyConditions.provisioned)
  const { suspend } = world.proxy.spec
  const isTold = suspend
    ? before?.reason === suspendReason && before.message === withSuspension(message)
    : before?.reason === reason && before.message === message
  return isTold ? [] : [warning(reason, message)]
}

function abandonedEvent({ target, instanceName }: AbandonedInstance): EventNote {
  const message = `instance ${instanceName} was left on ${target}, which is no longer configured; it is collected should ${target} come back`
  return warning('InstanceAbandoned', message)
}

function normal(reason: string, message: string): EventNote {
  return { type: 'Normal', reason, message }
}

function warning(reason: string, message: string): EventNote {
  return { type: 'Warning', reason, message }
}

// The Events that tell people what happened to a Proxy: a pure function from what was decided; sending is elsewhere.
import { findCondition } from '../api/conditions.ts'
import { proxyConditions, type ProxyStatus } from '../api/proxy.ts'
import type { EventNote } from '../kube/events.ts'
import { exhaustive } from '../lib/exhaustive.ts'
import type { AbandonedInstance, Action, CreateReason, DeleteReason } from './decide.ts'
import { describeFailure, missingProviderMessage } from './messages.ts'
import type { World } from './world.ts'

/** What is to be told about an action that was done, given the status before and after it. */
export function eventsFor(world: World, action: Action, after: ProxyStatus): readonly EventNote[] {
  const name = world.status.instanceName ?? world.instanceName
  switch (action.kind) {
    case 'forget':
    case 'addFinalizer':
      return []
    case 'letGo':
      return action.why === 'specChanged'
        ? [normal('CreateAborted', `the spec changed while instance ${name} was being created`)]
        : []
    case 'startCreate':
      return createEvents(world, action.why)
    case 'startDelete':
      return [deleteEvent(action.why, name)]
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
      return [...watchEvents(world, action.concern), ...healthEvents(world, after)]
    case 'hold':
      return [...holdEvents(world, action.hold), ...healthEvents(world, after)]
    default:
      return exhaustive(action)
  }
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
    default:
      return exhaustive(why)
  }
}

function deleteEvent(why: DeleteReason, name: string): EventNote {
  switch (why) {
    case 'deletion':
      return normal('Deleting', `deleting instance ${name}`)
    case 'specChanged':
      return normal('Replacing', `the spec changed: replacing instance ${name}`)
    case 'userDataChanged':
      return normal('UserDataChanged', `the user-data in the Secret changed: replacing instance ${name}`)
    case 'markDiffers':
      return warning('MarkDiffers', `instance ${name} was made from another spec than recorded: replacing it`)
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
  const { observation, status } = world
  if (observation.kind === 'failed' && observation.error.kind === 'permanent') {
    return [warning(observation.error.code, observation.error.message)]
  }
  if (observation.kind !== 'seen') return []
  const { ip, state } = observation.instance
  if (state === 'paused') return isNew(world, 'InstancePaused', 'the instance is paused: resume it on the host')
  if (ip === undefined || ip === status.ip) return []
  const moved =
    status.ip === undefined ? `the instance has address ${ip}` : `the address changed from ${status.ip} to ${ip}`
  return [normal(status.ip === undefined ? 'AddressAssigned' : 'AddressChanged', moved)]
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
  return before?.reason === reason && before.message === message ? [] : [warning(reason, message)]
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

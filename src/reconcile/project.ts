// The status a Proxy gets for the action decided: a pure function; nothing is written here.
import { proxyConditions, type ProxyPhase, type ProxyStatus } from '../api/proxy.ts'
import { setCondition, type ConditionStatus } from '../api/conditions.ts'
import { exhaustive } from '../lib/exhaustive.ts'
import type { Action, CreateReason, Hold } from './decide.ts'
import { endpointOf } from './endpoint.ts'
import { describeFailure, describeUnaddressed, missingProviderMessage } from './messages.ts'
import type { Probing, World } from './world.ts'

/** The world with what the probes say, which no action depends on. */
export type SeenWorld = World & { readonly probing: Probing }

/** The next status. Equal to the present one, in depth, when nothing is to be written. */
export function project(world: SeenWorld, action: Action): ProxyStatus {
  const { status } = world
  switch (action.kind) {
    case 'forget':
    case 'addFinalizer':
    case 'release':
      return status
    case 'letGo':
      return action.why === 'deletion' ? deleting(world, 'Deleting', 'ending what is in progress') : status
    case 'adopt':
      return withoutLatch({ ...status, providerID: action.providerID, specHash: action.specHash })
    case 'clear':
      return withoutInstance(status)
    case 'startCreate':
      return starting(world, action.specHash, action.why)
    case 'startDelete': {
      if (action.why === 'deletion') return deleting(world, 'Deleting', `deleting instance ${nameOf(world)}`)
      const told = provisioned(acted(world, status), world, 'False', 'Replacing', `replacing instance ${nameOf(world)}`)
      return withoutAddress(told, world, 'Provisioning')
    }
    case 'latch': {
      const { code, message } = action.error
      const told = provisioned({ ...acted(world, status), latch: action.latch }, world, 'False', code, message)
      return withoutAddress(told, world, 'Failed')
    }
    case 'watch':
      return watching(world, action.concern)
    case 'hold':
      return holding(world, action.hold)
    default:
      return exhaustive(action)
  }
}

/** The address that is good: what was read last, and where that told none, the last one that was. */
export function addressOf(world: World): string | undefined {
  const { observation, status } = world
  if (status.providerID === undefined || observation.kind === 'gone') return undefined
  if (observation.kind !== 'seen') return status.ip
  if (observation.instance.state === 'stopped') return undefined
  return observation.instance.ip ?? status.ip
}

function holding(world: SeenWorld, hold: Hold): ProxyStatus {
  const { status } = world
  switch (hold.on) {
    case 'unmanaged':
    case 'lettingGo':
      return status
    case 'creating':
      // the message of the start stands until there is progress to tell
      if (hold.progress === undefined) return acted(world, status)
      return provisioned(acted(world, status), world, 'False', 'Creating', hold.progress)
    case 'deleting':
      return world.proxy.metadata.deletionTimestamp === undefined
        ? status
        : deleting(world, 'Deleting', `deleting instance ${nameOf(world)}`)
    case 'backoff':
    case 'quota': {
      const { error } = hold.failure
      const reason = hold.on === 'quota' ? 'QuotaExceeded' : error.code
      const told = provisioned(acted(world, status), world, 'False', reason, describeFailure(hold.failure))
      return withoutAddress(told, world, 'Provisioning')
    }
    case 'deleteBackoff': {
      const message = describeFailure(hold.failure)
      if (world.proxy.metadata.deletionTimestamp !== undefined) return deleting(world, hold.failure.error.code, message)
      const told = provisioned(acted(world, status), world, 'False', hold.failure.error.code, message)
      return withoutAddress(told, world, 'Provisioning')
    }
    case 'latch': {
      const { code, message } = hold.latch
      const told = provisioned(acted(world, status), world, 'False', code, message ?? code)
      return withoutAddress(told, world, 'Failed')
    }
    case 'providerMissing': {
      const message = missingProviderMessage(world.proxy)
      if (world.proxy.metadata.deletionTimestamp !== undefined) return deleting(world, 'ProviderNotConfigured', message)
      if (status.providerID === undefined) {
        const told = provisioned(acted(world, status), world, 'False', 'ProviderNotConfigured', message)
        return withoutAddress(told, world, 'Failed')
      }
      // what is known of the instance stands, and it goes on being probed
      const kept = addressed(acted(world, status), world)
      return provisioned(kept, world, 'Unknown', 'ProviderNotConfigured', message)
    }
    case 'userData': {
      const told = provisioned(acted(world, status), world, 'False', hold.reason, hold.message)
      return withoutAddress(told, world, status.intents === undefined ? 'Pending' : 'Provisioning')
    }
    default:
      return exhaustive(hold)
  }
}

function starting(world: World, specHash: string, why: CreateReason): ProxyStatus {
  const { providerID, ...rest } = acted(world, world.status)
  const verb = why === 'stopped' ? 'starting' : 'creating'
  // a stopped instance is still the one that was recorded; one that is gone is not
  const kept = why === 'stopped' && providerID !== undefined ? { ...rest, providerID } : rest
  const next = { ...kept, specHash, instanceName: world.instanceName }
  // after a failure its message stands until the attempt has told something else
  const before = world.operation.kind === 'createFailed'
  const told = before ? next : provisioned(next, world, 'False', 'Creating', `${verb} instance ${world.instanceName}`)
  return withoutAddress(told, world, 'Provisioning')
}

function watching(world: SeenWorld, concern?: { readonly reason: string; readonly message: string }): ProxyStatus {
  const { observation } = world
  const status = addressed(withoutLatch(acted(world, world.status)), world)
  const name = nameOf(world)
  if (concern !== undefined) {
    return provisioned(status, world, 'Unknown', concern.reason, `${concern.message}; instance ${name} is kept`)
  }
  if (observation.kind === 'seen' && observation.instance.state === 'paused') {
    return provisioned(status, world, 'False', 'InstancePaused', `instance ${name} is paused: resume it on the host`)
  }
  if (status.ip === undefined) {
    return provisioned(status, world, 'False', 'WaitingForAddress', describeUnaddressed(name, observation))
  }
  return provisioned(status, world, 'True', 'InstanceRunning', `instance ${name} runs at ${status.ip}`)
}

/** Address, endpoint, health and phase of an instance that is, or may be, there. */
function addressed(status: ProxyStatus, world: SeenWorld): ProxyStatus {
  const ip = addressOf(world)
  if (ip === undefined) return withoutAddress(status, world, 'Provisioning')
  const endpoint = endpointOf(ip, world.proxy.spec.port)
  const moved = status.endpoint !== endpoint
  const wasReady = !moved && world.status.phase === 'Ready'
  const { egressIP: oldEgressIP, ...rest } = status
  const next = { ...rest, ip, endpoint }
  const keep = moved || oldEgressIP === undefined ? {} : { egressIP: oldEgressIP }
  const { probing } = world
  if (probing.kind === 'impossible') {
    const told = healthy({ ...next, ...keep }, world, 'Unknown', probing.reason, probing.message)
    return phased(told, world, wasReady ? 'Ready' : 'Running')
  }
  const { verdict } = probing
  switch (verdict.kind) {
    case 'pending': {
      // probing began anew, for example after a restart: the last verdict stands as long as the endpoint does
      if (!moved) return phased({ ...next, ...keep }, world, wasReady ? 'Ready' : 'Running')
      return phased(
        healthy({ ...next, ...keep }, world, 'Unknown', 'NotProbed', 'the first probe is on its way'),
        world,
        'Running',
      )
    }
    case 'healthy': {
      const egress = verdict.egressIP === undefined ? keep : { egressIP: verdict.egressIP }
      const told = healthy(
        { ...next, ...egress },
        world,
        'True',
        'ProbeSucceeded',
        'a request through the proxy succeeded',
      )
      return phased(told, world, 'Ready')
    }
    case 'unhealthy':
      return phased(healthy({ ...next, ...keep }, world, 'False', verdict.reason, verdict.message), world, 'Running')
    case 'unknown': {
      const told = healthy({ ...next, ...keep }, world, 'Unknown', verdict.reason, verdict.message)
      return phased(told, world, wasReady ? 'Ready' : 'Running')
    }
    default:
      return exhaustive(verdict)
  }
}

function deleting(world: World, reason: string, message: string): ProxyStatus {
  const told = provisioned(acted(world, world.status), world, 'False', reason, message)
  const unknown = healthy(told, world, 'Unknown', 'Deleting', 'the proxy is being deleted')
  return phased(unknown, world, 'Deleting')
}

function withoutAddress(status: ProxyStatus, world: World, phase: ProxyPhase): ProxyStatus {
  const { ip: _ip, endpoint: _endpoint, egressIP: _egressIP, ...rest } = status
  return phased(healthy(rest, world, 'Unknown', 'NoAddress', 'there is no address to probe'), world, phase)
}

function withoutInstance(status: ProxyStatus): ProxyStatus {
  const { providerID: _id, instanceName: _name, intents: _intents, specHash: _hash, ...rest } = withoutLatch(status)
  const { ip: _ip, endpoint: _endpoint, egressIP: _egressIP, ...left } = rest
  return left
}

function withoutLatch(status: ProxyStatus): ProxyStatus {
  const { latch: _latch, ...rest } = status
  return rest
}

function acted(world: World, status: ProxyStatus): ProxyStatus {
  const { generation } = world.proxy.metadata
  return generation === undefined ? status : { ...status, observedGeneration: generation }
}

function phased(status: ProxyStatus, world: World, phase: ProxyPhase): ProxyStatus {
  const ready = phase === 'Ready'
  const message = ready ? 'the proxy works' : `the proxy is ${phase}`
  const reason = ready ? 'Healthy' : phase
  return { ...conditioned(status, world, proxyConditions.ready, ready ? 'True' : 'False', reason, message), phase }
}

function provisioned(status: ProxyStatus, world: World, value: ConditionStatus, reason: string, message: string) {
  return conditioned(status, world, proxyConditions.provisioned, value, reason, message)
}

function healthy(status: ProxyStatus, world: World, value: ConditionStatus, reason: string, message: string) {
  return conditioned(status, world, proxyConditions.healthy, value, reason, message)
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

function nameOf(world: World): string {
  return world.status.instanceName ?? world.instanceName
}

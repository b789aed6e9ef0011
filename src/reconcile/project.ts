// The status a Proxy gets for the action decided: a pure function; nothing is written here.
import { isIP } from 'node:net'
import { findCondition } from '../api/conditions.ts'
import { isExternal, proxyConditions, type ProxyStatus } from '../api/proxy.ts'
import { exhaustive } from '../lib/exhaustive.ts'
import { isRecorded, type Action, type CreateReason, type Hold } from './decide.ts'
import { endpointOf } from './endpoint.ts'
import {
  describeFailure,
  describeRepair,
  describeReplacement,
  describeTaken,
  describeUnaddressed,
  describeWithheld,
  missingProviderMessage,
  suspendReason,
} from './messages.ts'
import {
  acted,
  deleting,
  healthy,
  nameOf,
  outdated,
  phased,
  provisioned,
  without,
  withoutAddress,
  withoutInstance,
  withoutLatch,
  withoutReplacement,
} from './status-parts.ts'
import type { Probing, World } from './world.ts'

/** The world with what the probes say, which no action depends on. */
export type SeenWorld = World & { readonly probing: Probing }

/** The next status. Equal to the present one, in depth, when nothing is to be written. */
export function project(world: SeenWorld, action: Action): ProxyStatus {
  const { status } = world
  switch (action.kind) {
    case 'forget':
      // somebody else's finalizer keeps it, and nobody is to use it any more
      return isExternal(world.proxy.spec) ? phased(acted(world, status), world, 'Deleting') : status
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
      const name = nameOf(world)
      if (action.why === 'deletion') return deleting(world, 'Deleting', `deleting instance ${name}`)
      const begun = acted(world, status)
      if (action.why !== 'unhealthy') {
        const told = provisioned(begun, world, 'False', 'Replacing', `replacing instance ${name}`)
        return withoutAddress(told, world, 'Provisioning')
      }
      const since = new Date(world.nowMs).toISOString()
      const replacement = status.replacement?.deleted === false ? status.replacement : { since, deleted: false }
      const told = provisioned({ ...begun, replacement }, world, 'False', 'Replacing', describeReplacement(world, name))
      return withoutAddress(told, world, 'Provisioning')
    }
    case 'latch': {
      const { code, message } = action.error
      const failed = { ...withoutReplacement(acted(world, status)), latch: action.latch }
      return withoutAddress(provisioned(failed, world, 'False', code, message), world, 'Failed')
    }
    case 'watch':
      return watching(world, action.concern)
    case 'probe':
      return external(world)
    case 'hold':
      return holding(world, action.hold)
    default:
      return exhaustive(action)
  }
}

/** The address that is good: what was read last, and where that told none, the last one that was; never one that is taken. */
export function addressOf(world: World): string | undefined {
  const { observation, status, taken } = world
  if (status.providerID === undefined || observation.kind === 'gone') return undefined
  const isFree = (ip: string | undefined) => ip !== undefined && taken[ip] === undefined
  const last = isFree(status.ip) ? status.ip : undefined
  if (observation.kind !== 'seen') return last
  if (observation.instance.state === 'stopped') return undefined
  const { ip } = observation.instance
  if (ip === undefined) return last
  // the last one is not its own any more
  return isFree(ip) ? ip : undefined
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
    case 'repair': {
      const reason = hold.why === 'gone' ? 'InstanceGone' : 'InstanceStopped'
      const told = provisioned(acted(world, status), world, 'False', reason, describeRepair(nameOf(world), hold.why))
      return withoutAddress(told, world, 'Provisioning')
    }
    case 'suspend': {
      const message = describeWithheld(nameOf(world), hold.withheld)
      if (world.proxy.metadata.deletionTimestamp !== undefined) return deleting(world, suspendReason, message)
      const kept = addressed(acted(world, status), world)
      const told = provisioned(kept, world, kept.ip === undefined ? 'False' : 'True', suspendReason, message)
      if (kept.ip !== undefined || (status.latch === undefined && isRecorded(status))) return told
      return phased(told, world, status.latch === undefined ? 'Pending' : 'Failed')
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
  // only its mark changes: it goes on working
  if (why === 'unadopted') return { ...acted(world, world.status), specHash }
  const { providerID, ...rest } = acted(world, world.status)
  const verb = why === 'stopped' ? 'starting' : 'creating'
  // a stopped instance is still the one that was recorded; one that is gone is not
  const kept = why === 'stopped' && providerID !== undefined ? { ...rest, providerID } : rest
  const next = { ...kept, specHash, instanceName: world.instanceName }
  // after a failure its message stands until the attempt has told something else
  const said = findCondition(world.status.conditions, proxyConditions.provisioned)
  const before = world.operation.kind === 'createFailed' && said?.reason !== suspendReason
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
  const taken = describeTaken(world, name)
  if (taken !== undefined) {
    const kept = status.ip === undefined ? 'False' : 'Unknown'
    return provisioned(status, world, kept, 'AddressTaken', taken)
  }
  if (status.ip === undefined) {
    return provisioned(status, world, 'False', 'WaitingForAddress', describeUnaddressed(name, observation))
  }
  return provisioned(status, world, 'True', 'InstanceRunning', `instance ${name} runs at ${status.ip}`)
}

/** Address, endpoint, health and phase of an instance that is, or may be, there. */
function addressed(status: ProxyStatus, world: SeenWorld): ProxyStatus {
  const ip = addressOf(world)
  const told = outdated(status, world)
  if (ip === undefined) return withoutAddress(told, world, 'Provisioning')
  return probed({ ...told, ip }, world, ip)
}

/** An endpoint that already exists: there is no instance, and its address is what the spec says. */
function external(world: SeenWorld): ProxyStatus {
  const { spec } = world.proxy
  if (!isExternal(spec)) return world.status
  const { ip: _ip, ...status } = without(acted(world, world.status), proxyConditions.provisioned)
  return probed(isIP(spec.host) === 0 ? status : { ...status, ip: spec.host }, world, spec.host)
}

/** Endpoint, health and phase of what is probed at `host`. */
function probed(status: ProxyStatus, world: SeenWorld, host: string): ProxyStatus {
  const endpoint = endpointOf(host, world.proxy.spec.port)
  const moved = status.endpoint !== endpoint
  const wasReady = !moved && world.status.phase === 'Ready'
  const { egressIP: oldEgressIP, ...rest } = status
  const next = { ...rest, endpoint }
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
      // one that works again is not replaced either: where its delete had begun it is not probed
      const { replacement: _replacement, ...kept } = told
      return phased(kept, world, 'Ready')
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

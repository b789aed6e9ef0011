// What to do next about one Proxy: a pure function from the world as it is seen to one action; it does nothing itself.
import { proxyFinalizer } from '../api/group.ts'
import { isExternal, isManaged, type ProxyLatch, type ProxyStatus } from '../api/proxy.ts'
import { exhaustive } from '../lib/exhaustive.ts'
import type { ProviderError } from '../provider/errors.ts'
import { latchEnded, latchFrom, latchRetryInMs } from './latch.ts'
import { replacementDue } from './replacement.ts'
import { hashesDiffer } from './spec-hash.ts'
import { suspended, type Withheld } from './suspend.ts'
import type { OperationFailure, World } from './world.ts'

export type CreateReason = 'new' | 'retry' | 'unadopted' | RepairReason
export type RepairReason = 'gone' | 'stopped'
export type DeleteReason = 'deletion' | 'specChanged' | 'userDataChanged' | 'markDiffers' | 'unhealthy'

/** Why nothing is done for now. */
export type Hold =
  | { readonly on: 'creating'; readonly progress?: string }
  | { readonly on: 'deleting' }
  | { readonly on: 'lettingGo' }
  | { readonly on: 'backoff'; readonly failure: OperationFailure }
  | { readonly on: 'quota'; readonly failure: OperationFailure }
  | { readonly on: 'deleteBackoff'; readonly failure: OperationFailure }
  /** What was made or started just now is stopped or gone again. */
  | { readonly on: 'repair'; readonly why: RepairReason; readonly retryInMs: number }
  | { readonly on: 'latch'; readonly latch: ProxyLatch; readonly retryInMs?: number }
  | { readonly on: 'suspend'; readonly withheld: Withheld }
  | { readonly on: 'providerMissing' }
  | { readonly on: 'userData'; readonly reason: string; readonly message: string }
  | { readonly on: 'unmanaged' }

export type Action =
  /** Nothing of the object is ours (any more). */
  | { readonly kind: 'forget' }
  | { readonly kind: 'addFinalizer' }
  /** End the operation in flight, and wait until it let go. */
  | { readonly kind: 'letGo'; readonly why: 'deletion' | 'specChanged' | 'suspend' | 'otherObject' }
  | { readonly kind: 'startCreate'; readonly specHash: string; readonly why: CreateReason }
  | { readonly kind: 'startDelete'; readonly why: DeleteReason }
  /** Write down what a create returned. */
  | { readonly kind: 'adopt'; readonly specHash: string; readonly providerID: string }
  /** The instance to be replaced is gone: forget what was recorded of it. */
  | { readonly kind: 'clear'; readonly abandoned: readonly AbandonedInstance[] }
  | { readonly kind: 'latch'; readonly latch: ProxyLatch; readonly error: ProviderError }
  /** Nothing is left: the finalizer can go. */
  | { readonly kind: 'release'; readonly abandoned: readonly AbandonedInstance[] }
  /** Observe and probe the instance; nothing is to be changed. */
  | {
      readonly kind: 'watch'
      readonly concern?: { readonly reason: string; readonly message: string }
      /** Milliseconds until time alone may change that. */
      readonly recheckInMs?: number
    }
  /** Probe what the operator does not own. */
  | { readonly kind: 'probe' }
  | { readonly kind: 'hold'; readonly hold: Hold }

/** How soon an address is asked for again that another Proxy has, milliseconds. */
const takenRecheckMs = 10_000

export interface AbandonedInstance {
  readonly target: string
  readonly instanceName: string
}

/** Whether a hypervisor may hold anything for the object. An intent is recorded before the first mutation. */
export function isRecorded(status: ProxyStatus): boolean {
  return status.providerID !== undefined || (status.intents?.length ?? 0) > 0
}

export function decide(world: World): Action {
  // the successor waits until the operation of its predecessor let go: both would use the same instance name
  if (world.predecessorBusy) return { kind: 'letGo', why: 'otherObject' }
  const action = decideUnsuspended(world)
  return world.proxy.spec.suspend ? suspended(world, action) : action
}

function decideUnsuspended(world: World): Action {
  const { metadata, spec } = world.proxy
  const guarded = metadata.finalizers?.includes(proxyFinalizer) === true
  if (metadata.deletionTimestamp !== undefined) return guarded ? decideDeletion(world) : { kind: 'forget' }
  if (isExternal(spec)) return { kind: 'probe' }
  if (!isManaged(spec)) return { kind: 'hold', hold: { on: 'unmanaged' } }
  return guarded ? decideOperation(world) : { kind: 'addFinalizer' }
}

function decideDeletion(world: World): Action {
  const { operation, provider, status } = world
  switch (operation.kind) {
    case 'creating':
      return operation.lettingGo ? { kind: 'hold', hold: { on: 'lettingGo' } } : { kind: 'letGo', why: 'deletion' }
    case 'deleting':
      return { kind: 'hold', hold: { on: operation.lettingGo ? 'lettingGo' : 'deleting' } }
    case 'deleted':
      return { kind: 'release', abandoned: operation.abandoned }
    case 'deleteFailed':
      if (provider.kind === 'configured' && operation.failure.retryInMs > 0) {
        return { kind: 'hold', hold: { on: 'deleteBackoff', failure: operation.failure } }
      }
      break
    case 'created':
      // recorded first, so that a crash during the delete does not forget it
      if (status.providerID !== operation.providerID) {
        return { kind: 'adopt', specHash: operation.specHash, providerID: operation.providerID }
      }
      break
    case 'idle':
    case 'createFailed':
      break
    default:
      return exhaustive(operation)
  }
  if (!isRecorded(status)) return { kind: 'release', abandoned: [] }
  if (provider.kind === 'missing') return { kind: 'hold', hold: { on: 'providerMissing' } }
  return { kind: 'startDelete', why: 'deletion' }
}

/** What an operation, in flight or just ended, asks for; where it asks for nothing, what the instance asks for. */
function decideOperation(world: World): Action {
  const { operation, desired } = world
  const outdated = (specHash: string) => desired.kind === 'known' && hashesDiffer(specHash, desired.specHash)
  switch (operation.kind) {
    case 'creating': {
      if (operation.lettingGo) return { kind: 'hold', hold: { on: 'lettingGo' } }
      if (outdated(operation.specHash)) return { kind: 'letGo', why: 'specChanged' }
      // it works meanwhile
      if (operation.adoption === true) return { kind: 'watch' }
      const { progress } = operation
      return { kind: 'hold', hold: { on: 'creating', ...(progress === undefined ? {} : { progress }) } }
    }
    case 'deleting':
      return { kind: 'hold', hold: { on: operation.lettingGo ? 'lettingGo' : 'deleting' } }
    case 'created':
      return { kind: 'adopt', specHash: operation.specHash, providerID: operation.providerID }
    case 'deleted':
      return { kind: 'clear', abandoned: operation.abandoned }
    case 'createFailed': {
      const { failure, specHash } = operation
      // another spec has another chance, at once
      if (outdated(specHash)) return decideInstance(world)
      // an instance that works stays as it is when it could not be taken over
      if (operation.adoption === true) return decideInstance(world)
      if (failure.error.kind === 'permanent') {
        return { kind: 'latch', latch: latchFrom(world, specHash, failure.error), error: failure.error }
      }
      // time is up, or somebody else got it to run
      if (failure.retryInMs <= 0 || isRunning(world)) return decideInstance(world)
      const on = failure.error.kind === 'quotaExceeded' ? 'quota' : 'backoff'
      return { kind: 'hold', hold: { on, failure } }
    }
    case 'deleteFailed': {
      // the replacement is off when the spec was changed back; what a failed delete left is made whole by create
      const next = decideInstance(world)
      const { failure } = operation
      if (next.kind !== 'startDelete' || failure.retryInMs <= 0) return next
      return { kind: 'hold', hold: { on: 'deleteBackoff', failure } }
    }
    case 'idle':
      return decideInstance(world)
    default:
      return exhaustive(operation)
  }
}

function decideInstance(world: World): Action {
  const { desired, observation, provider, proxy, status } = world
  if (provider.kind === 'missing') return { kind: 'hold', hold: { on: 'providerMissing' } }
  // half deleted it may look stopped or gone: made again from what is left, it would be the unhealthy one again
  if (status.replacement?.deleted === false && !isSpared(world)) return { kind: 'startDelete', why: 'unhealthy' }
  const { latch } = status
  // an instance that was seen running is no failure, whoever started it
  if (latch !== undefined && !isRunning(world) && !latchEnded(world, latch)) {
    const retryInMs = latchRetryInMs(world, latch)
    return { kind: 'hold', hold: { on: 'latch', latch, ...(retryInMs === undefined ? {} : { retryInMs }) } }
  }
  switch (desired.kind) {
    case 'unread':
      throw new Error('the user-data of an object that is not being deleted was not read')
    case 'unavailable': {
      const { reason, message } = desired
      // what is there is kept; what would have to be made or started needs the user-data
      const absent = observation.kind === 'gone' || isStopped(world) || status.providerID === undefined
      if (!absent) return { kind: 'watch', concern: { reason, message } }
      return { kind: 'hold', hold: { on: 'userData', reason, message } }
    }
    case 'known':
      break
    default:
      return exhaustive(desired)
  }
  if (isRecorded(status) && status.specHash !== undefined && hashesDiffer(status.specHash, desired.specHash)) {
    // the same generation with another hash: it is the Secret that was edited
    const edited = proxy.spec.cloudInitFrom !== undefined && status.observedGeneration === proxy.metadata.generation
    return { kind: 'startDelete', why: edited ? 'userDataChanged' : 'specChanged' }
  }
  // a recorded hash that cannot be compared goes on standing for the instance it was recorded for
  const specHash = isRecorded(status) ? (status.specHash ?? desired.specHash) : desired.specHash
  if (status.providerID === undefined) {
    return { kind: 'startCreate', specHash, why: latch === undefined ? 'new' : 'retry' }
  }
  if (observation.kind === 'gone') return repair(world, specHash, 'gone')
  if (observation.kind === 'seen') {
    const { instance } = observation
    if (instance.specHash !== undefined && hashesDiffer(instance.specHash, specHash)) {
      return { kind: 'startDelete', why: 'markDiffers' }
    }
    if (isStopped(world)) return repair(world, specHash, 'stopped')
    if (adoptionInMs(world) === 0) return { kind: 'startCreate', specHash, why: 'unadopted' }
  }
  const due = replacementDue(world)
  if (due.kind === 'now') return { kind: 'startDelete', why: 'unhealthy' }
  const adoption = adoptionInMs(world)
  const waits = [
    ...(due.kind === 'later' ? [due.inMs] : []),
    ...(adoption === undefined ? [] : [adoption]),
    ...(Object.keys(world.taken).length > 0 ? [takenRecheckMs] : []),
  ]
  return waits.length === 0 ? { kind: 'watch' } : { kind: 'watch', recheckInMs: Math.min(...waits) }
}

function repair({ repairInMs }: World, specHash: string, why: RepairReason): Action {
  if (repairInMs > 0) return { kind: 'hold', hold: { on: 'repair', why, retryInMs: repairInMs } }
  return { kind: 'startCreate', specHash, why }
}

/** An unhealthy instance runs, so its delete has not begun, and is not to be replaced any more. */
function isSpared(world: World): boolean {
  return isRunning(world) && world.proxy.spec.healthCheck.replaceAfter === undefined
}

/** Milliseconds until a working instance that has another type's mark may be given ours; undefined when there is none. */
function adoptionInMs(world: World): number | undefined {
  const { operation, proxy, status } = world
  if (!isUnadopted(world) || status.ip === undefined || proxy.spec.suspend) return undefined
  // a create looks under the name of today, and would make a second one beside an instance of another name
  if (status.instanceName !== world.instanceName) return undefined
  return operation.kind === 'createFailed' ? Math.max(operation.failure.retryInMs, 0) : 0
}

/** Whether the instance was seen running with the mark of another type. */
export function isUnadopted(world: World): boolean {
  return isRunning(world) && world.observation.kind === 'seen' && world.observation.instance.unadopted === true
}

/** Whether the recorded instance was seen running since the last mutation. */
export function isRunning({ observation, status }: World): boolean {
  return status.providerID !== undefined && observation.kind === 'seen' && observation.instance.state === 'running'
}

function isStopped({ observation }: World): boolean {
  return observation.kind === 'seen' && observation.instance.state === 'stopped'
}

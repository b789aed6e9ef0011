// What becomes of a decision while spec.suspend is true: pure, and it decides nothing else.
import { exhaustive } from '../lib/exhaustive.ts'
import type { Action, Hold } from './decide.ts'
import type { World } from './world.ts'

/** What is not done because of the suspension. */
export type Withheld = 'create' | 'start' | 'createAgain' | 'replace' | 'delete'

/** Nothing is begun on a hypervisor, and what is in flight ends; what is only written down goes on. */
export function suspended(world: World, action: Action): Action {
  const { operation } = world
  if (operation.kind === 'creating' || operation.kind === 'deleting') {
    return operation.lettingGo ? { kind: 'hold', hold: { on: 'lettingGo' } } : { kind: 'letGo', why: 'suspend' }
  }
  const withheld = withheldFrom(world, action)
  return withheld === undefined ? action : { kind: 'hold', hold: { on: 'suspend', withheld } }
}

function withheldFrom(world: World, action: Action): Withheld | undefined {
  switch (action.kind) {
    case 'startCreate':
      if (action.why === 'gone') return 'createAgain'
      return action.why === 'stopped' ? 'start' : 'create'
    case 'startDelete':
      return action.why === 'deletion' ? 'delete' : 'replace'
    case 'hold':
      return withheldByHold(world, action.hold)
    case 'forget':
    case 'addFinalizer':
    case 'letGo':
    case 'adopt':
    case 'clear':
    case 'latch':
    case 'release':
    case 'watch':
    case 'probe':
      return undefined
    default:
      return exhaustive(action)
  }
}

/** Waits that end by trying again are no waits now. */
function withheldByHold(world: World, hold: Hold): Withheld | undefined {
  switch (hold.on) {
    case 'backoff':
    case 'quota':
      return 'create'
    case 'deleteBackoff':
      return world.proxy.metadata.deletionTimestamp === undefined ? 'replace' : 'delete'
    case 'repair':
      return hold.why === 'gone' ? 'createAgain' : 'start'
    case 'creating':
    case 'deleting':
    case 'lettingGo':
    case 'latch':
    case 'suspend':
    case 'providerMissing':
    case 'userData':
    case 'unmanaged':
      return undefined
    default:
      return exhaustive(hold)
  }
}

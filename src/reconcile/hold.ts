// What an action implies beside itself: how long to wait, whether to observe, what to pass on; pure helpers of the handler.
import type { ProxyStatus } from '../api/proxy.ts'
import { exhaustive } from '../lib/exhaustive.ts'
import type { Intent } from '../provider/contract.ts'
import type { Action, Hold } from './decide.ts'

/** Safety net for what should end by an event of ours, milliseconds. */
const recheckMs = 300_000

/** What the status keeps of intents, as the contract has them. */
export function intentsOf(status: ProxyStatus | undefined): readonly Intent[] {
  return (status?.intents ?? []).map(({ target, vmid }) => ({ target, ...(vmid === undefined ? {} : { vmid }) }))
}

/** An operation is in flight: observations made beside it would be of a world that it is changing. */
export function isBusy(action: Action): boolean {
  return action.kind === 'hold' && ['creating', 'deleting', 'lettingGo'].includes(action.hold.on)
}

/** Whether the address stays in the status, and so is probed. */
export function isProbed(action: Action): boolean {
  if (action.kind === 'watch' || action.kind === 'probe') return true
  return action.kind === 'hold' && (action.hold.on === 'providerMissing' || action.hold.on === 'suspend')
}

/** Milliseconds until time alone changes something; undefined when an event does. */
export function holdForMs(hold: Hold): number | undefined {
  switch (hold.on) {
    case 'backoff':
    case 'quota':
    case 'deleteBackoff':
      return hold.failure.retryInMs
    case 'repair':
      return hold.retryInMs
    case 'latch':
      return hold.retryInMs ?? recheckMs
    case 'providerMissing':
      return recheckMs
    case 'creating':
    case 'deleting':
    case 'lettingGo':
    case 'suspend':
    case 'userData':
    case 'unmanaged':
      return undefined
    default:
      return exhaustive(hold)
  }
}

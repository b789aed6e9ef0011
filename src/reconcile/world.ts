// Everything a decision about one Proxy depends on, as plain data; nothing here reads or changes anything.
import type { Verdict } from '../api/probe.ts'
import type { Proxy, ProxyStatus } from '../api/proxy.ts'
import type { DeleteResult, Instance } from '../provider/contract.ts'
import type { ProviderError } from '../provider/errors.ts'

export interface World {
  /** Wall clock, milliseconds since the epoch. */
  readonly nowMs: number
  /** Newest known version of the object. */
  readonly proxy: Proxy
  /** Its status; empty when it has none yet. */
  readonly status: ProxyStatus
  /** Name under which its instance is made. */
  readonly instanceName: string
  readonly desired: Desired
  readonly provider: ProviderView
  readonly operation: OperationView
  /** An operation for an earlier object of the same name has not ended. */
  readonly predecessorBusy: boolean
  readonly observation: Observation
  /** Milliseconds since which every read found the instance running, and with the same address; 0 when the last one did not. */
  readonly steadyForMs: number
  /** What the probes say of the endpoint that they were last told of. */
  readonly verdict: Verdict
  /** Milliseconds until what was found stopped or gone may be made again; 0 when it may be now. */
  readonly repairInMs: number
  /** Addresses that the instance or the status names and another Proxy has, each with the key of that Proxy. */
  readonly taken: Readonly<Record<string, string>>
  /** Key of another Proxy of the same provider whose unhealthy instance is being replaced. */
  readonly replacing?: string
}

/** What the instance should be made from. */
export type Desired =
  | { readonly kind: 'known'; readonly specHash: string }
  /** The Secret with the user-data cannot be used. */
  | { readonly kind: 'unavailable'; readonly reason: string; readonly message: string }
  /** Not looked at: the object is being deleted. */
  | { readonly kind: 'unread' }

export type ProviderView =
  | { readonly kind: 'missing' }
  | {
      readonly kind: 'configured'
      /** Hash over the entry of the providers config. */
      readonly configHash: string
      readonly targets: readonly string[]
      /** When the last ready health check of the latched target ended, milliseconds since the epoch. */
      readonly latchTargetReadyMs?: number
    }

/** The one mutating operation of an object, in flight or ended and not yet acted on. */
export type OperationView =
  | { readonly kind: 'idle' }
  | {
      readonly kind: 'creating'
      readonly specHash: string
      /** It was told to end, and has not yet. */
      readonly lettingGo: boolean
      /** It gives our mark to an instance that works. */
      readonly adoption?: true
      readonly progress?: string
    }
  | { readonly kind: 'created'; readonly specHash: string; readonly providerID: string }
  | {
      readonly kind: 'createFailed'
      readonly specHash: string
      /** It was to give our mark to an instance that works. */
      readonly adoption?: true
      readonly failure: OperationFailure
    }
  | { readonly kind: 'deleting'; readonly lettingGo: boolean }
  | { readonly kind: 'deleted'; readonly abandoned: DeleteResult['abandoned'] }
  | { readonly kind: 'deleteFailed'; readonly failure: OperationFailure }

export interface OperationFailure {
  readonly error: ProviderError
  /** Failures in a row, this one included. */
  readonly failures: number
  /** Milliseconds until it may be tried again; 0 when it may be now. */
  readonly retryInMs: number
}

/** What was last read of the instance. */
export type Observation =
  | { readonly kind: 'unread' }
  | { readonly kind: 'seen'; readonly instance: Instance }
  | { readonly kind: 'gone' }
  /** The last read failed; nothing is concluded from it. */
  | { readonly kind: 'failed'; readonly error: ProviderError }

export type Probing =
  | { readonly kind: 'on'; readonly verdict: Verdict }
  /** It cannot be probed, for a reason a person can do something about. */
  | { readonly kind: 'impossible'; readonly reason: string; readonly message: string }

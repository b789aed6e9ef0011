// What the daemon tells unasked: event messages to listeners, and the calls that ask for them; it keeps no state of the host.
import type { CallOptions } from './call.ts'
import { decodeEvent } from './codec.ts'
import {
  events,
  type Domain,
  type EventName,
  type Events,
  type ProcedureName,
  type Procedures,
  type StoragePool,
} from './protocol.gen.ts'

export type EventFamily = 'domain' | 'storagePool' | 'connection'

/** An event. Registrations count per family: only family and `callbackID` together name one. */
export type LibvirtEvent = {
  readonly [E in EventName]: {
    readonly kind: E
    readonly family: EventFamily
    /** Null for the one event that no registration asks for by number. */
    readonly callbackID: number | null
    readonly message: Events[E]
  }
}[EventName]

type NamedFamily<F extends string> = Extract<EventName, `${F}_EVENT_${string}`>
export type DomainEventName = NamedFamily<'DOMAIN'>
export type StoragePoolEventName = NamedFamily<'STORAGE_POOL'>

/** A standing request for events. The daemon forgets it with the connection. */
export interface EventRegistration {
  readonly family: 'domain' | 'storagePool'
  readonly callbackID: number
  /** Whether this registration asked for the event. */
  matches(event: LibvirtEvent): boolean
  deregister(options: CallOptions): Promise<void>
}

/** Throws XdrError when the payload is not such a message. */
export function readEvent(name: EventName, payload: Uint8Array): LibvirtEvent {
  const message = decodeEvent(name, payload)
  return {
    kind: name,
    family: events[name].family,
    callbackID: 'callbackID' in message ? message.callbackID : null,
    message,
  } as LibvirtEvent
}

type CallFunction = <P extends ProcedureName>(
  procedure: P,
  args: Procedures[P]['args'],
  options: CallOptions,
) => Promise<Procedures[P]['ret']>

/** Asks for one kind of domain event, of one domain or, with null, of all. */
export async function registerDomainEvent(
  call: CallFunction,
  name: DomainEventName,
  dom: Domain | null,
  options: CallOptions,
): Promise<EventRegistration> {
  const args = { eventID: events[name].eventID ?? 0, dom }
  const { callbackID } = await call('CONNECT_DOMAIN_EVENT_CALLBACK_REGISTER_ANY', args, options)
  return registration('domain', callbackID, async (deregisterOptions) => {
    await call('CONNECT_DOMAIN_EVENT_CALLBACK_DEREGISTER_ANY', { callbackID }, deregisterOptions)
  })
}

/** Asks for one kind of pool event, of one pool or, with null, of all. */
export async function registerStoragePoolEvent(
  call: CallFunction,
  name: StoragePoolEventName,
  pool: StoragePool | null,
  options: CallOptions,
): Promise<EventRegistration> {
  const args = { eventID: events[name].eventID ?? 0, pool }
  const { callbackID } = await call('CONNECT_STORAGE_POOL_EVENT_REGISTER_ANY', args, options)
  return registration('storagePool', callbackID, async (deregisterOptions) => {
    await call('CONNECT_STORAGE_POOL_EVENT_DEREGISTER_ANY', { callbackID }, deregisterOptions)
  })
}

function registration(
  family: 'domain' | 'storagePool',
  callbackID: number,
  deregister: EventRegistration['deregister'],
): EventRegistration {
  return {
    family,
    callbackID,
    matches: (event) => event.family === family && event.callbackID === callbackID,
    deregister,
  }
}

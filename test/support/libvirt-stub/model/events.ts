// What happens on the host, and who has asked to hear of it; each family counts its callbacks on its own, across connections.
import { fail } from './errors.ts'
import type { EventName, Events } from '../../../../src/wire/libvirt/protocol.gen.ts'

type WithoutCallback<E extends EventName> = Omit<Events[E], 'callbackID'>

/** One occurrence, before it is known who hears of it. */
export type StubEvent = {
  [E in RegisteredEvent]: {
    readonly name: E
    /** UUID of the domain or pool it is about. */
    readonly subject: string
    readonly message: WithoutCallback<E>
  }
}[RegisteredEvent]

export type RegisteredEvent = Exclude<EventName, 'CONNECT_EVENT_CONNECTION_CLOSED'>
export type EventFamily = 'domain' | 'storagePool'

interface Registration {
  readonly family: EventFamily
  readonly callbackID: number
  readonly eventID: number
  readonly subject: string | undefined
  readonly owner: object
  readonly deliver: (event: StubEvent, callbackID: number) => void
}

const families: { readonly [E in RegisteredEvent]: readonly [family: EventFamily, eventID: number] } = {
  DOMAIN_EVENT_CALLBACK_LIFECYCLE: ['domain', 0],
  DOMAIN_EVENT_CALLBACK_REBOOT: ['domain', 1],
  DOMAIN_EVENT_CALLBACK_IO_ERROR: ['domain', 4],
  DOMAIN_EVENT_CALLBACK_CONTROL_ERROR: ['domain', 7],
  DOMAIN_EVENT_CALLBACK_AGENT_LIFECYCLE: ['domain', 18],
  DOMAIN_EVENT_CALLBACK_METADATA_CHANGE: ['domain', 23],
  STORAGE_POOL_EVENT_LIFECYCLE: ['storagePool', 0],
  STORAGE_POOL_EVENT_REFRESH: ['storagePool', 1],
}

/** Number of event ids that libvirt 9.0 knows in each family. */
const known: Readonly<Record<EventFamily, number>> = { domain: 26, storagePool: 2 }
const familyText: Readonly<Record<EventFamily, string>> = { domain: 'domain event', storagePool: 'storage pool event' }

export class EventBus {
  readonly #next: Record<EventFamily, number> = { domain: 0, storagePool: 0 }
  #registrations: Registration[] = []

  register(registration: Omit<Registration, 'callbackID'>): number {
    const { family, eventID } = registration
    if (eventID < 0 || eventID >= known[family]) {
      throw fail.internal(
        family === 'domain' ? `unsupported event ID ${eventID}` : `unsupported storage pool event ID ${eventID}`,
      )
    }
    const callbackID = this.#next[family]++
    this.#registrations.push({ ...registration, callbackID })
    return callbackID
  }

  deregister(family: EventFamily, callbackID: number, owner: object): void {
    const found = this.#registrations.find(
      (entry) => entry.family === family && entry.callbackID === callbackID && entry.owner === owner,
    )
    if (found === undefined) throw fail.internal(`${familyText[family]} callback ${callbackID} not registered`)
    this.#registrations = this.#registrations.filter((entry) => entry !== found)
  }

  /** What a closed connection had asked for. */
  forget(owner: object): void {
    this.#registrations = this.#registrations.filter((entry) => entry.owner !== owner)
  }

  emit(event: StubEvent): void {
    const [family, eventID] = families[event.name]
    for (const entry of this.#registrations) {
      if (entry.family !== family || entry.eventID !== eventID) continue
      if (entry.subject !== undefined && entry.subject !== event.subject) continue
      entry.deliver(event, entry.callbackID)
    }
  }
}

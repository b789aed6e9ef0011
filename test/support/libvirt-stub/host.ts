// The hypervisor behind the stub's socket: its pools, domains, guests and events. It speaks no protocol.
import type { Clock } from '../../../src/lib/clock.ts'
import type { Random } from '../../../src/lib/backoff.ts'
import { GuestAddresses } from './guest/addresses.ts'
import { Guest } from './guest/guest.ts'
import type { Knobs } from './knobs.ts'
import type { DomainDefinition } from './model/domain-definition.ts'
import { DomainModel, handle, type StubDomain } from './model/domains.ts'
import { EventBus, type StubEvent } from './model/events.ts'
import { PoolModel, type StubPool } from './model/pools.ts'

export interface HostOptions {
  readonly clock: Clock
  readonly random: Random
  readonly knobs: Knobs
  /** Port of the guests' proxies; 0 gives each a free one. */
  readonly proxyPort: number
  /** Bytes of each volume that are kept in memory. */
  readonly keepBytes: number
  readonly bridges: readonly string[]
}

/** libvirt-domain.h: virDomainEventType and the details that occur here. */
export const lifecycle = {
  defined: { event: 0, added: 0, updated: 1 },
  undefined: { event: 1, removed: 0 },
  started: { event: 2, booted: 0 },
  suspended: { event: 3, paused: 0 },
  resumed: { event: 4, unpaused: 0 },
  stopped: { event: 5, shutdown: 0, destroyed: 1 },
  shutdown: { event: 6, guest: 1, host: 2 },
} as const

export class StubHost {
  readonly clock: Clock
  readonly knobs: Knobs
  readonly pools: PoolModel
  readonly domains: DomainModel
  readonly events = new EventBus()
  readonly #options: HostOptions
  readonly #addresses: GuestAddresses
  readonly #guests = new Map<string, Guest>()
  /** Guests that are on their way out; awaited at the end. */
  readonly #stopping = new Set<Promise<void>>()

  constructor(options: HostOptions) {
    this.#options = options
    this.clock = options.clock
    this.knobs = options.knobs
    this.pools = new PoolModel(options.clock, options.keepBytes)
    this.domains = new DomainModel(this.pools, options.bridges)
    this.#addresses = new GuestAddresses(options.random)
  }

  guest(domain: StubDomain): Guest | undefined {
    return this.#guests.get(domain.uuid)
  }

  /** Switches the guest of a domain that was just started on. */
  boot(domain: StubDomain): void {
    const definition = domain.live
    if (definition === undefined) return
    this.#guests.set(
      domain.uuid,
      new Guest({
        clock: this.clock,
        addresses: this.#addresses,
        macs: definition.nics.map(({ mac }) => mac),
        disks: this.#disks(definition),
        proxyPort: this.#options.proxyPort,
        bootDelayMs: this.knobs.bootDelayMs,
        addressDelayMs: this.knobs.addressDelayMs,
        onAgent: () => this.#agentConnected(domain),
      }),
    )
  }

  /** Pulls the plug of a domain's guest; its proxy is gone a moment later. */
  cut(domain: StubDomain): void {
    const guest = this.#guests.get(domain.uuid)
    if (guest === undefined) return
    this.#guests.delete(domain.uuid)
    const stopping: Promise<void> = guest.stop().finally(() => this.#stopping.delete(stopping))
    this.#stopping.add(stopping)
  }

  /** The guest itself powers off. */
  shutDown(domain: StubDomain, why: number): void {
    if (domain.live === undefined) return
    this.emitAgent(domain, 2, 2)
    this.emitLifecycle(domain, lifecycle.shutdown.event, lifecycle.shutdown.guest)
    this.cut(domain)
    this.domains.stop(domain, why)
    this.emitLifecycle(domain, lifecycle.stopped.event, lifecycle.stopped.shutdown)
  }

  async close(): Promise<void> {
    for (const domain of this.domains.all()) this.cut(domain)
    await Promise.all(this.#stopping)
  }

  emitLifecycle(domain: StubDomain, event: number, detail: number): void {
    this.events.emit(lifecycleEvent(domain, event, detail))
  }

  /** libvirt-domain.h: state 1 connected, 2 disconnected; reason 1 domain started, 2 channel. */
  emitAgent(domain: StubDomain, state: number, reason: number): void {
    if (domain.live?.hasAgentChannel !== true) return
    const message = { dom: handle(domain), state, reason }
    this.events.emit({ name: 'DOMAIN_EVENT_CALLBACK_AGENT_LIFECYCLE', subject: domain.uuid, message })
  }

  #agentConnected(domain: StubDomain): void {
    if (domain.live?.hasAgentChannel !== true) return
    domain.agentConnected = true
    this.emitAgent(domain, 1, 2)
  }

  #disks(definition: DomainDefinition) {
    return definition.disks.flatMap(({ file }) => {
      const volume = file === undefined ? undefined : this.pools.byPath(file)
      return volume === undefined ? [] : [(offset: number, length: number) => volume.content.read(offset, length)]
    })
  }
}

export function lifecycleEvent(domain: StubDomain, event: number, detail: number): StubEvent {
  const message = { msg: { dom: handle(domain), event, detail } }
  return { name: 'DOMAIN_EVENT_CALLBACK_LIFECYCLE', subject: domain.uuid, message }
}

export function poolLifecycleEvent(pool: StubPool, event: number): StubEvent {
  const message = { pool: { name: pool.name, uuid: pool.uuid }, event, detail: 0 }
  return { name: 'STORAGE_POOL_EVENT_LIFECYCLE', subject: pool.uuid, message }
}

// Domains as libvirtd's QEMU driver keeps them: defined, running, transient. What runs inside one is the guest's file.
import { ErrorDomain } from '../../../../src/wire/libvirt/error-codes.ts'
import type { Domain } from '../../../../src/wire/libvirt/protocol.gen.ts'
import { cloneDefinition, domainDocument, parseDomain, type DomainDefinition } from './domain-definition.ts'
import { errno, fail } from './errors.ts'
import { readQcow2 } from './formats.ts'
import { readMetadata, writeMetadata } from './metadata.ts'
import type { PoolModel } from './pools.ts'

/** libvirt-domain.h: virDomainState. */
export const state = { running: 1, paused: 3, shutoff: 5, crashed: 6 } as const
/** libvirt-domain.h: the reasons of those states that occur here. */
export const reason = {
  running: { booted: 1, unpaused: 5 },
  paused: { user: 1 },
  shutoff: { unknown: 0, shutdown: 1, destroyed: 2 },
} as const
export const affect = { current: 0, live: 1, config: 2 } as const

export interface StubDomain {
  readonly name: string
  readonly uuid: string
  /** What is kept over a stop; gone once it was undefined while running. */
  config: DomainDefinition | undefined
  /** What runs. */
  live: DomainDefinition | undefined
  /** -1 while it does not run. */
  id: number
  state: number
  reason: number
  autostart: boolean
  agentConnected: boolean
  /** Host side of its NICs while it runs. */
  interfaceNames: readonly string[]
}

export class DomainModel {
  readonly #domains = new Map<string, StubDomain>()
  readonly #pools: PoolModel
  readonly bridges: Set<string>
  /** libvirt's own networks by name, and whether each is active. */
  readonly networks = new Map<string, boolean>()
  #lastId = 0
  #lastInterface = -1

  constructor(pools: PoolModel, bridges: Iterable<string>) {
    this.#pools = pools
    this.bridges = new Set(bridges)
  }

  all(): StubDomain[] {
    return [...this.#domains.values()]
  }

  byName(name: string): StubDomain {
    const domain = this.all().find((candidate) => candidate.name === name)
    if (domain === undefined) throw fail.noDomain(`no domain with matching name '${name}'`)
    return domain
  }

  /** @param name only for the error's text, where the caller sent one */
  byUuid(uuid: string, name?: string): StubDomain {
    const domain = this.#domains.get(uuid)
    const suffix = name === undefined ? '' : ` (${name})`
    if (domain === undefined) throw fail.noDomain(`no domain with matching uuid '${uuid}'${suffix}`)
    return domain
  }

  byId(id: number): StubDomain {
    const domain = this.all().find((candidate) => candidate.id === id && id !== -1)
    if (domain === undefined) throw fail.noDomain(`no domain with matching id ${id}`)
    return domain
  }

  define(xml: string): { readonly domain: StubDomain; readonly updated: boolean } {
    const definition = parseDomain(xml)
    const sameName = this.all().find((domain) => domain.name === definition.name)
    if (sameName !== undefined && sameName.uuid !== definition.uuid) {
      throw fail.domainExists(`domain '${definition.name}' already exists with uuid ${sameName.uuid}`)
    }
    const existing = this.#domains.get(definition.uuid)
    if (existing !== undefined && existing.name !== definition.name) {
      throw fail.domainExists(`domain '${existing.name}' is already defined with uuid ${existing.uuid}`)
    }
    if (existing !== undefined) {
      existing.config = definition
      return { domain: existing, updated: true }
    }
    const domain: StubDomain = {
      name: definition.name,
      uuid: definition.uuid,
      config: definition,
      live: undefined,
      id: -1,
      state: state.shutoff,
      reason: reason.shutoff.unknown,
      autostart: false,
      agentConnected: false,
      interfaceNames: [],
    }
    this.#domains.set(domain.uuid, domain)
    return { domain, updated: false }
  }

  start(domain: StubDomain): void {
    if (domain.live !== undefined) throw fail.domainInvalid('domain is already running')
    const config = domain.config
    if (config === undefined) throw fail.domainInvalid('domain has no configuration')
    this.#refuseMissing(config)
    domain.live = cloneDefinition(config)
    domain.id = ++this.#lastId
    domain.state = state.running
    domain.reason = reason.running.booted
    domain.agentConnected = false
    domain.interfaceNames = config.nics.map(() => `vnet${++this.#lastInterface}`)
  }

  /** Returns false when nothing is left of it: it had been undefined while it ran. */
  stop(domain: StubDomain, why: number): boolean {
    domain.live = undefined
    domain.id = -1
    domain.state = state.shutoff
    domain.reason = why
    domain.agentConnected = false
    domain.interfaceNames = []
    if (domain.config !== undefined) return true
    this.#domains.delete(domain.uuid)
    return false
  }

  /** A running domain goes on as a transient one. */
  undefine(domain: StubDomain, nvramFlag: boolean): void {
    if (domain.config === undefined) throw fail.domainInvalid('cannot undefine transient domain')
    if (domain.config.firmware === 'efi' && !nvramFlag) throw fail.domainInvalid('cannot undefine domain with nvram')
    domain.config = undefined
    if (domain.live === undefined) this.#domains.delete(domain.uuid)
  }

  setMetadata(domain: StubDomain, uri: string, key: string, xml: string | undefined, flags: number): void {
    for (const definition of this.#affected(domain, flags)) writeMetadata(definition.tree, uri, key, xml)
  }

  metadata(domain: StubDomain, uri: string, flags: number): string {
    const [definition] = this.#affected(domain, flags)
    const found = definition === undefined ? undefined : readMetadata(definition.tree, uri)
    if (found === undefined) throw fail.noMetadata()
    return found
  }

  document(domain: StubDomain, inactive: boolean): string {
    const { live, config, id, interfaceNames, agentConnected } = domain
    if (live !== undefined && (!inactive || config === undefined)) {
      return domainDocument(live, { id, interfaceNames, agentConnected })
    }
    if (config === undefined) throw fail.domainInvalid('domain has no configuration')
    return domainDocument(config)
  }

  activeNetwork(name: string): boolean {
    const active = this.networks.get(name)
    if (active === undefined) throw fail.noNetwork(name)
    return active
  }

  #affected(domain: StubDomain, flags: number): DomainDefinition[] {
    const current = flags === affect.current
    const wantLive = (flags & affect.live) !== 0 || (current && domain.live !== undefined)
    const wantConfig = (flags & affect.config) !== 0 || (current && domain.live === undefined)
    if (wantLive && domain.live === undefined) throw fail.domainInvalid('domain is not running', ErrorDomain.DOMAIN)
    if (wantConfig && domain.config === undefined) {
      throw fail.domainInvalid('transient domains do not have any persistent config', ErrorDomain.DOMAIN)
    }
    return [wantLive ? domain.live : undefined, wantConfig ? domain.config : undefined].filter(
      (definition) => definition !== undefined,
    )
  }

  #refuseMissing(config: DomainDefinition): void {
    for (const disk of config.disks) {
      if (disk.file === undefined) continue
      const volume = this.#pools.byPath(disk.file)
      if (volume === undefined) {
        throw fail.system(
          `Cannot access storage file '${disk.file}' (as uid:0, gid:0): No such file or directory`,
          errno.ENOENT,
          ErrorDomain.STORAGE,
        )
      }
      const header = disk.format === 'qcow2' ? readQcow2(volume.content) : { capacity: 0 }
      if (header === undefined) throw closedMonitor(`Image is not in qcow2 format`)
      if (header.backingPath !== undefined && this.#pools.byPath(header.backingPath) === undefined) {
        throw fail.system(
          `Cannot access backing file '${header.backingPath}' of storage file '${disk.file}' (as uid:0, gid:0): No such file or directory`,
          errno.ENOENT,
          ErrorDomain.STORAGE,
        )
      }
      const holder = this.all().find((other) =>
        other.live?.disks.some((used) => used.file === disk.file && !used.readonly),
      )
      if (holder !== undefined && !disk.readonly) {
        throw closedMonitor(`Failed to get "write" lock\nIs another process using the image [${disk.file}]?`)
      }
    }
    for (const { network } of config.nics) {
      if (network !== undefined && !this.activeNetwork(network)) throw fail.networkInactive(network)
    }
    for (const { bridge } of config.nics) {
      if (bridge === undefined || this.bridges.has(bridge)) continue
      throw fail.system(`Cannot get interface MTU on '${bridge}': No such device`, errno.ENODEV, ErrorDomain.NONE)
    }
  }
}

function closedMonitor(detail: string): Error {
  return fail.internal(
    `qemu unexpectedly closed the monitor: qemu-system-x86_64: -blockdev: ${detail}`,
    ErrorDomain.QEMU,
  )
}

/** The handle that calls carry. */
export function handle(domain: StubDomain): Domain {
  return { name: domain.name, uuid: domain.uuid, id: domain.id }
}

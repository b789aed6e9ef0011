// The host's calls said in libvirt's RPC; one instance per connection. It decides nothing: see host-api.ts for what each call means.
import { ErrorCode } from '../../wire/libvirt/errors.ts'
import { addressSource, type AddressSource } from './addresses.ts'
import type { Budgets } from './budgets.ts'
import type { Mark } from '../contract.ts'
import { hasCode } from './errors.ts'
import type { Flavour } from './flavour.ts'
import type {
  Domain,
  DomainInterface,
  DomainStatus,
  HostApi,
  MutationGuard,
  PoolInfo,
  ReadOptions,
  StoragePool,
  StorageVol,
  UploadSource,
} from './host-api.ts'
import { markXml } from './mark.ts'
import { requireMutable, type Rpc } from './rpc.ts'

/** libvirt-domain.h: managed save 1, snapshot records 2, NVRAM 4, checkpoint records 16. */
const undefineEverything = 1 | 2 | 4 | 16
/** libvirt-domain.h: VIR_DOMAIN_METADATA_ELEMENT. */
const metadataElement = 2
/** libvirt-domain.h: VIR_DOMAIN_AFFECT_LIVE and _CONFIG. */
const affect = { live: 1, config: 2 } as const
/** libvirt-domain.h: VIR_DOMAIN_STATS_STATE. */
const statsState = 1
const watchedEvents = ['DOMAIN_EVENT_CALLBACK_LIFECYCLE', 'DOMAIN_EVENT_CALLBACK_AGENT_LIFECYCLE'] as const
const smallTransferBytes = 16 * 1024 * 1024

export class WireHostApi implements HostApi {
  readonly #rpc: Rpc
  readonly #budgets: Budgets
  readonly #flavour: Flavour
  readonly #never = new AbortController().signal

  constructor(rpc: Rpc, budgets: Budgets, flavour: Flavour) {
    this.#rpc = rpc
    this.#budgets = budgets
    this.#flavour = flavour
  }

  async libVersion(options: ReadOptions): Promise<bigint> {
    return (await this.#rpc.read('CONNECT_GET_LIB_VERSION', null, this.#reading(options))).lib_ver
  }

  async hostname(options: ReadOptions): Promise<string> {
    return (await this.#rpc.read('CONNECT_GET_HOSTNAME', null, this.#reading(options))).hostname
  }

  async findDomain(
    by: { readonly uuid: string } | { readonly name: string },
    options: ReadOptions,
  ): Promise<Domain | undefined> {
    const found =
      'uuid' in by
        ? this.#rpc.read('DOMAIN_LOOKUP_BY_UUID', by, this.#reading(options), { domain: by.uuid })
        : this.#rpc.read('DOMAIN_LOOKUP_BY_NAME', by, this.#reading(options), { domain: by.name })
    return (await orUndefined(found, ErrorCode.NO_DOMAIN))?.dom
  }

  async listDomains(options: ReadOptions): Promise<readonly Domain[]> {
    const args = { need_results: 1, flags: 0 }
    return (await this.#rpc.read('CONNECT_LIST_ALL_DOMAINS', args, this.#reading(options))).domains
  }

  async allStates(
    options: ReadOptions,
  ): Promise<readonly { readonly domain: Domain; readonly status: DomainStatus }[]> {
    const args = { doms: [], stats: statsState, flags: 0 }
    const { retStats } = await this.#rpc.read('CONNECT_GET_ALL_DOMAIN_STATS', args, this.#reading(options))
    return retStats.flatMap(({ dom, params }) => {
      const number = (field: string) => {
        const value = params.find((param) => param.field === field)?.value
        return value?.kind === 'int' ? value.value : undefined
      }
      const state = number('state.state')
      return state === undefined ? [] : [{ domain: dom, status: { state, reason: number('state.reason') ?? 0 } }]
    })
  }

  async watchDomains(listener: (domain: Domain) => void, options: ReadOptions): Promise<boolean> {
    const { connection } = this.#rpc
    if (!connection.supportsEvents) return false
    // Before the registrations: an event may overtake the reply to its own.
    connection.onEvent((event) => {
      if (event.kind === 'DOMAIN_EVENT_CALLBACK_LIFECYCLE') listener(event.message.msg.dom)
      else if (event.kind === 'DOMAIN_EVENT_CALLBACK_AGENT_LIFECYCLE') listener(event.message.dom)
    })
    await Promise.all(
      watchedEvents.map((name) =>
        this.#rpc.observe('CONNECT_DOMAIN_EVENT_CALLBACK_REGISTER_ANY', {}, { event: name }, () =>
          connection.registerDomainEvents(name, this.#reading(options)),
        ),
      ),
    )
    return true
  }

  async domainStatus(domain: Domain, options: ReadOptions): Promise<DomainStatus> {
    return await this.#rpc.read('DOMAIN_GET_STATE', { dom: domain, flags: 0 }, this.#reading(options), about(domain))
  }

  async domainXml(domain: Domain, options: ReadOptions): Promise<string> {
    const args = { dom: domain, flags: 0 }
    return (await this.#rpc.read('DOMAIN_GET_XML_DESC', args, this.#reading(options), about(domain))).xml
  }

  async metadata(domain: Domain, namespace: string, options: ReadOptions): Promise<string | undefined> {
    const args = { dom: domain, type: metadataElement, uri: namespace, flags: 0 }
    const reply = this.#rpc.read('DOMAIN_GET_METADATA', args, this.#reading(options), about(domain))
    return (await orUndefined(reply, ErrorCode.NO_DOMAIN_METADATA))?.metadata
  }

  async interfaceAddresses(
    domain: Domain,
    source: AddressSource,
    options: ReadOptions,
  ): Promise<readonly DomainInterface[]> {
    const args = { dom: domain, source: addressSource[source], flags: 0 }
    const reading = { ...this.#reading(options), slow: source === 'agent' }
    return (await this.#rpc.read('DOMAIN_INTERFACE_ADDRESSES', args, reading, about(domain))).ifaces
  }

  async defineDomain(xml: string, guard: MutationGuard): Promise<Domain> {
    return (await this.#rpc.mutate('DOMAIN_DEFINE_XML', { xml }, this.#slowly(guard), {}, { xml })).dom
  }

  async setMark(domain: Domain, mark: Mark, live: boolean, guard: MutationGuard): Promise<void> {
    const metadata = markXml(mark)
    const args = {
      dom: domain,
      type: metadataElement,
      metadata,
      key: this.#flavour.name,
      uri: this.#flavour.markNamespace,
      flags: live ? affect.live | affect.config : affect.config,
    }
    await this.#rpc.mutate('DOMAIN_SET_METADATA', args, this.#changing(guard), about(domain), { metadata })
  }

  async removeMetadata(domain: Domain, namespace: string, live: boolean, guard: MutationGuard): Promise<void> {
    const flags = live ? affect.live | affect.config : affect.config
    const args = { dom: domain, type: metadataElement, metadata: null, key: null, uri: namespace, flags }
    await this.#rpc.mutate('DOMAIN_SET_METADATA', args, this.#changing(guard), about(domain))
  }

  async setAutostart(domain: Domain, guard: MutationGuard): Promise<void> {
    const args = { dom: domain, autostart: 1 }
    await this.#rpc.mutate('DOMAIN_SET_AUTOSTART', args, this.#changing(guard), about(domain))
  }

  async startDomain(domain: Domain, guard: MutationGuard): Promise<void> {
    const options = { guard, timeoutMs: this.#budgets.startMs, slow: true }
    await this.#rpc.mutate('DOMAIN_CREATE', { dom: domain }, options, about(domain))
  }

  async destroyDomain(domain: Domain, guard: MutationGuard): Promise<void> {
    await this.#rpc.mutate('DOMAIN_DESTROY', { dom: domain }, this.#slowly(guard), about(domain))
  }

  async undefineDomain(domain: Domain, guard: MutationGuard): Promise<void> {
    const args = { dom: domain, flags: undefineEverything }
    await this.#rpc.mutate('DOMAIN_UNDEFINE_FLAGS', args, this.#changing(guard), about(domain))
  }

  async isNetworkActive(name: string, options: ReadOptions): Promise<boolean> {
    const { net } = await this.#rpc.read('NETWORK_LOOKUP_BY_NAME', { name }, this.#reading(options))
    return (await this.#rpc.read('NETWORK_IS_ACTIVE', { net }, this.#reading(options))).active !== 0
  }

  async findPool(name: string, options: ReadOptions): Promise<StoragePool> {
    const subject = { pool: name }
    return (await this.#rpc.read('STORAGE_POOL_LOOKUP_BY_NAME', { name }, this.#reading(options), subject)).pool
  }

  async poolInfo(pool: StoragePool, options: ReadOptions): Promise<PoolInfo> {
    const info = await this.#rpc.read('STORAGE_POOL_GET_INFO', { pool }, this.#reading(options), { pool: pool.name })
    return { state: info.state, capacityBytes: info.capacity, availableBytes: info.available }
  }

  async refreshPool(pool: StoragePool, guard: MutationGuard): Promise<void> {
    const args = { pool, flags: 0 }
    await this.#rpc.mutate('STORAGE_POOL_REFRESH', args, this.#slowly(guard), { pool: pool.name })
  }

  async findVolume(pool: StoragePool, name: string, options: ReadOptions): Promise<StorageVol | undefined> {
    const subject = { pool: pool.name, volume: name }
    const reply = this.#rpc.read('STORAGE_VOL_LOOKUP_BY_NAME', { pool, name }, this.#reading(options), subject)
    return (await orUndefined(reply, ErrorCode.NO_STORAGE_VOL))?.vol
  }

  async listVolumes(pool: StoragePool, options: ReadOptions): Promise<readonly StorageVol[]> {
    const args = { pool, need_results: 1, flags: 0 }
    const subject = { pool: pool.name }
    return (await this.#rpc.read('STORAGE_POOL_LIST_ALL_VOLUMES', args, this.#reading(options), subject)).vols
  }

  async volumePath(volume: StorageVol, options: ReadOptions): Promise<string> {
    const args = { vol: volume }
    return (await this.#rpc.read('STORAGE_VOL_GET_PATH', args, this.#reading(options), aboutVolume(volume))).name
  }

  async volumeXml(volume: StorageVol, options: ReadOptions): Promise<string> {
    const args = { vol: volume, flags: 0 }
    return (await this.#rpc.read('STORAGE_VOL_GET_XML_DESC', args, this.#reading(options), aboutVolume(volume))).xml
  }

  async volumeCapacity(volume: StorageVol, options: ReadOptions): Promise<bigint> {
    const args = { vol: volume }
    return (await this.#rpc.read('STORAGE_VOL_GET_INFO', args, this.#reading(options), aboutVolume(volume))).capacity
  }

  async createVolume(pool: StoragePool, xml: string, guard: MutationGuard): Promise<StorageVol> {
    const args = { pool, xml, flags: 0 }
    const subject = { pool: pool.name }
    return (await this.#rpc.mutate('STORAGE_VOL_CREATE_XML', args, this.#changing(guard), subject, { xml })).vol
  }

  async growVolume(volume: StorageVol, capacityBytes: number, guard: MutationGuard): Promise<void> {
    const args = { vol: volume, capacity: BigInt(capacityBytes), flags: 0 }
    await this.#rpc.mutate('STORAGE_VOL_RESIZE', args, this.#changing(guard), aboutVolume(volume))
  }

  async deleteVolume(volume: StorageVol, guard: MutationGuard): Promise<void> {
    const args = { vol: volume, flags: 0 }
    await this.#rpc.mutate('STORAGE_VOL_DELETE', args, this.#changing(guard), aboutVolume(volume))
  }

  async readVolume(volume: StorageVol, offset: number, lengthBytes: number, options: ReadOptions): Promise<Buffer> {
    const subject = { ...aboutVolume(volume), offset, length: lengthBytes }
    return await this.#rpc.observe('STORAGE_VOL_DOWNLOAD', subject, {}, () =>
      this.#rpc.connection.downloadAll(volume, {
        offset: BigInt(offset),
        length: BigInt(lengthBytes),
        maxBytes: Math.min(lengthBytes, smallTransferBytes),
        signal: options.signal,
        timeoutMs: this.#budgets.smallTransferMs,
      }),
    )
  }

  async writeVolume(volume: StorageVol, content: Uint8Array, guard: MutationGuard): Promise<void> {
    const source = { data: once(content), lengthBytes: content.byteLength }
    await this.#upload(volume, source, this.#budgets.smallTransferMs, guard, this.#never)
  }

  async uploadVolume(volume: StorageVol, source: UploadSource, timeoutMs: number, guard: MutationGuard): Promise<void> {
    await this.#upload(volume, source, timeoutMs, guard, guard.signal)
  }

  async #upload(
    volume: StorageVol,
    source: UploadSource,
    timeoutMs: number,
    guard: MutationGuard,
    signal: AbortSignal,
  ): Promise<void> {
    const { lengthBytes } = source
    const subject = { ...aboutVolume(volume), offset: 0, ...(lengthBytes !== undefined && { length: lengthBytes }) }
    const length = lengthBytes === undefined ? {} : { length: BigInt(lengthBytes) }
    const data = whileMutable(source.data, guard, this.#rpc.host)
    await this.#rpc.observe('STORAGE_VOL_UPLOAD', subject, {}, async () => {
      requireMutable(guard, this.#rpc.host)
      await this.#rpc.connection.upload(volume, data, { ...length, signal, timeoutMs })
    })
  }

  #reading(options: ReadOptions): { readonly signal: AbortSignal; readonly timeoutMs: number } {
    return { signal: options.signal, timeoutMs: this.#budgets.rpcMs }
  }

  #changing(guard: MutationGuard): { readonly guard: MutationGuard; readonly timeoutMs: number } {
    return { guard, timeoutMs: this.#budgets.rpcMs }
  }

  /** Calls that keep the daemon busy leave a place on the connection for quick ones. */
  #slowly(guard: MutationGuard): { readonly guard: MutationGuard; readonly timeoutMs: number; readonly slow: boolean } {
    return { ...this.#changing(guard), slow: true }
  }
}

function about(domain: Domain): { readonly domain: string } {
  return { domain: domain.name }
}

function aboutVolume(volume: StorageVol): { readonly pool: string; readonly volume: string } {
  return { pool: volume.pool, volume: volume.name }
}

/** The guard is asked before every piece: opening an upload changes nothing yet, and an image takes minutes. */
async function* whileMutable(
  data: AsyncIterable<Uint8Array>,
  guard: MutationGuard,
  host: string,
): AsyncIterable<Uint8Array> {
  for await (const piece of data) {
    requireMutable(guard, host)
    yield piece
  }
}

async function* once(content: Uint8Array): AsyncIterable<Uint8Array> {
  yield await Promise.resolve(content)
}

async function orUndefined<T>(reply: Promise<T>, absent: number): Promise<T | undefined> {
  try {
    return await reply
  } catch (thrown) {
    if (hasCode(thrown, absent)) return undefined
    throw thrown
  }
}

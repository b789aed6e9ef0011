// The calls of a libvirt host that the engine uses, as an interface: the seam between what we want and how it is said. No wire here.
import type { Domain, DomainInterface, StoragePool, StorageVol } from '../../wire/libvirt/protocol.gen.ts'
import type { AddressSource } from './addresses.ts'
import type { Mark } from '../contract.ts'

export type { Domain, DomainInterface, StoragePool, StorageVol }

export interface ReadOptions {
  readonly signal: AbortSignal
}

/** Asked right before a call that changes something is sent. Such a call is waited for whatever the signal says meanwhile. */
export interface MutationGuard {
  readonly signal: AbortSignal
  mayMutate(): boolean
}

/** Numbers of libvirt-domain.h: virDomainState. */
export const domainState = {
  noState: 0,
  running: 1,
  blocked: 2,
  paused: 3,
  shutdown: 4,
  shutoff: 5,
  crashed: 6,
  pmSuspended: 7,
} as const

export interface DomainStatus {
  readonly state: number
  readonly reason: number
}

/** Numbers of libvirt-storage.h: virStoragePoolState. */
export const poolState = { inactive: 0, building: 1, running: 2, degraded: 3, inaccessible: 4 } as const

export interface PoolInfo {
  readonly state: number
  readonly capacityBytes: bigint
  readonly availableBytes: bigint
}

export interface UploadSource {
  readonly data: AsyncIterable<Uint8Array>
  /** Absent: as much as comes. */
  readonly lengthBytes?: number
}

/**
 * One connection to one host. Lookups answer undefined for what is not there; everything else that fails rejects with the
 * wire's own errors, which errors.ts classifies. Reads end with the signal.
 */
export interface HostApi {
  libVersion(options: ReadOptions): Promise<bigint>
  hostname(options: ReadOptions): Promise<string>

  findDomain(
    by: { readonly uuid: string } | { readonly name: string },
    options: ReadOptions,
  ): Promise<Domain | undefined>
  listDomains(options: ReadOptions): Promise<readonly Domain[]>
  /** State of every domain of the host in one call. */
  allStates(options: ReadOptions): Promise<readonly { readonly domain: Domain; readonly status: DomainStatus }[]>
  /**
   * From the answer on, and for as long as the connection lasts, hears of every domain that started, stopped, changed
   * otherwise or whose guest agent came or went. False where the daemon has no such events.
   */
  watchDomains(listener: (domain: Domain) => void, options: ReadOptions): Promise<boolean>
  domainStatus(domain: Domain, options: ReadOptions): Promise<DomainStatus>
  domainXml(domain: Domain, options: ReadOptions): Promise<string>
  /** The element in that XML namespace, its namespace taken away; undefined when the domain has none. */
  metadata(domain: Domain, namespace: string, options: ReadOptions): Promise<string | undefined>
  interfaceAddresses(domain: Domain, source: AddressSource, options: ReadOptions): Promise<readonly DomainInterface[]>
  defineDomain(xml: string, guard: MutationGuard): Promise<Domain>
  setMark(domain: Domain, mark: Mark, live: boolean, guard: MutationGuard): Promise<void>
  /** Takes the element in that namespace away, where there is one. */
  removeMetadata(domain: Domain, namespace: string, live: boolean, guard: MutationGuard): Promise<void>
  setAutostart(domain: Domain, guard: MutationGuard): Promise<void>
  startDomain(domain: Domain, guard: MutationGuard): Promise<void>
  /** Pulls the plug. */
  destroyDomain(domain: Domain, guard: MutationGuard): Promise<void>
  /** With NVRAM, managed save image and the records of snapshots and checkpoints. */
  undefineDomain(domain: Domain, guard: MutationGuard): Promise<void>

  /** Whether a network of libvirt's own runs. Rejects when there is none of that name. */
  isNetworkActive(name: string, options: ReadOptions): Promise<boolean>

  findPool(name: string, options: ReadOptions): Promise<StoragePool>
  poolInfo(pool: StoragePool, options: ReadOptions): Promise<PoolInfo>
  refreshPool(pool: StoragePool, guard: MutationGuard): Promise<void>
  findVolume(pool: StoragePool, name: string, options: ReadOptions): Promise<StorageVol | undefined>
  listVolumes(pool: StoragePool, options: ReadOptions): Promise<readonly StorageVol[]>
  volumePath(volume: StorageVol, options: ReadOptions): Promise<string>
  volumeXml(volume: StorageVol, options: ReadOptions): Promise<string>
  volumeCapacity(volume: StorageVol, options: ReadOptions): Promise<bigint>
  createVolume(pool: StoragePool, xml: string, guard: MutationGuard): Promise<StorageVol>
  /** Refused by the daemon for less than is allocated. */
  growVolume(volume: StorageVol, capacityBytes: number, guard: MutationGuard): Promise<void>
  deleteVolume(volume: StorageVol, guard: MutationGuard): Promise<void>
  /** At most `lengthBytes`, fewer when the volume ends before; at most 16 MiB. */
  readVolume(volume: StorageVol, offset: number, lengthBytes: number, options: ReadOptions): Promise<Buffer>
  /** Small content, waited for whatever the signal says meanwhile. */
  writeVolume(volume: StorageVol, content: Uint8Array, guard: MutationGuard): Promise<void>
  /** Content of any size; ends with the signal, and then what was written stays. Only on a connection of its own. */
  uploadVolume(volume: StorageVol, source: UploadSource, timeoutMs: number, guard: MutationGuard): Promise<void>
}

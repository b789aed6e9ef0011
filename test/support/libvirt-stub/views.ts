// What the stub's host holds now, in the words a test asserts in; copies, not the state itself.
import type { StubHost } from './host.ts'
import { state, type StubDomain } from './model/domains.ts'
import { readMetadata } from './model/metadata.ts'
import { allocation, volumeCapacity, type StubPool, type StubVolume } from './model/pools.ts'
import { backingPathOf } from './rpc/storage-procedures.ts'

export interface DomainView {
  readonly name: string
  readonly uuid: string
  readonly state: 'running' | 'paused' | 'shutoff' | 'other'
  readonly persistent: boolean
  readonly autostart: boolean
  /** -1 while it does not run. */
  readonly id: number
  readonly macs: readonly string[]
  /** Files of its disks and CDs. */
  readonly files: readonly string[]
  /** The guest's address, once it has one. */
  readonly address: string | undefined
  /** Where its forward proxy listens. */
  readonly proxy: { readonly host: string; readonly port: number; readonly requests: number } | undefined
  /** user-data of the seed that the guest booted with; undefined when it found none. */
  readonly userData: Buffer | undefined
  /** Why this machine could not give the guest its network. */
  readonly failure: Error | undefined
  /** The element in namespace `uri`, without its namespace. */
  metadata(uri: string): string | undefined
}

export interface VolumeView {
  readonly name: string
  readonly path: string
  readonly format: string
  /** Bytes a guest sees. */
  readonly capacity: number
  /** Bytes of the file. */
  readonly size: number
  /** Bytes of the pool that it takes. */
  readonly allocation: number
  readonly backingPath: string | undefined
  /** Hex digest of the file. */
  sha256(): string
  /** Content of the file. */
  bytes(): Buffer
}

const stateNames: Readonly<Record<number, DomainView['state']>> = {
  [state.running]: 'running',
  [state.paused]: 'paused',
  [state.shutoff]: 'shutoff',
}

export function domainViews(host: StubHost): DomainView[] {
  return host.domains.all().map((domain) => domainView(host, domain))
}

function domainView(host: StubHost, domain: StubDomain): DomainView {
  const guest = host.guest(domain)
  const definition = domain.live ?? domain.config
  const proxy = guest?.proxy
  return {
    name: domain.name,
    uuid: domain.uuid,
    state: stateNames[domain.state] ?? 'other',
    persistent: domain.config !== undefined,
    autostart: domain.autostart,
    id: domain.id,
    macs: definition?.nics.map(({ mac }) => mac) ?? [],
    files: definition?.disks.flatMap(({ file }) => file ?? []) ?? [],
    address: guest?.address,
    proxy: proxy === undefined ? undefined : { host: proxy.host, port: proxy.port, requests: proxy.requests() },
    userData: guest?.seed?.userData,
    failure: guest?.failure,
    metadata: (uri) => (definition === undefined ? undefined : readMetadata(definition.tree, uri)),
  }
}

export function volumeViews(pool: StubPool): VolumeView[] {
  return [...pool.volumes.values()].map(volumeView)
}

function volumeView(volume: StubVolume): VolumeView {
  const { content } = volume
  return {
    name: volume.name,
    path: volume.path,
    format: volume.format,
    capacity: volumeCapacity(volume),
    size: content.length,
    allocation: allocation(volume),
    backingPath: backingPathOf(volume),
    sha256: () => content.sha256(),
    bytes: () => content.read(0, content.length),
  }
}

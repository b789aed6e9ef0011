// What the operations of one provider share: its config, its connections, its locks and limits. No operation is here.
import type { Random } from '../../lib/backoff.ts'
import type { Clock } from '../../lib/clock.ts'
import type { KeyedMutex } from '../../lib/keyed-mutex.ts'
import type { Semaphore } from '../../lib/semaphore.ts'
import type { Logger } from '../../observe/logger.ts'
import { ProviderError } from '../errors.ts'
import type { AddressPolicy } from './addresses.ts'
import type { Budgets } from './budgets.ts'
import type { LibvirtConfig, LibvirtHost } from './config.ts'
import type { Flavour } from './flavour.ts'
import type { HostApi } from './host-api.ts'
import type { HostConnections } from './hosts.ts'
import type { ImageStatus } from './image-status.ts'
import type { Images } from './images.ts'
import type { KnownInstances } from './known.ts'

export interface Engine {
  readonly config: LibvirtConfig
  readonly flavour: Flavour
  /** Types whose marks are taken over. */
  readonly adoptFrom: readonly Flavour[]
  /** Id of this installation. */
  readonly installation: string
  readonly connections: HostConnections
  readonly images: Images
  /** Creates at work, per host. */
  readonly slots: ReadonlyMap<string, Semaphore>
  /** Keyed by host and instance name: creates and deletes of one instance never interleave. */
  readonly names: KeyedMutex
  /** Keyed by host and domain: agent calls for one domain run one at a time on the host anyway, and in no fair order. */
  readonly agents: KeyedMutex
  readonly known: KnownInstances
  readonly imageStatus: ImageStatus
  readonly addresses: AddressPolicy
  readonly budgets: Budgets
  readonly clock: Clock
  readonly random: Random
  readonly log: Logger
}

export function findHost(engine: Engine, name: string): LibvirtHost | undefined {
  return engine.config.hosts.find((host) => host.name === name)
}

/** @throws ProviderError permanent (environment): a typo in the hosts must not look like an instance that is gone */
export function requireHost(engine: Engine, name: string): LibvirtHost {
  const host = findHost(engine, name)
  if (host !== undefined) return host
  throw ProviderError.permanent(
    'environment',
    `host ${name} is not in ${engine.flavour.name}.hosts any more; put it back, or delete the Proxy`,
    { code: 'HostNotConfigured', target: name },
  )
}

export function sharedLine(engine: Engine, host: LibvirtHost, signal: AbortSignal): Promise<HostApi> {
  return engine.connections.line(host.name, 'shared', signal)
}

export function nameKey(host: LibvirtHost, instanceName: string): string {
  return `${host.name}/${instanceName}`
}

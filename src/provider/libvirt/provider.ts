// Puts a provider of type kvm or kvm2 together from its entry in the config; each operation has a file of its own.
import type { Random } from '../../lib/backoff.ts'
import type { Clock } from '../../lib/clock.ts'
import { errorMessage } from '../../lib/errors.ts'
import { KeyedMutex } from '../../lib/keyed-mutex.ts'
import { Semaphore } from '../../lib/semaphore.ts'
import type { LogFields, Logger } from '../../observe/logger.ts'
import type { Metrics } from '../../observe/metrics.ts'
import type { TcpConnect } from '../../wire/ssh/tcp.ts'
import type { Provider } from '../contract.ts'
import { ProviderError } from '../errors.ts'
import { parseProviderID } from '../names.ts'
import { strictAddresses, type AddressPolicy } from './addresses.ts'
import { defaultBudgets, type Budgets } from './budgets.ts'
import { checkHosts } from './check.ts'
import type { LibvirtConfig } from './config.ts'
import { createInstance } from './create.ts'
import { deleteInstance } from './delete.ts'
import { createDialer } from './dial.ts'
import type { Engine } from './engine.ts'
import { flavours, kvm2Flavour, kvmFlavour, type Flavour } from './flavour.ts'
import { HostConnections, type DialHost } from './hosts.ts'
import { createImageServer, type ImageServer } from './image-http.ts'
import type { ImageSharing } from './image-sharing.ts'
import { ImageStatus } from './image-status.ts'
import { Images } from './images.ts'
import { KnownInstances } from './known.ts'
import { findLeftovers, removeLeftover } from './leftovers.ts'
import { getInstance, listInstances, observeHost } from './read.ts'
import { startupWarnings } from './startup-warnings.ts'
import { InstanceWatch } from './watch.ts'

interface EntryCommon {
  readonly name: string
  /** Creates at work at a time, per host. */
  readonly maxConcurrentCreates: number
}

/** An entry of the providers config. */
export type Kvm2Entry = EntryCommon & { readonly kvm2: LibvirtConfig }
export type KvmEntry = EntryCommon & { readonly kvm: LibvirtConfig }

export interface LibvirtDeps {
  readonly clock: Clock
  readonly random: Random
  readonly log: Logger
  readonly metrics: Pick<Metrics, 'imageDownloadBytes'>
  /** Id of this installation. */
  readonly installation: string
  /** Shared by all providers of the process: two entries may name one host. */
  readonly imageSharing: ImageSharing
  /** Default: the machine's own HTTP, closed with the provider. */
  readonly imageServer?: ImageServer
  /** Default: only addresses that other machines can reach. */
  readonly addressPolicy?: AddressPolicy
  /** Default: TCP from this machine. */
  readonly connect?: TcpConnect
  /** In place of SSH and libvirt altogether. */
  readonly dial?: DialHost
  readonly budgets?: Budgets
}

/** Dials nothing yet. Wrap it in `decorateProvider` before use. */
export function createKvm2Provider(entry: Kvm2Entry, deps: LibvirtDeps): Provider {
  return createLibvirtProvider(kvm2Flavour, entry, entry.kvm2, deps)
}

/** See {@link createKvm2Provider}. */
export function createKvmProvider(entry: KvmEntry, deps: LibvirtDeps): Provider {
  return createLibvirtProvider(kvmFlavour, entry, entry.kvm, deps)
}

function createLibvirtProvider(
  flavour: Flavour,
  entry: EntryCommon,
  config: LibvirtConfig,
  deps: LibvirtDeps,
): Provider {
  const { clock, random, installation } = deps
  const budgets = deps.budgets ?? defaultBudgets
  const logNamed = (logger: string) => deps.log.child({ logger, provider: entry.name })
  const log = logNamed(flavour.name)
  const dial = deps.dial ?? dialerFor(flavour, config, { ...deps, log, callLog: logNamed(flavour.callLogger), budgets })
  const known = new KnownInstances()
  const watch = new InstanceWatch({
    known,
    clock,
    random,
    log,
    dial: (host, signal) => connections.line(host, 'shared', signal),
  })
  const connections: HostConnections = new HostConnections(dial, watch)
  const server = deps.imageServer ?? createImageServer()
  const images = new Images({
    connections,
    sharing: deps.imageSharing,
    random,
    flavour: flavour.name,
    server,
    clock,
    log,
    budgets,
    installation,
    countBytes: (bytes) => deps.metrics.imageDownloadBytes.inc(bytes),
  })
  const engine: Engine = {
    config,
    flavour,
    adoptFrom: config.adoptFrom.map((type) => flavours[type]),
    installation,
    connections,
    images,
    slots: new Map(config.hosts.map((host) => [host.name, new Semaphore(entry.maxConcurrentCreates)])),
    names: new KeyedMutex(),
    agents: new KeyedMutex(),
    known,
    imageStatus: new ImageStatus(config, clock),
    addresses: deps.addressPolicy ?? strictAddresses,
    budgets,
    clock,
    random,
    log,
  }
  /** With what the host said, before it became one of our errors. */
  const told = async <T>(op: string, about: LogFields, work: () => Promise<T>): Promise<T> => {
    try {
      return await work()
    } catch (thrown) {
      const raw = thrown instanceof ProviderError ? (thrown.cause ?? thrown) : thrown
      const host = thrown instanceof ProviderError && thrown.target !== undefined ? { host: thrown.target } : {}
      log.debug(`${flavour.subject} backend call failed`, { op, ...host, ...about, error: errorMessage(raw) })
      throw thrown
    }
  }
  return {
    name: entry.name,
    type: flavour.name,
    targets: config.hosts.map((host) => host.name),
    create: (request, context) =>
      told('create', { name: request.instanceName }, () => createInstance(engine, request, context)),
    get: (providerID, context) => told('get', located(providerID), () => getInstance(engine, providerID, context)),
    delete: (request, context) =>
      told('delete', { name: request.instanceName }, () => deleteInstance(engine, request, context)),
    observe: (target, context) => told('observe', { host: target }, () => observeHost(engine, target, context)),
    list: (context) => told('list', {}, () => listInstances(engine, context)),
    check: (context) => checkHosts(engine, context),
    leftovers: (context) => told('leftovers', {}, () => findLeftovers(engine, context)),
    remove: (leftover, context) =>
      told('remove', { host: leftover.target, name: leftover.instanceName }, () =>
        removeLeftover(engine, leftover, context),
      ),
    watch: (listener) => watch.watch(listener),
    async close() {
      watch.close()
      await connections.close()
      if (deps.imageServer === undefined) await server.close()
    },
  }
}

/** Host and name of an instance, where its id tells them. */
function located(providerID: string): LogFields {
  const location = parseProviderID(providerID)
  return location === undefined ? { providerID } : { host: location.host, name: location.domain }
}

function dialerFor(
  flavour: Flavour,
  config: LibvirtConfig,
  deps: Pick<LibvirtDeps, 'clock' | 'log' | 'connect'> & { readonly callLog: Logger; readonly budgets: Budgets },
): DialHost {
  for (const warning of startupWarnings(config)) deps.log.warn(warning)
  return createDialer({
    targets: config.hosts,
    credentials: {
      keyFile: config.sshKeyFile,
      insecureIgnoreHostKey: config.hostKeys.kind === 'insecureIgnore',
      ...(config.hostKeys.kind === 'knownHosts' ? { knownHostsFile: config.hostKeys.file } : {}),
    },
    flavour,
    budgets: deps.budgets,
    clock: deps.clock,
    log: deps.log,
    callLog: deps.callLog,
    ...(deps.connect === undefined ? {} : { connect: deps.connect }),
  })
}

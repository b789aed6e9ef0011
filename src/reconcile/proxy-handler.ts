// The handler of Proxy keys: gathers the world, decides, writes the status, acts. It waits for no hypervisor.
import { isExternal, isManaged, type ManagedSpec, type Proxy, type ProxyStatus } from '../api/proxy.ts'
import { keyOf } from '../kube/object.ts'
import type { Outcome } from '../kube/workers.ts'
import type { Random } from '../lib/backoff.ts'
import type { Clock } from '../lib/clock.ts'
import { exhaustive } from '../lib/exhaustive.ts'
import type { Logger } from '../observe/logger.ts'
import { withSpan } from '../observe/tracing.ts'
import type { ConfiguredProvider, CreateRequest, Owner, ProviderSet } from '../provider/contract.ts'
import { instanceName } from '../provider/names.ts'
import { decide, isRunning, isUnadopted, type Action } from './decide.ts'
import { holdForMs, intentsOf, isBusy, isProbed } from './hold.ts'
import { Neighbours } from './neighbours.ts'
import { InstanceObserver } from './observer.ts'
import { Operations } from './operations.ts'
import { probeTarget } from './probe-target.ts'
import type { EventSink, KeyQueue, ProbeControl, ProxyApi, ProxyReader, ReadSecret, TargetReadiness } from './ports.ts'
import { addressOf, project } from './project.ts'
import { ProxyWriter } from './proxy-writer.ts'
import { Repairs } from './repairs.ts'
import { eventsFor } from './transitions.ts'
import { SecretSources } from './userdata.ts'
import type { Desired, Probing, ProviderView, World } from './world.ts'

export interface ProxyHandlerDependencies {
  readonly store: ProxyReader
  readonly api: ProxyApi
  readonly readSecret: ReadSecret
  /** Where keys of Proxies are to be added when there is something new about them. */
  readonly queue: KeyQueue
  /** The providers in force; asked anew each time. */
  readonly providers: ProviderSet
  readonly probes: ProbeControl
  readonly readiness: TargetReadiness
  readonly events: EventSink
  readonly clock: Clock
  readonly random: Random
  readonly log: Logger
  /** Id of this installation, a DNS label. */
  readonly installation: string
  /** Probed where the spec names no URL. */
  readonly defaultCheckUrl?: string
  /** Whether this process may change anything: it holds the lease. */
  readonly mayMutate: () => boolean
}

export interface ProxyHandler {
  /** @param key `namespace/name` */
  reconcile(key: string, signal: AbortSignal): Promise<Outcome>
  /** Ends all operations and resolves when they let go of the hypervisors. Reconciling may begin again afterwards. */
  stop(): Promise<void>
}

export function createProxyHandler(dependencies: ProxyHandlerDependencies): ProxyHandler {
  return new Handler(dependencies)
}

type ManagedProxy = Proxy & { readonly spec: ManagedSpec }
/** What changes nothing on a hypervisor. */
type Stay = Extract<Action, { kind: 'watch' | 'probe' | 'hold' }>
/** Either this pass is over, or there is more to decide at once. */
type Step = Outcome | { readonly kind: 'again' }

const done: Outcome = { kind: 'done' }
const again: Step = { kind: 'again' }
/** What an operation is told that is to end. */
const letGoReasons = {
  deletion: 'the Proxy is being deleted',
  specChanged: 'the spec changed',
  suspend: 'the Proxy is suspended',
  otherObject: 'the name belongs to another Proxy',
} as const
/** Steps of one reconcile: more than any chain of decisions has, so that a loop of them becomes a retry with a delay. */
const maxSteps = 12

class Handler implements ProxyHandler {
  readonly #deps: ProxyHandlerDependencies
  readonly #writer: ProxyWriter
  readonly #operations: Operations
  readonly #observer: InstanceObserver
  readonly #secrets: SecretSources
  readonly #repairs: Repairs
  readonly #neighbours: Neighbours

  constructor(deps: ProxyHandlerDependencies) {
    const { api, clock, log, mayMutate, random, store } = deps
    const onChange = (key: string) => deps.queue.add(key)
    this.#deps = deps
    this.#writer = new ProxyWriter({ api, store, mayMutate, now: () => clock.now() })
    this.#observer = new InstanceObserver({ clock, random, log, onChange })
    this.#repairs = new Repairs({ clock, random })
    this.#neighbours = new Neighbours({ store, clock, newest: (key) => this.#writer.newest(key), onTrespass: onChange })
    this.#secrets = new SecretSources({ read: deps.readSecret, clock })
    this.#operations = new Operations({
      clock,
      random,
      log,
      mayMutate,
      onChange,
      isLive: async (uid) => (await api.list()).some(({ metadata }) => metadata.uid === uid),
      record: (key, uid, intent) => this.#writer.record(key, uid, intent),
    })
  }

  async reconcile(key: string, signal: AbortSignal): Promise<Outcome> {
    return await withSpan('reconcile.proxy', { attributes: { 'proxy.key': key } }, async () => {
      for (let step = 0; step < maxSteps; step++) {
        const result = await this.#step(key, signal)
        if (result.kind !== 'again') return result
      }
      return { kind: 'retry' }
    })
  }

  async stop(): Promise<void> {
    await this.#operations.stop()
    this.#observer.stop()
  }

  async #step(key: string, signal: AbortSignal): Promise<Step> {
    const proxy = this.#writer.newest(key)
    const uid = proxy?.metadata.uid
    const predecessorBusy = this.#operations.letGoOthers(key, uid)
    this.#observer.forgetOthers(key, uid)
    if (proxy === undefined) {
      this.#deps.probes.forget(key)
      this.#secrets.forget(key)
      this.#repairs.forget(key)
      return done
    }
    const world = await this.#gather(proxy, predecessorBusy, signal)
    const action = decide(world)
    this.#deps.log.debug('proxy decided', { proxy: key, action: action.kind, operation: world.operation.kind })
    return await this.#perform(world, action, signal)
  }

  async #gather(proxy: Proxy, predecessorBusy: boolean, signal: AbortSignal): Promise<World> {
    const { uid, namespace, name } = proxy.metadata
    const status = proxy.status ?? {}
    // read before the rest: what ends while a Secret is being read adds the key again
    const desired = await this.#desired(proxy, signal)
    const key = keyOf(proxy.metadata)
    const observation = this.#observer.observation(uid)
    const replacing = this.#neighbours.replacing(proxy)
    return {
      nowMs: this.#deps.clock.now(),
      proxy,
      status,
      instanceName: instanceName({ installation: this.#deps.installation, namespace, name }),
      desired,
      provider: this.#providerView(proxy, status),
      operation: this.#operations.view(uid),
      predecessorBusy,
      observation,
      verdict: this.#deps.probes.verdict(key),
      steadyForMs: this.#observer.steadyForMs(uid),
      repairInMs: this.#repairs.waitMs(key),
      taken: this.#neighbours.taken(proxy, observation),
      ...(replacing === undefined ? {} : { replacing }),
    }
  }

  async #desired(proxy: Proxy, signal: AbortSignal): Promise<Desired> {
    if (proxy.metadata.deletionTimestamp !== undefined || !isManagedProxy(proxy)) return { kind: 'unread' }
    return await this.#secrets.desiredHash(proxy, signal)
  }

  #providerView(proxy: Proxy, status: ProxyStatus): ProviderView {
    const configured = this.#providerOf(proxy)
    if (configured === undefined) return { kind: 'missing' }
    const { configHash, provider } = configured
    const target = status.latch?.target
    const readyMs = target === undefined ? undefined : this.#deps.readiness.lastReadyMs(provider.name, target)
    const ready = readyMs === undefined ? {} : { latchTargetReadyMs: readyMs }
    return { kind: 'configured', configHash, targets: provider.targets, ...ready }
  }

  async #perform(world: World, action: Action, signal: AbortSignal): Promise<Step> {
    const { proxy } = world
    const { uid } = proxy.metadata
    const key = keyOf(proxy.metadata)
    switch (action.kind) {
      case 'forget':
        this.#forget(key, uid)
        await this.#write(world, action, signal)
        return done
      case 'addFinalizer':
        await this.#writer.addFinalizer(proxy, signal)
        return again
      case 'letGo':
        this.#operations.letGo(uid, letGoReasons[action.why])
        this.#unobserve(key, uid)
        await this.#write(world, action, signal)
        // the end of the operation adds the key
        return done
      case 'startCreate':
        return await this.#create(world, action, signal)
      case 'startDelete':
        return await this.#delete(world, action, signal)
      case 'adopt':
      case 'clear':
      case 'latch':
        // settled only once it is written: a failed write is repeated from what the operation still tells
        if ((await this.#write(world, action, signal)) === undefined) return again
        this.#operations.settle(uid)
        if (action.kind === 'adopt') {
          // what was read beside the operation is of the time before
          this.#observer.forget(uid)
          this.#repairs.ran(key)
        }
        return again
      case 'release':
        if ((await this.#writer.removeFinalizer(proxy, signal)).kind === 'stale') return again
        this.#tell(world, action, world.status)
        this.#forget(key, uid)
        return done
      case 'watch':
      case 'probe':
      case 'hold':
        return await this.#stay(world, action, signal)
      default:
        return exhaustive(action)
    }
  }

  async #create(world: World, action: Extract<Action, { kind: 'startCreate' }>, signal: AbortSignal): Promise<Step> {
    const { proxy } = world
    const { uid, namespace, name } = proxy.metadata
    const configured = this.#providerOf(proxy)
    if (configured === undefined || !isManagedProxy(proxy)) return again
    if (!this.#deps.mayMutate()) return { kind: 'retry' }
    const data = await this.#secrets.userData(proxy, signal)
    // the Secret changed since the hash was taken: decide on what it is now
    if (data.kind !== 'known') return again
    if (world.desired.kind === 'known' && data.specHash !== world.desired.specHash) return again
    const adoption = action.why === 'unadopted'
    // an instance that works goes on being probed
    const written = await (adoption ? this.#write(world, action, signal) : this.#writeUnobserved(world, action, signal))
    if (written === undefined) return again
    const request: CreateRequest = {
      owner: this.#ownerOf(proxy),
      instanceName: world.instanceName,
      specHash: action.specHash,
      placement: proxy.spec.placement,
      intents: intentsOf(written.status),
      ...(data.bytes === undefined ? {} : { userData: data.bytes }),
    }
    this.#operations.startCreate({ key: keyOf({ namespace, name }), uid }, configured.provider, request, adoption)
    return done
  }

  async #delete(world: World, action: Extract<Action, { kind: 'startDelete' }>, signal: AbortSignal): Promise<Step> {
    const { proxy } = world
    const { uid } = proxy.metadata
    const key = keyOf(proxy.metadata)
    const configured = this.#providerOf(proxy)
    if (configured === undefined) return again
    if (!this.#deps.mayMutate()) return { kind: 'retry' }
    const write = () => this.#writeUnobserved(world, action, signal)
    const written = await (action.why === 'unhealthy' ? this.#neighbours.inTurn(proxy, write) : write())
    if (written === undefined) return again
    const { status = {} } = written
    this.#operations.startDelete({ key, uid }, configured.provider, {
      owner: this.#ownerOf(proxy),
      instanceName: status.instanceName ?? world.instanceName,
      intents: intentsOf(status),
      ...(status.providerID === undefined ? {} : { providerID: status.providerID }),
    })
    return done
  }

  /** Whatever was seen before a mutation must not be concluded from after it. */
  async #writeUnobserved(world: World, action: Action, signal: AbortSignal): Promise<Proxy | undefined> {
    this.#unobserve(keyOf(world.proxy.metadata), world.proxy.metadata.uid)
    return await this.#write(world, action, signal)
  }

  /** Nothing is changed on a hypervisor: the instance, where there is one, is observed and probed. */
  async #stay(world: World, action: Stay, signal: AbortSignal): Promise<Step> {
    const { proxy, status } = world
    const { uid } = proxy.metadata
    const key = keyOf(proxy.metadata)
    if (action.kind !== 'probe') {
      const { providerID } = status
      const unobserved = isBusy(action) || proxy.metadata.deletionTimestamp !== undefined
      if (unobserved || providerID === undefined) this.#unobserve(key, uid)
      else this.#observe(proxy, providerID)
    }
    // before the status is written: the first probe follows the address at once
    const probing = await this.#probe(world, action, signal)
    const doubtful = Object.keys(world.taken).length > 0
    if (probing.kind === 'on') this.#observer.suspect(uid, doubtful || probing.verdict.kind === 'unhealthy')
    const written = await this.#write(world, action, signal, probing)
    if (written === undefined) return again
    // an instance that runs has outlived the failures before
    if (action.kind === 'watch' && isRunning(world) && !isUnadopted(world)) this.#operations.settle(uid)
    return this.#nextLook(written, action)
  }

  #observe(proxy: Proxy, providerID: string): void {
    const configured = this.#providerOf(proxy)
    // without its provider nothing can be read; what was read stands
    if (configured === undefined) return
    const target = proxy.status?.intents?.at(-1)?.target
    const { metadata } = proxy
    this.#observer.watch({
      key: keyOf(metadata),
      uid: metadata.uid,
      provider: configured.provider,
      providerID,
      ...(target === undefined ? {} : { target }),
    })
  }

  async #probe(world: World, action: Stay, signal: AbortSignal): Promise<Probing> {
    const { probes, defaultCheckUrl } = this.#deps
    const { metadata, spec } = world.proxy
    const key = keyOf(metadata)
    const known = isExternal(spec) ? spec.host : addressOf(world)
    const host = isProbed(action) && metadata.deletionTimestamp === undefined ? known : undefined
    if (host === undefined) {
      probes.forget(key)
      return { kind: 'on', verdict: { kind: 'pending' } }
    }
    const url = spec.healthCheck.url ?? defaultCheckUrl
    if (url === undefined) {
      probes.forget(key)
      const message = 'there is no page to fetch through the proxy: set spec.healthCheck.url or --health-check-url'
      return { kind: 'impossible', reason: 'NoHealthCheckURL', message }
    }
    const secret = spec.credentialsSecretRef
    const read = secret === undefined ? undefined : await this.#secrets.credentials(world.proxy, secret.name, signal)
    if (read?.kind === 'unavailable') {
      probes.forget(key)
      return { kind: 'impossible', reason: read.reason, message: read.message }
    }
    probes.watch(key, probeTarget(world.proxy, host, url, read?.credentials))
    return { kind: 'on', verdict: probes.verdict(key) }
  }

  /** @returns the object as written; undefined when it changed meanwhile and must be decided on anew */
  async #write(world: World, action: Action, signal: AbortSignal, probing?: Probing): Promise<Proxy | undefined> {
    const next = project({ ...world, probing: probing ?? { kind: 'on', verdict: { kind: 'pending' } } }, action)
    const result = await this.#writer.writeStatus(world.proxy, next, signal)
    if (result.kind === 'stale') return undefined
    this.#tell(world, action, next)
    return result.proxy
  }

  #tell(world: World, action: Action, after: ProxyStatus): void {
    const { apiVersion, kind, metadata } = world.proxy
    const { namespace, name, uid } = metadata
    for (const note of eventsFor(world, action, after)) {
      this.#deps.events.record({ apiVersion, kind, namespace, name, uid }, note)
      this.#deps.log.info(note.message, { proxy: keyOf(metadata), reason: note.reason })
    }
  }

  #nextLook(proxy: Proxy, action: Stay): Outcome {
    const waits = [this.#secrets.rereadInMs(proxy)]
    if (action.kind === 'hold') waits.push(holdForMs(action.hold))
    if (action.kind === 'watch') waits.push(action.recheckInMs)
    const known = waits.filter((ms) => ms !== undefined)
    return known.length === 0 ? done : { kind: 'requeueAfter', ms: Math.max(Math.min(...known), 1) }
  }

  #unobserve(key: string, uid: string): void {
    this.#observer.forget(uid)
    this.#deps.probes.forget(key)
  }

  #forget(key: string, uid: string): void {
    this.#unobserve(key, uid)
    this.#operations.settle(uid)
    this.#secrets.forget(key)
    this.#repairs.forget(key)
  }

  #providerOf(proxy: Proxy): ConfiguredProvider | undefined {
    const { provider } = proxy.spec
    return provider === undefined ? undefined : this.#deps.providers.get(provider)
  }

  #ownerOf({ metadata }: Proxy): Owner {
    const { uid, namespace, name } = metadata
    return { uid, namespace, name, installation: this.#deps.installation }
  }
}

function isManagedProxy(proxy: Proxy): proxy is ManagedProxy {
  return isManaged(proxy.spec)
}

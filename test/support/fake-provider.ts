// A provider of the contract over an imaginary hypervisor that outlives it: every step can be held, failed or cut off.
import type {
  CallContext,
  CreateContext,
  CreateRequest,
  DeleteRequest,
  DeleteResult,
  Instance,
  InstanceListener,
  InstanceState,
  ListedInstance,
  MutationContext,
  ObservedStates,
  Leftover,
  Provider,
  TargetHealth,
} from '../../src/provider/contract.ts'
import { ProviderError } from '../../src/provider/errors.ts'

/** Where a create or a delete can be held, failed or killed, in this order. `record` comes before the first mutation. */
export const createSteps = ['begin', 'record', 'volume', 'define', 'start', 'return'] as const
export const deleteSteps = ['deleteBegin', 'destroy', 'removeVolume', 'deleteReturn'] as const
export type Step = (typeof createSteps)[number] | (typeof deleteSteps)[number] | 'get' | 'observe'

export interface FakeInstance {
  readonly providerID: string
  readonly name: string
  readonly target: string
  uid: string
  specHash: string
  userData: Buffer | undefined
  state: InstanceState
  ip: string | undefined
  /** What its get says about its image, if anything. */
  outdated?: string
  /** It has the mark of another type until a create returns. */
  unadopted?: boolean
}

export interface FakeProviderOptions {
  readonly name?: string
  readonly targets?: readonly string[]
  readonly events?: boolean
}

/** A call that waits at a step. */
export interface Held {
  /** Resolves when a call has arrived. */
  readonly reached: Promise<void>
  release(): void
}

interface Hold {
  readonly step: Step
  /** A mutating call on the wire: an abort is noticed only after it was answered. */
  readonly stubborn: boolean
  readonly arrive: () => void
  readonly released: Promise<void>
}

/** The hosts: what is on them stays when an operator dies. */
export class FakeHypervisor {
  readonly instances = new Map<string, FakeInstance>()
  /** `<target>/<name>`: disks, which exist before and after the instance. */
  readonly volumes = new Set<string>()
  /** Every step that was taken, with the name of the instance. */
  readonly steps: { readonly step: Step; readonly name: string }[] = []
  /** Address of the next instance that starts, or the next one after it that is free; undefined: it has none yet. */
  nextIp: string | undefined = '192.0.2.10'
  /** Those who are told when an instance changes: see {@link FakeProvider}. */
  readonly listeners = new Set<InstanceListener>()
  /** Calls of the contract that are in progress now. */
  mutationsInFlight = 0
  /** Most of them at a time so far. */
  mostMutationsInFlight = 0
  /** Targets that vanished from the config. */
  readonly goneTargets = new Set<string>()
  #epoch = 0
  readonly #holds: Hold[] = []
  readonly #failures: { readonly step: Step; readonly error: ProviderError; times: number }[] = []

  get epoch(): number {
    return this.#epoch
  }

  /** The operator dies: calls in progress never go on and never end. */
  kill(): void {
    this.#epoch++
    this.mutationsInFlight = 0
  }

  /** The next call that comes to `step` waits there. */
  hold(step: Step, options: { readonly stubborn?: boolean } = {}): Held {
    const reached = Promise.withResolvers<undefined>()
    const released = Promise.withResolvers<undefined>()
    this.#holds.push({
      step,
      stubborn: options.stubborn ?? false,
      arrive: () => reached.resolve(undefined),
      released: released.promise,
    })
    return { reached: reached.promise, release: () => released.resolve(undefined) }
  }

  /** The next calls that come to `step` fail there. */
  fail(step: Step, error: ProviderError, times = 1): void {
    this.#failures.push({ step, error, times })
  }

  /** No call is held or failed from now on. */
  heal(): void {
    this.#holds.length = 0
    this.#failures.length = 0
  }

  /** Names of all that is there, sorted. */
  get contents(): readonly string[] {
    return [...this.instances.keys(), ...this.volumes].sort()
  }

  /** Tells whoever listens that the instance changed. */
  tell(providerID: string): void {
    for (const listener of [...this.listeners]) listener({ providerID })
  }

  /** @internal */
  address(of: FakeInstance): string | undefined {
    const others = new Set([...this.instances.values()].flatMap((other) => (other === of ? [] : (other.ip ?? []))))
    const [, network, first] = /^(\d+\.\d+\.\d+\.)(\d+)$/.exec(this.nextIp ?? '') ?? []
    if (network === undefined) return this.nextIp
    let last = Number(first)
    while (others.has(`${network}${last}`)) last++
    return `${network}${last}`
  }

  only(): FakeInstance {
    const [instance, ...others] = this.instances.values()
    if (instance === undefined || others.length > 0) throw new Error(`${this.instances.size} instances instead of one`)
    return instance
  }

  /** @internal */
  async at(step: Step, name: string, signal: AbortSignal, epoch: number): Promise<void> {
    await this.#alive(epoch)
    throwIfAborted(signal)
    this.steps.push({ step, name })
    const hold = this.#holds.findIndex((candidate) => candidate.step === step)
    const [held] = hold < 0 ? [] : this.#holds.splice(hold, 1)
    if (held !== undefined) {
      held.arrive()
      await (held.stubborn ? held.released : Promise.race([held.released, abortion(signal)]))
      await this.#alive(epoch)
      throwIfAborted(signal)
    }
    const failure = this.#failures.find((candidate) => candidate.step === step)
    if (failure === undefined) return
    failure.times--
    if (failure.times <= 0) this.#failures.splice(this.#failures.indexOf(failure), 1)
    throw failure.error
  }

  async #alive(epoch: number): Promise<void> {
    if (epoch !== this.#epoch) await new Promise<never>(() => undefined)
  }
}

/** With `events` it tells of changes as {@link FakeHypervisor.tell} is called, and when it made or removed an instance. */
export class FakeProvider implements Provider {
  readonly name: string
  readonly type = 'fake'
  readonly targets: readonly string[]
  /** What the next checks find, by target; ready when not set. */
  readonly health = new Map<string, Partial<TargetHealth>>()
  checks = 0
  readonly watch?: (listener: InstanceListener) => () => void
  readonly #world: FakeHypervisor
  readonly #epoch: number

  constructor(world: FakeHypervisor, options: FakeProviderOptions = {}) {
    if (options.events === true) {
      this.watch = (listener) => {
        world.listeners.add(listener)
        return () => world.listeners.delete(listener)
      }
    }
    this.name = options.name ?? 'fake'
    this.targets = options.targets ?? ['host-a', 'host-b']
    this.#world = world
    this.#epoch = world.epoch
  }

  async create(request: CreateRequest, context: CreateContext): Promise<string> {
    return await this.#mutating(async () => {
      const { instanceName: name, owner, placement, specHash } = request
      const { signal } = context
      const step = (at: Step) => this.#world.at(at, name, signal, this.#epoch)
      await step('begin')
      const target = placement.zone ?? this.targets[0] ?? ''
      if (!this.targets.includes(target)) {
        const message = `placement.zone "${target}" is not one of the hosts`
        throw ProviderError.permanent('spec', message, { code: 'UnknownZone' })
      }
      await step('record')
      await context.record({ target })
      const providerID = `hosts/${target}/domains/${name}`
      const old = this.#world.instances.get(providerID)
      if (old !== undefined && old.uid !== owner.uid) {
        const live = await context.isLive(old.uid)
        const [make, code] = live
          ? ([(m: string, o: { code: string }) => ProviderError.permanent('environment', m, o), 'NotOurs'] as const)
          : ([(m: string, o: { code: string }) => ProviderError.transient(m, o), 'OrphanInTheWay'] as const)
        throw make(`instance ${name} belongs to UID ${old.uid}`, { code })
      }
      await step('volume')
      mustMutate(context)
      // stopped and without its boot disk it cannot be started: it is made anew
      const disk = `${target}/${name}`
      if (old?.state === 'stopped' && !this.#world.volumes.has(disk)) this.#world.instances.delete(providerID)
      this.#world.volumes.add(disk)
      await step('define')
      mustMutate(context)
      const instance: FakeInstance = this.#world.instances.get(providerID) ?? {
        providerID,
        name,
        target,
        uid: owner.uid,
        specHash,
        userData: request.userData?.reveal(),
        state: 'stopped',
        ip: undefined,
      }
      this.#world.instances.set(providerID, instance)
      await step('start')
      mustMutate(context)
      instance.state = 'running'
      instance.unadopted = false
      instance.ip = this.#world.address(instance)
      this.#world.tell(providerID)
      await step('return')
      return providerID
    })
  }

  async get(providerID: string, { signal }: CallContext): Promise<Instance> {
    await this.#world.at('get', providerID, signal, this.#epoch)
    const instance = this.#world.instances.get(providerID)
    if (instance === undefined) throw ProviderError.notFound(`${providerID} is gone`, { code: 'NotFound' })
    const { state, uid, specHash, ip, outdated, unadopted } = instance
    return {
      ...{ state, uid, specHash },
      ...(ip === undefined || state === 'stopped' ? {} : { ip }),
      ...(outdated === undefined ? {} : { outdated }),
      ...(unadopted === true ? { unadopted } : {}),
    }
  }

  async delete(request: DeleteRequest, context: MutationContext): Promise<DeleteResult> {
    return await this.#mutating(async () => {
      const { instanceName: name, owner, intents } = request
      const { signal } = context
      const step = (at: Step) => this.#world.at(at, name, signal, this.#epoch)
      await step('deleteBegin')
      const recorded = new Set(intents.map(({ target }) => target))
      const abandoned = [...recorded].filter((target) => !this.targets.includes(target))
      for (const target of recorded) {
        if (abandoned.includes(target)) continue
        await step('destroy')
        mustMutate(context)
        const providerID = `hosts/${target}/domains/${name}`
        if (this.#world.instances.get(providerID)?.uid === owner.uid) this.#world.instances.delete(providerID)
        await step('removeVolume')
        mustMutate(context)
        if (!this.#world.instances.has(providerID)) this.#world.volumes.delete(`${target}/${name}`)
      }
      await step('deleteReturn')
      return { abandoned: abandoned.map((target) => ({ target, instanceName: name })) }
    })
  }

  async observe(target: string, { signal }: CallContext): Promise<ObservedStates> {
    await this.#world.at('observe', target, signal, this.#epoch)
    const here = [...this.#world.instances.values()].filter((instance) => instance.target === target)
    return new Map(here.map(({ providerID, state }) => [providerID, state]))
  }

  list(): Promise<readonly ListedInstance[]> {
    return Promise.resolve(
      [...this.#world.instances.values()].map(({ providerID, name, target, state, uid }) => ({
        providerID,
        instanceName: name,
        target,
        state,
        mark: { uid },
      })),
    )
  }

  check(_context: CallContext): Promise<readonly TargetHealth[]> {
    this.checks++
    return Promise.resolve(
      this.targets.map((name) => ({
        name,
        address: `${name}.example.net:22`,
        ready: true,
        reason: 'Reachable',
        message: 'reachable',
        latencyMs: 3,
        details: {},
        ...this.health.get(name),
      })),
    )
  }

  leftovers(_context: CallContext): Promise<readonly Leftover[]> {
    const left = [...this.#world.volumes].filter((key) => {
      const [target = '', name = ''] = key.split('/')
      return !this.#world.instances.has(`hosts/${target}/domains/${name}`)
    })
    return Promise.resolve(
      left.map((key) => {
        const [target = '', instanceName = ''] = key.split('/')
        return { target, instanceName, volumes: [instanceName], uid: '', ageMs: 0 }
      }),
    )
  }

  async remove(leftover: Leftover, _context: MutationContext): Promise<void> {
    await this.#mutating(() => {
      this.#world.volumes.delete(`${leftover.target}/${leftover.instanceName}`)
      return Promise.resolve()
    })
  }

  async close(): Promise<void> {
    await Promise.resolve()
  }

  async #mutating<T>(work: () => Promise<T>): Promise<T> {
    this.#world.mutationsInFlight++
    this.#world.mostMutationsInFlight = Math.max(this.#world.mostMutationsInFlight, this.#world.mutationsInFlight)
    try {
      return await work()
    } finally {
      this.#world.mutationsInFlight--
    }
  }
}

function mustMutate(context: MutationContext): void {
  if (!context.mayMutate())
    throw ProviderError.transient('this process may no longer change anything', { code: 'LeaseLost' })
}

function throwIfAborted(signal: AbortSignal): void {
  if (signal.aborted) throw ProviderError.transient('the call was aborted', { code: 'Aborted' })
}

function abortion(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }))
}

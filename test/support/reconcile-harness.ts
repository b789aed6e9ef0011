// One operator's reconciling over worlds that outlive it, on a clock moved by hand: it can be killed and started again.
import type { ProbeTarget, Verdict } from '../../src/api/probe.ts'
import type { EventNote } from '../../src/kube/events.ts'
import type { ObjectRef } from '../../src/kube/object.ts'
import { keyOf } from '../../src/kube/object.ts'
import { KubeError } from '../../src/kube/errors.ts'
import { WorkQueue } from '../../src/kube/queue.ts'
import { runWorkers } from '../../src/kube/workers.ts'
import { silentLogger } from '../../src/observe/logger.ts'
import type { ConfiguredProvider, ProviderSet } from '../../src/provider/contract.ts'
import type { ProbeControl } from '../../src/reconcile/ports.ts'
import { createProxyHandler, type ProxyHandler } from '../../src/reconcile/proxy-handler.ts'
import { FakeHypervisor, FakeProvider } from './fake-provider.ts'
import { ManualClock } from './manual-clock.ts'
import { MemoryProxies } from './memory-proxies.ts'

/** Probes by hand. */
export class FakeProbes implements ProbeControl {
  readonly watched = new Map<string, ProbeTarget>()
  readonly verdicts = new Map<string, Verdict>()
  /** What every target that has no verdict of its own gets as soon as it is probed. */
  answer: Verdict = { kind: 'healthy', latencyMs: 5 }
  onTransition: (key: string) => void = () => undefined

  watch(key: string, target: ProbeTarget): void {
    const before = JSON.stringify(this.watched.get(key))
    this.watched.set(key, target)
    if (before === JSON.stringify(target)) return
    this.verdicts.delete(key)
    queueMicrotask(() => this.say(key, this.answer))
  }

  forget(key: string): void {
    this.watched.delete(key)
    this.verdicts.delete(key)
  }

  verdict(key: string): Verdict {
    return this.verdicts.get(key) ?? { kind: 'pending' }
  }

  say(key: string, verdict: Verdict): void {
    if (!this.watched.has(key)) return
    this.verdicts.set(key, verdict)
    this.onTransition(key)
  }
}

interface Process {
  alive: boolean
  readonly queue: WorkQueue
  readonly handler: ProxyHandler
  readonly abort: AbortController
  readonly workers: Promise<void>
  readonly endReflecting: () => void
}

export class ReconcileHarness {
  readonly clock = new ManualClock()
  readonly hypervisor = new FakeHypervisor()
  readonly proxies = new MemoryProxies()
  readonly secrets = new Map<string, ReadonlyMap<string, Buffer>>()
  readonly events: (EventNote & { readonly proxy: string })[] = []
  /** By `provider/target`, milliseconds since the epoch. */
  readonly readyMs = new Map<string, number>()
  readonly configured = new Map<string, ConfiguredProvider>()
  leaseHeld = true
  probes = new FakeProbes()
  secretReads = 0
  /** Called after each read of a Secret. */
  onSecretRead: () => void = () => undefined
  /** Set: every read of a Secret fails with it. */
  secretFailure: KubeError | undefined
  #process: Process | undefined
  /** Hash of the entry `fake`. */
  configHash = 'config-1'

  /** Starts the operator; what it knows it reads from the worlds. */
  start(): void {
    if (this.#process !== undefined) throw new Error('an operator runs already')
    const { clock } = this
    const random = () => 0
    const queue = new WorkQueue({ clock, random })
    const probes = new FakeProbes()
    probes.answer = this.probes.answer
    probes.onTransition = (key) => queue.add(key)
    this.probes = probes
    const abort = new AbortController()
    const isAlive = () => this.#process?.abort === abort && this.#process.alive
    const { store, end } = this.proxies.reflect((key) => queue.add(key))
    this.configure()
    const providers: ProviderSet = {
      get: (name) => this.configured.get(name),
      list: () => [...this.configured.values()],
    }
    const handler = createProxyHandler({
      store,
      api: this.proxies.api(isAlive),
      readSecret: (ref) => this.#readSecret(ref, isAlive),
      queue,
      providers,
      probes,
      readiness: { lastReadyMs: (provider, target) => this.readyMs.get(`${provider}/${target}`) },
      events: { record: ({ name }, note) => this.events.push({ ...note, proxy: name }) },
      clock,
      random,
      log: silentLogger,
      installation: 'test',
      defaultCheckUrl: 'http://check.example.net/ip',
      mayMutate: () => this.leaseHeld,
    })
    const reconcile = (key: string, signal: AbortSignal) => handler.reconcile(key, signal)
    const workers = runWorkers(queue, 8, reconcile, { signal: abort.signal, clock, logger: silentLogger })
    this.#process = { alive: true, queue, handler, abort, workers, endReflecting: end }
  }

  /** The provider `fake` as a config just loaded has it. */
  configure(targets: readonly string[] = ['host-a', 'host-b']): void {
    const provider = new FakeProvider(this.hypervisor, { targets })
    this.configured.set('fake', { provider, configHash: this.configHash })
  }

  /** SIGKILL: nothing of it goes on, nothing is cleaned up. */
  kill(): void {
    const process = this.#running()
    process.alive = false
    process.endReflecting()
    this.hypervisor.kill()
    this.#process = undefined
  }

  /** SIGTERM. */
  async stop(): Promise<void> {
    const process = this.#running()
    process.abort.abort(new Error('stop'))
    await process.workers
    await process.handler.stop()
    process.endReflecting()
    this.#process = undefined
  }

  async restart(): Promise<void> {
    this.kill()
    this.start()
    await this.settle()
  }

  /** Lets everything happen that needs no time. */
  async settle(): Promise<void> {
    for (let round = 0; round < 8; round++) await this.clock.advance(0)
  }

  async advance(ms: number): Promise<void> {
    await this.clock.advance(ms)
    await this.settle()
  }

  add(name: string): void {
    this.#running().queue.add(`default/${name}`)
  }

  reasons(name: string): readonly string[] {
    return this.events.filter(({ proxy }) => proxy === name).map(({ reason }) => reason)
  }

  condition(name: string, type: string) {
    return this.proxies.status(name).conditions?.find((condition) => condition.type === type)
  }

  phase(name: string): string | undefined {
    return this.proxies.status(name).phase
  }

  async #readSecret(ref: ObjectRef, isAlive: () => boolean): Promise<ReadonlyMap<string, Buffer>> {
    await Promise.resolve()
    if (!isAlive()) await new Promise<never>(() => undefined)
    this.secretReads++
    if (this.secretFailure !== undefined) throw this.secretFailure
    const secret = this.secrets.get(keyOf(ref))
    this.onSecretRead()
    if (secret !== undefined) return secret
    throw new KubeError('not found', { code: 'KUBE_NOT_FOUND', status: 404, reason: 'NotFound' })
  }

  #running(): Process {
    if (this.#process === undefined) throw new Error('no operator runs')
    return this.#process
  }
}

/** A spec that the fake provider can make. */
export const baseSpec = {
  provider: 'fake',
  placement: { zone: 'host-a', machineType: 'small', image: 'debian' },
} as const

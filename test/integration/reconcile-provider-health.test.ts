// ProviderHealth objects through real HTTP: the monitor against the in-process Kubernetes API.
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { ProviderHealth } from '../../src/api/provider-health.ts'
import { KubeClient } from '../../src/kube/client.ts'
import type { EventNote, EventSubject } from '../../src/kube/events.ts'
import { systemClock } from '../../src/lib/clock.ts'
import { silentLogger } from '../../src/observe/logger.ts'
import { createMetrics, type Metrics } from '../../src/observe/metrics.ts'
import type { ConfiguredProvider } from '../../src/provider/contract.ts'
import { kubeProviderHealthApi } from '../../src/reconcile/kube-api.ts'
import { ProviderHealthMonitor } from '../../src/reconcile/provider-health.ts'
import { providerHealthResource } from '../../src/reconcile/resources.ts'
import { eventually } from '../support/eventually.ts'
import { FakeHypervisor, FakeProvider } from '../support/fake-provider.ts'
import { startKubeApi, type KubeApi } from '../support/kube-api/kube-api.ts'

const label = 'egressproxies.dev/installation'
const budgetMs = 60_000
let api: KubeApi
let client: KubeClient
let metrics: Metrics
let monitor: ProviderHealthMonitor
let ready: string[]
let events: (EventNote & { readonly about: string })[]
const configured = new Map<string, ConfiguredProvider>()

beforeEach(async () => {
  api = await startKubeApi({ kinds: [providerHealthResource] })
  client = KubeClient.fromKubeconfig({ text: api.kubeconfig() })
  metrics = createMetrics()
  ready = []
  events = []
  configured.clear()
  monitor = new ProviderHealthMonitor({
    api: kubeProviderHealthApi(client),
    providers: { get: (name) => configured.get(name), list: () => [...configured.values()] },
    events: { record: ({ name }: EventSubject, note) => events.push({ ...note, about: name }) },
    clock: systemClock,
    log: silentLogger,
    metrics,
    installation: 'here',
    intervalMs: 30,
    timeoutMs: 200,
    onTargetReady: (provider, target) => ready.push(`${provider}/${target}`),
  })
})

afterEach(async () => {
  await monitor.stop()
  await client.close()
  await api.stop()
})

function configure(name: string): FakeProvider {
  const provider = new FakeProvider(new FakeHypervisor(), { name })
  configured.set(name, { provider, configHash: 'config-1' })
  return provider
}

const read = (name: string) => client.get<ProviderHealth>(providerHealthResource, { name })
const names = () => api.stored(providerHealthResource).map(({ metadata }) => metadata.name)
const until = (name: string, what: string, holds: (object: ProviderHealth) => boolean) =>
  eventually(what, budgetMs, async () => {
    const object = await read(name)
    return holds(object) ? object : undefined
  })
const writes = () => api.requests.filter(({ method, url }) => method === 'PATCH' && url.endsWith('/status')).length
const gauge = () => metrics.registry.getSingleMetricAsString('proxy_operator_provider_target_up')

describe('a provider', () => {
  it('has an object that tells how its targets are', async () => {
    configure('home')
    monitor.start()
    const object = await until('home', 'it is ready', ({ status }) => status?.ready === true)
    expect(object.metadata.labels).toEqual({ [label]: 'here' })
    expect(object.status).toMatchObject({
      type: 'fake',
      readyTargets: '2/2',
      targets: [
        { name: 'host-a', ready: true, reason: 'Reachable', latencyMillis: 3 },
        { name: 'host-b', ready: true },
      ],
      conditions: [{ type: 'Ready', status: 'True' }],
    })
    expect(await gauge()).toContain('{provider="home",target="host-a"} 1')
    expect(ready).toContain('home/host-b')
    expect(monitor.lastReadyMs('home', 'host-a')).toBeGreaterThan(0)
  })

  it('tells a target that fails, and that it came back', async () => {
    const provider = configure('home')
    provider.health.set('host-b', { ready: false, reason: 'Unreachable', message: 'no route' })
    monitor.start()
    const down = await until('home', 'it is not ready', ({ status }) => status?.ready === false)
    expect(down.status).toMatchObject({ readyTargets: '1/2' })
    expect(down.status?.conditions?.[0]).toMatchObject({ reason: 'Unreachable', message: 'host-b: no route' })
    expect(await gauge()).toContain('{provider="home",target="host-b"} 0')
    expect(monitor.lastReadyMs('home', 'host-b')).toBeUndefined()
    const since = down.status?.targets?.find(({ name }) => name === 'host-a')?.lastTransitionTime
    provider.health.clear()
    const up = await until('home', 'it is ready', ({ status }) => status?.ready === true)
    expect(up.status?.targets?.find(({ name }) => name === 'host-a')?.lastTransitionTime).toBe(since)
    expect(events.map(({ reason }) => reason)).toEqual(['ProviderNotReady', 'ProviderReady'])
  })

  it('writes nothing while nothing but times and latencies changes', async () => {
    const provider = configure('home')
    monitor.start()
    await until('home', 'it is ready', ({ status }) => status?.ready === true)
    const before = provider.checks
    await eventually('ten more rounds', budgetMs, () => {
      provider.health.set('host-a', { latencyMs: provider.checks })
      return Promise.resolve(provider.checks > before + 10 ? true : undefined)
    })
    expect(writes()).toBe(1)
  })

  it('whose check never ends is not ready, and delays no other', async () => {
    const stuck = configure('stuck')
    stuck.check = () => new Promise(() => undefined)
    configure('home')
    monitor.start()
    await until('home', 'the other is ready', ({ status }) => status?.ready === true)
    const object = await until('stuck', 'it has timed out', ({ status }) => status?.ready === false)
    expect(object.status?.targets?.[0]).toMatchObject({ name: 'host-a', ready: false, reason: 'Timeout' })
  })

  it('whose check throws is not ready', async () => {
    configure('home').check = () => Promise.reject(new TypeError('a mistake'))
    monitor.start()
    const object = await until('home', 'it is not ready', ({ status }) => status?.ready === false)
    expect(object.status?.targets?.[0]).toMatchObject({ reason: 'CheckFailed', message: 'a mistake' })
  })

  it('that leaves the config loses its object and its series, one that comes gets them', async () => {
    configure('old')
    monitor.start()
    await until('old', 'it is ready', ({ status }) => status?.ready === true)
    configured.clear()
    configure('new')
    monitor.refresh()
    await until('new', 'it is ready', ({ status }) => status?.ready === true)
    await eventually('the old one is gone', budgetMs, () => Promise.resolve(names().includes('old') ? undefined : true))
    expect(await gauge()).not.toContain('"old"')
    expect(monitor.lastReadyMs('old', 'host-a')).toBeUndefined()
  })

  it('that left while nobody was there is cleared away at the next start, but for what it still holds', async () => {
    for (const name of ['left', 'holding']) {
      await client.create(providerHealthResource, { metadata: { name, labels: { [label]: 'here' } } })
    }
    const retained = [{ uid: 'u', instance: 'i', since: '2026-01-01T00:00:00Z' }]
    await client.patchStatus(providerHealthResource, { name: 'holding' }, { retained })
    monitor.start()
    await eventually('it is gone', budgetMs, () => Promise.resolve(names().includes('left') ? undefined : true))
    expect(names()).toEqual(['holding'])
  })
})

describe('an object', () => {
  it('of another installation is left alone and reported', async () => {
    await client.create(providerHealthResource, { metadata: { name: 'home', labels: { [label]: 'there' } } })
    const before = await read('home')
    const provider = configure('home')
    monitor.start()
    await eventually('some rounds', budgetMs, () => Promise.resolve(provider.checks > 3 ? true : undefined))
    configured.clear()
    monitor.refresh()
    await monitor.stop()
    expect(await read('home')).toEqual(before)
    expect(events.some(({ reason, about }) => reason === 'OtherInstallation' && about === 'home')).toBe(true)
  })

  it('of nobody is taken over', async () => {
    await client.create(providerHealthResource, { metadata: { name: 'home' } })
    configure('home')
    monitor.start()
    const object = await until('home', 'it is ready', ({ status }) => status?.ready === true)
    expect(object.metadata.labels).toEqual({ [label]: 'here' })
  })
})

describe('an API server that is away', () => {
  it('stops no check, and what is true is written when it is back', async () => {
    const provider = configure('home')
    monitor.start()
    await until('home', 'it is ready', ({ status }) => status?.ready === true)
    await api.stop()
    provider.health.set('host-a', { ready: false, reason: 'Unreachable', message: 'no route' })
    const before = provider.checks
    await eventually('more checks', budgetMs, () => Promise.resolve(provider.checks > before + 3 ? true : undefined))
    await api.start()
    await until('home', 'it is not ready', ({ status }) => status?.ready === false)
  })
})

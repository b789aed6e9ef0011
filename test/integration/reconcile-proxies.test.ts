// Proxies through real HTTP: the reconciler with its reflector and writer against the in-process Kubernetes API.
import { randomBytes } from 'node:crypto'
import { gzipSync } from 'node:zlib'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { Proxy } from '../../src/api/proxy.ts'
import { KubeClient } from '../../src/kube/client.ts'
import { proxyResource, secretResource } from '../../src/reconcile/resources.ts'
import { eventually } from '../support/eventually.ts'
import { FakeHypervisor, FakeProvider } from '../support/fake-provider.ts'
import { startKubeApi, type KubeApi } from '../support/kube-api/kube-api.ts'
import { baseSpec } from '../support/reconcile-harness.ts'
import { proxyObject, startReconcileOperator, type RunningOperator } from '../support/reconcile-operator.ts'

let api: KubeApi
let client: KubeClient
let world: FakeHypervisor
let operator: RunningOperator
const budgetMs = 60_000

beforeEach(async () => {
  api = await startKubeApi({ kinds: [proxyResource] })
  client = KubeClient.fromKubeconfig({ text: api.kubeconfig() })
  world = new FakeHypervisor()
  operator = start()
})

afterEach(async () => {
  await operator.stop()
  await client.close()
  await api.stop()
})

function start(): RunningOperator {
  const configured = { provider: new FakeProvider(world), configHash: 'config-1' }
  return startReconcileOperator(api, {
    get: (name) => (name === 'fake' ? configured : undefined),
    list: () => [configured],
  })
}

const apply = (name: string, spec: object = {}) =>
  client.create<Proxy>(proxyResource, proxyObject(name, { ...baseSpec, ...spec }))
const read = (name: string) => client.get<Proxy>(proxyResource, { namespace: 'default', name })
const remove = (name: string) => client.delete(proxyResource, { namespace: 'default', name })
const stored = () => api.stored(proxyResource).map(({ metadata }) => metadata.name)
const untilReady = (name: string) =>
  eventually(`${name} is Ready`, budgetMs, async () => {
    const proxy = await read(name)
    return proxy.status?.phase === 'Ready' ? proxy : undefined
  })
const untilGone = (name: string) =>
  eventually(`${name} is gone`, budgetMs, () => Promise.resolve(stored().includes(name) ? undefined : true))

describe('a Proxy', () => {
  it('is made, replaced and deleted, and its story is told in Events', async () => {
    await apply('a')
    const first = await untilReady('a')
    expect(first.status).toMatchObject({ providerID: world.only().providerID, endpoint: 'http://192.0.2.10:3128' })

    const placement = { ...baseSpec.placement, machineType: 'large' }
    await client.patch(proxyResource, first.metadata, { kind: 'merge', body: { spec: { placement } } })
    await eventually('it is replaced', budgetMs, async () => {
      const { status } = await read('a')
      return status?.phase === 'Ready' && status.specHash !== first.status?.specHash ? true : undefined
    })
    expect(world.only().specHash).toBe((await read('a')).status?.specHash)

    await remove('a')
    await untilGone('a')
    expect(world.contents).toEqual([])
    const reasons = await eventually('the last Event is there', budgetMs, () => {
      const all = api.stored({ group: '', plural: 'events' }).map(({ reason }) => reason)
      return Promise.resolve(all.filter((reason) => reason === 'InstanceDeleted').length === 0 ? undefined : all)
    })
    for (const reason of ['Creating', 'InstanceCreated', 'AddressAssigned', 'Healthy', 'Replacing', 'Deleting']) {
      expect(reasons).toContain(reason)
    }
  })

  it('gets 300 KiB of gzip from a Secret, byte for byte', async () => {
    const bytes = gzipSync(randomBytes(300 * 1024))
    expect(bytes.length).toBeGreaterThan(300 * 1024)
    await client.create(secretResource, {
      metadata: { name: 'ud', namespace: 'default' },
      data: { 'user-data': bytes.toString('base64') },
    })
    await apply('a', { cloudInitFrom: { secretKeyRef: { name: 'ud', key: 'user-data' } } })
    await untilReady('a')
    expect(world.only().userData?.equals(bytes)).toBe(true)
    const everything = JSON.stringify([api.stored(proxyResource), api.stored({ group: '', plural: 'events' })])
    expect(everything).not.toContain(bytes.toString('base64').slice(0, 40))
  })

  it('survives a stop and a start of the operator at any time', async () => {
    for (const step of ['begin', 'record', 'define', 'return'] as const) {
      const hold = world.hold(step)
      await apply(`a-${step}`)
      await hold.reached
      const stopping = operator.stop()
      hold.release()
      await stopping
      operator = start()
      await untilReady(`a-${step}`)
    }
    expect(world.instances.size).toBe(4)
    expect(new Set([...world.instances.values()].map(({ uid }) => uid)).size).toBe(4)
  })
})

describe('conflicts with other writers', () => {
  it('lose neither their write nor ours', async () => {
    const hold = world.hold('record')
    await apply('a')
    await hold.reached
    // somebody edits labels all the time while intents, phases and conditions are written
    const editing = new AbortController()
    const edit = async () => {
      let count = 0
      for (; !editing.signal.aborted; count++) {
        const body = { metadata: { labels: { count: String(count) } } }
        await client.patch(proxyResource, { namespace: 'default', name: 'a' }, { kind: 'merge', body })
        await new Promise((resolve) => setTimeout(resolve, 10))
      }
      return count
    }
    const edits = edit()
    hold.release()
    await untilReady('a').finally(() => editing.abort())
    const count = await edits
    const proxy = await read('a')
    expect(proxy.metadata.labels?.['count']).toBe(String(count - 1))
    expect(proxy.status?.intents).toHaveLength(1)
    expect(world.instances.size).toBe(1)
  })
})

describe('an API server that is stopped while twenty Proxies come and go', () => {
  it('is waited for, and no deletion is lost', async () => {
    const names = Array.from({ length: 20 }, (_, index) => `p-${index}`)
    await Promise.all(names.slice(0, 10).map((name) => apply(name)))
    await Promise.all(names.slice(0, 10).map(untilReady))
    await Promise.all([...names.slice(10).map((name) => apply(name)), ...names.slice(0, 10).map(remove)])
    await api.stop()
    // longer than every backoff of the test's operator, so that each part of it met the absence
    await new Promise((resolve) => setTimeout(resolve, 2000))
    await api.start()
    await Promise.all(names.slice(0, 10).map(untilGone))
    await Promise.all(names.slice(10).map(untilReady))
    expect(stored().sort()).toEqual(names.slice(10).sort())
    expect(world.instances.size).toBe(10)
    expect(world.volumes.size).toBe(10)
    await Promise.all(names.slice(10).map(remove))
    await Promise.all(names.slice(10).map(untilGone))
    expect(world.contents).toEqual([])
  })
})

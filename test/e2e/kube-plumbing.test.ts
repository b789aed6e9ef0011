// The Kubernetes plumbing against a real API server, over TLS with client certificates: watch, writes, Events, a restart.
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { systemClock } from '../../src/lib/clock.ts'
import { KubeClient, isAlreadyExists } from '../../src/kube/client.ts'
import { EventRecorder } from '../../src/kube/events.ts'
import { OperatorHost, type ResourceMeta } from '../../src/kube/host.ts'
import type { Reflector } from '../../src/kube/reflector.ts'
import { clusterAvailable, startCluster, type Cluster } from '../support/cluster.ts'
import { canRun } from '../support/e2e/availability.ts'
import { eventually } from '../support/eventually.ts'
import { definitions, widgetDefinition, widgets, type Widget } from '../support/kube-api/widgets.ts'
import { recordingLogger } from '../support/recording-logger.ts'

const runs = canRun('the Kubernetes plumbing on a real API server', [clusterAvailable()])
const budgetMs = 120_000
const namespace = 'default'
const finalizer = 'suite.egressproxies.dev/instance'

class ExposedHost extends OperatorHost {
  putStatus(meta: ResourceMeta, status: unknown): Promise<ResourceMeta> {
    return this.setResourceStatus(meta, status)
  }
}

describe.skipIf(!runs)('the Kubernetes plumbing on a real API server', () => {
  const logger = recordingLogger()
  const parts = { clock: systemClock, random: Math.random, logger }
  const told: string[] = []
  let cluster: Cluster
  let client: KubeClient
  let host: ExposedHost
  let reflector: Reflector<Widget>

  beforeAll(async () => {
    cluster = await startCluster()
    client = KubeClient.fromKubeconfig({ file: cluster.kubeconfigPath })
    await client.create(definitions, widgetDefinition).catch((error: unknown) => {
      if (!isAlreadyExists(error)) throw error
    })
    await eventually('the widgets are served', budgetMs, () => client.list(widgets))
    host = new ExposedHost({ client, ...parts })
    reflector = host.watch<Widget>({
      type: widgets,
      onEvent: (kind, { metadata }) => told.push(`${kind} ${metadata.name}`),
      timing: { pageSize: 2, backoff: { baseMs: 100, maxMs: 1000, jitter: 0.5 } },
    })
    await host.start()
    await host.synced()
  })

  afterAll(async () => {
    await host.stopped()
    await client.close()
    await cluster.down()
  })

  const create = (name: string) => client.create<Widget>(widgets, { metadata: { namespace, name } })
  const cached = async (name: string, holds: (object: Widget) => boolean) =>
    await eventually(`the store has ${name} so`, budgetMs, () => {
      const object = reflector.store.get({ namespace, name })
      return Promise.resolve(object !== undefined && holds(object) ? object : undefined)
    })

  it('writes finalizers and status, alone and by the framework, and lets go', async () => {
    const made = await create('written')
    const ref = { namespace, name: 'written', uid: made.metadata.uid }
    await client.patch(widgets, ref, { kind: 'merge', body: { metadata: { finalizers: [finalizer] } } })
    await client.patchStatus(widgets, ref, { phase: 'Pending' })
    const pending = await cached('written', (object) => object.status?.phase === 'Pending')
    expect(pending.metadata.finalizers).toEqual([finalizer])
    const { resourceVersion } = pending.metadata
    const meta = {
      id: 'widgets.suite.egressproxies.dev/v1',
      kind: 'Widget',
      apiVersion: 'suite.egressproxies.dev/v1',
    }
    const known = { ...meta, namespace, name: 'written', resourceVersion }
    await host.putStatus(known, { phase: 'Ready' })
    await expect(host.putStatus(known, { phase: 'Failed' })).rejects.toMatchObject({ code: 'KUBE_CONFLICT' })
    await cached('written', (object) => object.status?.phase === 'Ready')
    await client.delete(widgets, ref, { uid: ref.uid })
    await cached('written', (object) => object.metadata.deletionTimestamp !== undefined)
    await client.patch(widgets, ref, { kind: 'merge', body: { metadata: { finalizers: [] } } })
    await eventually('it is gone from the store', budgetMs, () =>
      Promise.resolve(told.includes('deleted written') || undefined),
    )
    expect(reflector.store.get({ namespace, name: 'written' })).toBeUndefined()
  })

  it('writes Events that kubectl describe shows with their count', async () => {
    const { metadata } = await create('eventful')
    const recorder = new EventRecorder({ client, ...parts, component: 'suite', instance: 'here' })
    const subject = {
      apiVersion: 'suite.egressproxies.dev/v1',
      kind: 'Widget',
      namespace,
      name: 'eventful',
      uid: metadata.uid,
    }
    for (let n = 0; n < 3; n++) {
      recorder.record(subject, { type: 'Warning', reason: 'CreateFailed', message: 'the pool is not running' })
    }
    await recorder.stop(budgetMs)
    expect(await cluster.kubectl(['describe', 'widget', 'eventful'])).toMatch(
      /Warning\s+CreateFailed\s+\S+ \(x3 over \S+\)\s+suite\s+the pool is not running/,
    )
  })

  it('carries on after the API server was away, and misses nothing of what it was told in between', async () => {
    for (const name of ['kept', 'lost', 'again']) await create(name)
    await cached('again', () => true)
    const { uid } = await client.get(widgets, { namespace, name: 'again' }).then(({ metadata }) => metadata)
    const failures = logger.lines.length
    await cluster.stopApiServer()
    await eventually('the watch is lost', budgetMs, () =>
      Promise.resolve(logger.lines.length >= failures + 3 || undefined),
    )
    await cluster.startApiServer()
    for (const name of ['lost', 'again']) await client.delete(widgets, { namespace, name })
    for (const name of ['again', 'new']) await create(name)
    await cached('new', () => true)
    await cached('again', (object) => object.metadata.uid !== uid)
    const { items } = await client.listAll<Widget>(widgets)
    const versions = (objects: readonly Widget[]) =>
      objects.map(({ metadata }) => `${metadata.name}@${metadata.resourceVersion}`).sort()
    expect(versions(reflector.store.list())).toEqual(versions(items))
    expect(told).toContain('deleted lost')
    expect(told).toContain('deleted again')
  })
})

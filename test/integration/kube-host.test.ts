// The framework's Operator as this project hosts it, over real sockets: every flaw of the base class, answered.
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { systemClock } from '../../src/lib/clock.ts'
import { KubeClient } from '../../src/kube/client.ts'
import { OperatorHost, type ResourceMeta } from '../../src/kube/host.ts'
import { eventually } from '../support/eventually.ts'
import { startKubeApi, type KubeApi } from '../support/kube-api/kube-api.ts'
import { definitions, widgetDefinition, widgetKind, widgets, type Widget } from '../support/kube-api/widgets.ts'
import { recordingLogger, type RecordingLogger } from '../support/recording-logger.ts'

const budgetMs = 60_000
const namespace = 'default'
const finalizer = 'suite.egressproxies.dev/instance'
const timing = { backoff: { baseMs: 20, maxMs: 200, jitter: 0 } }

/** Shows what the framework keeps for subclasses. */
class ExposedHost extends OperatorHost {
  readonly seen: string[] = []
  readonly metas = new Map<string, ResourceMeta>()

  async watchWidgets(onEvent: () => Promise<void>): Promise<void> {
    await this.watchResource(widgets.group, widgets.version, widgets.plural, async ({ meta, type }) => {
      this.seen.push(`${type} ${meta.kind} ${meta.name}`)
      this.metas.set(meta.name, meta)
      await onEvent()
    })
  }

  uri(where?: string): string {
    return this.getCustomResourceApiUri(widgets.group, widgets.version, widgets.plural, where)
  }

  putStatus(meta: ResourceMeta, status: unknown): Promise<ResourceMeta> {
    return this.setResourceStatus(meta, status)
  }

  mergeStatus(meta: ResourceMeta, status: unknown): Promise<ResourceMeta> {
    return this.patchResourceStatus(meta, status)
  }

  setFinalizers(meta: ResourceMeta, finalizers: string[]): Promise<void> {
    return this.setResourceFinalizers(meta, finalizers)
  }

  register(file: string): ReturnType<OperatorHost['registerCustomResourceDefinition']> {
    return this.registerCustomResourceDefinition(file)
  }
}

describe('the operator host', () => {
  let api: KubeApi
  let client: KubeClient
  let logger: RecordingLogger
  let host: ExposedHost

  beforeEach(async () => {
    api = await startKubeApi({ kinds: [widgetKind] })
    client = KubeClient.fromKubeconfig({ text: api.kubeconfig() })
    logger = recordingLogger()
    host = new ExposedHost({ client, clock: systemClock, random: () => 0, logger })
  })

  afterEach(async () => {
    await host.stopped()
    await client.close()
    await api.stop()
  })

  const create = (name: string) => client.create<Widget>(widgets, { metadata: { namespace, name } })
  const read = (name: string) => client.get<Widget>(widgets, { namespace, name })
  const stored = (name: string) => api.stored(widgets).find((object) => object.metadata.name === name)
  const holds = (condition: () => boolean) => () => Promise.resolve(condition() || undefined)
  const metaOf = async (name: string) => {
    await host.watchWidgets(() => Promise.resolve())
    await host.start()
    return await eventually('the object is seen', budgetMs, () => Promise.resolve(host.metas.get(name)))
  }

  it('opens what was registered before and after its start, syncs, and closes it', async () => {
    await create('one')
    const first = host.watch<Widget>({ type: widgets, timing })
    await host.start()
    await host.synced()
    expect(first.store.size).toBe(1)
    const second = host.watch<Widget>({ type: widgets, namespace: 'kube-system', timing })
    await second.synced
    expect(second.store.size).toBe(0)
    await eventually(
      'both watches are open',
      budgetMs,
      holds(() => api.openWatches === 2),
    )
    await host.stopped()
    await eventually(
      'both are closed',
      budgetMs,
      holds(() => api.openWatches === 0),
    )
  })

  it('keeps the process through everything that ended it before', async () => {
    const reflector = host.watch<Widget>({ type: widgets, timing })
    await host.start()
    await host.synced()
    for (const status of [429, 500, 410]) {
      const failing = api.requests.length
      const release = api.faults.fail({ status })
      api.dropWatches()
      await eventually(
        'it tried again',
        budgetMs,
        holds(() => api.requests.length > failing + 1),
      )
      release()
    }
    await api.stop()
    await api.start()
    await eventually('the server answers', budgetMs, () => create('after'))
    await eventually(
      'it is seen',
      budgetMs,
      holds(() => reflector.store.get('default/after') !== undefined),
    )
    expect(process.exitCode).toBeUndefined()
  })

  it("serves the framework's own handlers, and logs what they reject with", async () => {
    await host.watchWidgets(() => Promise.reject(new Error('a handler of the test')))
    await host.start()
    await create('one')
    await create('two')
    await eventually(
      'both are seen',
      budgetMs,
      holds(() => host.seen.length === 2),
    )
    await client.delete(widgets, { namespace, name: 'one' })
    await eventually(
      'the deletion is seen',
      budgetMs,
      holds(() => host.seen.length === 3),
    )
    expect(host.seen).toEqual(['ADDED Widget one', 'ADDED Widget two', 'DELETED Widget one'])
    const failures = logger.lines.filter(({ message }) => message.includes('a handler of the test'))
    expect(failures).toHaveLength(3)
    expect(host.uri()).toBe(`${api.url}/apis/suite.egressproxies.dev/v1/widgets`)
    expect(host.uri('default')).toBe(`${api.url}/apis/suite.egressproxies.dev/v1/namespaces/default/widgets`)
  })

  it('writes a status, and rejects when it could not', async () => {
    await create('one')
    const meta = await metaOf('one')
    const written = await host.putStatus(meta, { phase: 'Pending' })
    expect(stored('one')?.['status']).toEqual({ phase: 'Pending' })
    expect(written.resourceVersion).toBe(stored('one')?.metadata.resourceVersion)
    await expect(host.putStatus(meta, { phase: 'Ready' })).rejects.toMatchObject({ code: 'KUBE_CONFLICT' })
    await expect(host.mergeStatus(meta, { phase: 'Ready' })).rejects.toMatchObject({ code: 'KUBE_CONFLICT' })
    await host.mergeStatus(written, { message: 'fine' })
    expect(stored('one')?.['status']).toEqual({ phase: 'Pending', message: 'fine' })
    await client.delete(widgets, { namespace, name: 'one' })
    await expect(host.mergeStatus(written, {})).rejects.toMatchObject({ code: 'KUBE_NOT_FOUND' })
    api.faults.fail({ status: 500 })
    await expect(host.putStatus(written, {})).rejects.toMatchObject({ code: 'KUBE_SERVER' })
  })

  it('writes finalizers at the version it knows, and rejects when it could not', async () => {
    await create('one')
    const meta = await metaOf('one')
    await host.setFinalizers(meta, [finalizer])
    expect(stored('one')?.metadata.finalizers).toEqual([finalizer])
    await expect(host.setFinalizers(meta, [])).rejects.toMatchObject({ code: 'KUBE_CONFLICT' })
    expect(stored('one')?.metadata.finalizers).toEqual([finalizer])
  })

  it('adds the finalizer, runs the deletion once, and lets go, whatever others write meanwhile', async () => {
    const reflector = host.watch<Widget>({ type: widgets, timing })
    await host.start()
    await create('one')
    const seen = await eventually('it is seen', budgetMs, () => Promise.resolve(reflector.store.get('default/one')))
    let deletions = 0
    const handle = async (object: Widget) =>
      await host.handleFinalizer(widgets, object, finalizer, async () => {
        deletions++
        await client.patchStatus(widgets, { namespace, name: 'one' }, { phase: `Deleting ${deletions}` })
      })
    await client.patch(
      widgets,
      { namespace, name: 'one' },
      { kind: 'merge', body: { metadata: { finalizers: ['suite.egressproxies.dev/other'] } } },
    )
    expect(await handle(seen)).toBe(true)
    expect(seen.metadata.finalizers).toBeUndefined()
    expect(stored('one')?.metadata.finalizers).toEqual(['suite.egressproxies.dev/other', finalizer])
    expect(await handle(await read('one'))).toBe(false)
    await client.delete(widgets, { namespace, name: 'one' })
    expect(await handle(await read('one'))).toBe(true)
    expect(deletions).toBe(1)
    expect(stored('one')?.metadata.finalizers).toEqual(['suite.egressproxies.dev/other'])
    expect(stored('one')?.['status']).toEqual({ phase: 'Deleting 1' })
  })

  it('leaves the object it is given as it is, which is the one in the store', async () => {
    const reflector = host.watch<Widget>({ type: widgets, timing })
    await host.start()
    const finalizers = ['suite.egressproxies.dev/other']
    await client.create<Widget>(widgets, { metadata: { namespace, name: 'shared', finalizers } })
    const find = () => Promise.resolve(reflector.store.get('default/shared'))
    const object = await eventually('it is seen', budgetMs, find)
    expect(await host.handleFinalizer(widgets, object, finalizer, () => Promise.resolve())).toBe(true)
    expect(object.metadata.finalizers).toEqual(finalizers)
    expect(stored('shared')?.metadata.finalizers).toEqual([...finalizers, finalizer])
  })

  it('keeps the finalizer when the deletion failed, and does not touch a successor of the name', async () => {
    await create('one')
    await host.handleFinalizer(widgets, await read('one'), finalizer, () => Promise.resolve())
    await client.delete(widgets, { namespace, name: 'one' })
    const failing = host.handleFinalizer(widgets, await read('one'), finalizer, () => Promise.reject(new Error('no')))
    await expect(failing).rejects.toThrow('no')
    expect(stored('one')?.metadata.finalizers).toEqual([finalizer])
    const replaced = host.handleFinalizer(widgets, await read('one'), finalizer, async () => {
      const body = { metadata: { finalizers: [] } }
      await client.patch(widgets, { namespace, name: 'one' }, { kind: 'merge', body })
      await client.create(widgets, { metadata: { namespace, name: 'one', finalizers: [finalizer] } })
    })
    await expect(replaced).rejects.toMatchObject({ code: 'KUBE_UID_CHANGED' })
    expect(stored('one')?.metadata.finalizers).toEqual([finalizer])
  })

  it('registers a definition from a file, once', async () => {
    api.register({ ...definitions, status: false })
    const dir = await mkdtemp(join(tmpdir(), 'kube-host-'))
    try {
      const file = join(dir, 'widgets.yaml')
      const header = { apiVersion: 'apiextensions.k8s.io/v1', kind: 'CustomResourceDefinition' }
      await writeFile(file, JSON.stringify({ ...header, ...widgetDefinition }))
      const registered = await host.register(file)
      expect(registered).toMatchObject({ group: widgets.group, plural: 'widgets', versions: [{ name: 'v1' }] })
      await host.register(file)
      expect(api.stored(definitions)).toHaveLength(1)
      api.faults.fail({ status: 403 })
      await expect(host.register(file)).rejects.toMatchObject({ code: 'KUBE_FORBIDDEN' })
      await writeFile(file, 'kind: Pod')
      await expect(host.register(file)).rejects.toThrow('not a CustomResourceDefinition')
    } finally {
      await rm(dir, { recursive: true })
    }
  })
})

// The reflector over real sockets, against every way in which a list or a watch is known to fail.
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { systemClock } from '../../src/lib/clock.ts'
import { KubeClient } from '../../src/kube/client.ts'
import { Reflector, type ListReason, type ReflectorOptions } from '../../src/kube/reflector.ts'
import { eventually } from '../support/eventually.ts'
import { startKubeApi, type KubeApi } from '../support/kube-api/kube-api.ts'
import { widgetKind, widgets, type Widget } from '../support/kube-api/widgets.ts'
import { recordingLogger, type RecordingLogger } from '../support/recording-logger.ts'

const budgetMs = 60_000
const namespace = 'default'

describe('the reflector', () => {
  let api: KubeApi
  /** Another client, which nothing of the reflector's trouble touches. */
  let other: KubeClient
  let client: KubeClient
  let logger: RecordingLogger
  let reflector: Reflector<Widget> | undefined
  let told: string[]
  let lists: ListReason[]
  let missed: number
  let deletedInGap: number

  beforeEach(async () => {
    api = await startKubeApi({ kinds: [widgetKind] })
    client = KubeClient.fromKubeconfig({ text: api.kubeconfig() })
    other = KubeClient.fromKubeconfig({ text: api.kubeconfig() })
    logger = recordingLogger()
    told = []
    lists = []
    missed = 0
    deletedInGap = 0
  })

  afterEach(async () => {
    await reflector?.stop()
    reflector = undefined
    await client.close()
    await other.close()
    await api.stop()
  })

  const start = (options: Partial<ReflectorOptions<Widget>> = {}) => {
    reflector = new Reflector<Widget>({
      client,
      type: widgets,
      clock: systemClock,
      random: () => 0,
      logger,
      onEvent: (kind, object) => told.push(`${kind} ${object.metadata.name}`),
      metrics: {
        listed: (reason) => lists.push(reason),
        deletedInGap: (objects) => (deletedInGap += objects),
        missed: (objects) => (missed += objects),
      },
      ...options,
      timing: { backoff: { baseMs: 20, maxMs: 200, jitter: 0 }, ...options.timing },
    })
    reflector.start()
    return reflector
  }
  const create = async (name: string) =>
    await other.create<Widget>(widgets, { metadata: { namespace, name }, spec: { size: 1 } })
  const resize = async (name: string, size: number) =>
    await other.patch<Widget>(widgets, { namespace, name }, { kind: 'merge', body: { spec: { size } } })
  const remove = async (name: string) => await other.delete(widgets, { namespace, name })
  const holds = (condition: () => boolean) => () => Promise.resolve(condition() || undefined)
  const watching = () =>
    eventually(
      'a watch is open',
      budgetMs,
      holds(() => api.openWatches === 1),
    )
  /** The state of the world: what the server stores. */
  const inStep = async () => {
    const wanted = () =>
      api.stored(widgets).map((object) => `${object.metadata.name}@${object.metadata.resourceVersion}`)
    const held = () =>
      (reflector?.store.list() ?? []).map((object) => `${object.metadata.name}@${object.metadata.resourceVersion}`)
    await eventually(
      'the store equals what the server has',
      budgetMs,
      holds(() => JSON.stringify(held().sort()) === JSON.stringify(wanted().sort())),
    )
  }
  const requests = (pattern: RegExp) => api.requests.filter(({ url }) => pattern.test(url)).length
  /** Makes the reflector lose its watch and keeps it from opening another, while `changes` are made. */
  const inGap = async (changes: () => Promise<unknown>) => {
    const release = api.faults.fail({ status: 503, method: 'GET', path: /widgets/ })
    api.dropWatches()
    await eventually(
      'the watch is gone',
      budgetMs,
      holds(() => api.openWatches === 0),
    )
    await changes()
    release()
  }

  it('lists in pages, then follows the watch', async () => {
    for (const name of ['a', 'b', 'c', 'd', 'e']) await create(name)
    const { synced, store } = start({ timing: { pageSize: 2 } })
    await synced
    expect(store.size).toBe(5)
    expect(requests(/widgets\?limit=2/)).toBe(3)
    expect(told).toEqual(['added a', 'added b', 'added c', 'added d', 'added e'])
    await watching()
    await resize('a', 2)
    await remove('b')
    await create('f')
    await eventually(
      'all is told',
      budgetMs,
      holds(() => told.length === 8),
    )
    expect(told.slice(5)).toEqual(['modified a', 'deleted b', 'added f'])
    expect(store.get('default/a')?.spec.size).toBe(2)
    expect(store.get({ namespace, name: 'b' })).toBeUndefined()
  })

  it('carries on after a dropped connection without listing again, deletions in the gap included', async () => {
    await create('kept')
    await create('lost')
    await start().synced
    await watching()
    await inGap(async () => {
      await remove('lost')
      await resize('kept', 2)
      await create('new')
    })
    await inStep()
    expect(told.slice(2)).toEqual(['deleted lost', 'modified kept', 'added new'])
    expect(lists).toEqual(['start'])
  })

  it.each(['event', 'status'] as const)(
    'synthesises what a gap swallowed when the version has expired (by %s)',
    async (how) => {
      api.faults.expiredWatch = how
      await create('kept')
      await create('lost')
      const again = await create('again')
      await start().synced
      await watching()
      await inGap(async () => {
        await remove('lost')
        await remove('again')
        await create('again')
        await create('new')
        api.compact()
      })
      await inStep()
      expect(lists).toEqual(['start', 'expired'])
      expect(deletedInGap).toBe(2)
      expect(told.slice(3).sort()).toEqual(['added again', 'added new', 'deleted again', 'deleted lost'])
      expect(told.indexOf('deleted again')).toBeLessThan(told.lastIndexOf('added again'))
      expect(reflector?.store.get('default/again')?.metadata.uid).not.toBe(again.metadata.uid)
    },
  )

  it('redials a watch that has gone silent without closing', async () => {
    await start({ timing: { watchTimeoutMs: 1000, stallSlackMs: 300 } }).synced
    await watching()
    api.faults.watchesStalled = true
    await create('unheard')
    await eventually(
      'the silence is noticed',
      budgetMs,
      holds(() => lists.includes('stalled')),
    )
    await inStep()
    expect(told).toEqual(['added unheard'])
    expect(logger.lines.some(({ message }) => message.includes('silent for longer'))).toBe(true)
    api.faults.watchesStalled = false
    await create('heard')
    await inStep()
  })

  it('takes a quiet watch that the server ends for what it is', async () => {
    await start({ timing: { watchTimeoutMs: 1000, stallSlackMs: 5000 } }).synced
    await eventually(
      'the watch was opened three times',
      budgetMs,
      holds(() => requests(/watch=true/) >= 3),
    )
    expect(lists).toEqual(['start'])
    expect(logger.lines.filter(({ level }) => level === 'warn')).toEqual([])
  })

  it('finds by its periodic list what an open watch never told, and counts it', async () => {
    await create('old')
    await create('gone')
    await start({ timing: { relistEveryMs: 300, relistGraceMs: 100 } }).synced
    await watching()
    api.faults.swallowEvents(3)
    await create('unheard')
    await resize('old', 2)
    await remove('gone')
    await eventually(
      'something was missed',
      budgetMs,
      holds(() => missed > 0),
    )
    await inStep()
    expect(missed).toBe(3)
    expect(lists).toEqual(['start', 'missed'])
    expect(told.slice(2).sort()).toEqual(['added unheard', 'deleted gone', 'modified old'])
  })

  it('misses nothing by its own count while objects change during the periodic lists', async () => {
    await start({ timing: { relistEveryMs: 20, relistGraceMs: 1000 } }).synced
    await watching()
    for (let round = 0; round < 40; round++) {
      await create(`busy-${round}`)
      await resize(`busy-${round}`, 2)
      if (round % 2 === 0) await remove(`busy-${round}`)
    }
    await inStep()
    expect(missed).toBe(0)
    expect(lists).toEqual(['start'])
    expect(told.filter((line) => line.startsWith('deleted'))).toHaveLength(20)
  })

  it.each([500, 429, 401])('outlives a server that answers %i', async (status) => {
    const release = api.faults.fail({ status })
    const { synced } = start()
    await eventually(
      'it has tried a few times',
      budgetMs,
      holds(() => api.requests.length >= 3),
    )
    release()
    await create('seen')
    await synced
    await inStep()
  })

  it('outlives a server that is not there for a while, and loses no deletion', async () => {
    await create('kept')
    await create('lost')
    await start().synced
    await watching()
    const before = logger.lines.length
    await api.stop()
    await eventually(
      'it has tried again',
      budgetMs,
      holds(() => logger.lines.length >= before + 3),
    )
    await api.start()
    await remove('lost')
    await create('new')
    await inStep()
    expect(told.slice(2)).toEqual(['deleted lost', 'added new'])
    expect(lists).toEqual(['start'])
  })

  it('starts without a server and syncs when there is one', async () => {
    await api.stop()
    const { synced } = start()
    await eventually(
      'it has tried a few times',
      budgetMs,
      holds(() => logger.lines.length >= 3),
    )
    expect(reflector?.hasSynced).toBe(false)
    await api.start()
    await synced
    expect(reflector?.hasSynced).toBe(true)
  })

  it('goes on after a handler that throws', async () => {
    start({
      onEvent: (kind, object) => {
        told.push(`${kind} ${object.metadata.name}`)
        throw new Error('a handler of the test')
      },
    })
    await reflector?.synced
    await watching()
    await create('first')
    await create('second')
    await eventually(
      'both are told',
      budgetMs,
      holds(() => told.length === 2),
    )
    await inStep()
    const failures = logger.lines.filter(({ message }) => message.includes('a handler of the test'))
    expect(failures).toHaveLength(2)
    expect(requests(/watch=true/)).toBe(1)
  })

  it('holds objects that nobody can change by accident', async () => {
    await create('frozen')
    await start().synced
    const object = reflector?.store.get('default/frozen')
    expect(() => Object.assign(object?.metadata ?? {}, { labels: {} })).toThrow(TypeError)
    expect(() => Object.assign(object?.spec ?? {}, { size: 5 })).toThrow(TypeError)
  })

  it('goes by its label selector and namespace', async () => {
    await other.create(widgets, { metadata: { namespace: 'kube-system', name: 'elsewhere', labels: { a: 'b' } } })
    await other.create(widgets, { metadata: { namespace, name: 'unlabelled' } })
    await other.create(widgets, { metadata: { namespace, name: 'labelled', labels: { a: 'b' } } })
    await start({ namespace, labelSelector: 'a=b' }).synced
    await watching()
    expect(told).toEqual(['added labelled'])
    await other.create(widgets, { metadata: { namespace, name: 'later', labels: { a: 'b' } } })
    await eventually(
      'the later one is told',
      budgetMs,
      holds(() => told.length === 2),
    )
    expect(told).toEqual(['added labelled', 'added later'])
  })

  it('needs a handful of connections for a list, a watch and fifty patches', async () => {
    for (let n = 0; n < 50; n++) await create(`many-${n}`)
    await other.close()
    const before = api.connectionsAccepted
    await start().synced
    await watching()
    for (let n = 0; n < 50; n++) await client.patchStatus(widgets, { namespace, name: `many-${n}` }, { phase: 'Ready' })
    await inStep()
    expect(api.connectionsAccepted - before).toBeLessThanOrEqual(3)
    const sequential = api.connectionsAccepted
    const patches = Array.from({ length: 50 }, (_, n) =>
      client.patchStatus(widgets, { namespace, name: `many-${n}` }, { phase: 'Failed' }),
    )
    await Promise.all(patches)
    expect(api.connectionsAccepted - sequential).toBeLessThanOrEqual(16)
  })

  it('leaves no watch behind when it is stopped, in whatever state it is', async () => {
    await start().synced
    await watching()
    await reflector?.stop()
    await eventually(
      'the watch is closed',
      budgetMs,
      holds(() => api.openWatches === 0),
    )
    const count = api.requests.length
    await create('after')
    expect(told).toEqual([])
    expect(api.requests.length).toBe(count + 1)
    await api.stop()
    const offline = start()
    await offline.stop()
    expect(offline.hasSynced).toBe(false)
    await api.start()
  })
})

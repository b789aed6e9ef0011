// The part of the suite about watches: order, selectors, bookmarks, the end, and versions that are too old.
import { describe, expect, it } from 'vitest'
import type { WatchEvent, WatchOptions } from '../../../src/kube/client.ts'
import type { SuiteContext } from './suite.ts'
import { widgets, type Widget } from './widgets.ts'

export function suiteOfWatches(use: () => SuiteContext): void {
  const create = async (name: string, labels: Record<string, string> = {}) => {
    const { client, namespace } = use()
    return await client.create<Widget>(widgets, { metadata: { namespace, name, labels }, spec: { size: 1 } })
  }
  /** What a watch tells until `enough` says so or the server ends it. */
  const collect = async (options: WatchOptions, enough: (events: readonly WatchEvent<Widget>[]) => boolean) => {
    const { client, namespace } = use()
    const events: WatchEvent<Widget>[] = []
    const signal = AbortSignal.timeout(60_000)
    for await (const event of client.watch<Widget>(widgets, { namespace, ...options }, signal)) {
      events.push(event)
      if (enough(events)) break
    }
    return events
  }
  const summary = (events: readonly WatchEvent<Widget>[]) =>
    events.map((event) => (event.kind === 'error' || event.kind === 'bookmark' ? event.kind : told(event)))
  const told = (event: { kind: string; object: Widget }) => `${event.kind} ${event.object.metadata.name}`

  describe('watches', () => {
    it('tell what was written after their version, in order, the last state of what was deleted included', async () => {
      const { client, namespace } = use()
      const { resourceVersion } = await client.list(widgets, { namespace, limit: 1 })
      const watching = collect({ resourceVersion }, (events) => events.length === 4)
      const made = await create('watched')
      await client.replace(widgets, { ...made, spec: { size: 2 } })
      await client.delete(widgets, { namespace, name: 'watched' })
      await create('watched')
      const events = await watching
      expect(summary(events)).toEqual(['added watched', 'modified watched', 'deleted watched', 'added watched'])
      const versions = events.map((event) => ('object' in event ? Number(event.object.metadata.resourceVersion) : 0))
      expect(versions).toEqual([...versions].sort((a, b) => a - b))
      expect(new Set(versions).size).toBe(4)
      const deleted = events[2]
      expect(deleted).toMatchObject({ object: { metadata: { uid: made.metadata.uid }, spec: { size: 2 } } })
    })

    it('without a version tell the present state first', async () => {
      await create('present')
      const events = await collect({}, (all) => summary(all).includes('added present'))
      expect(summary(events).every((text) => text.startsWith('added'))).toBe(true)
    })

    it('with a selector see objects come and go with their labels', async () => {
      const { client, namespace } = use()
      const { resourceVersion } = await client.list(widgets, { namespace, limit: 1 })
      const watching = collect({ resourceVersion, labelSelector: 'stage=on' }, (events) => events.length === 3)
      const relabel = async (name: string, stage: string) => {
        const body = { metadata: { labels: { stage } } }
        await client.patch(widgets, { namespace, name }, { kind: 'merge', body })
      }
      await create('staged', { stage: 'off' })
      await relabel('staged', 'on')
      await create('other')
      await relabel('staged', 'off')
      await create('second', { stage: 'on' })
      expect(summary(await watching)).toEqual(['added staged', 'deleted staged', 'added second'])
    })

    it('end after their time, with a bookmark before it when they asked for bookmarks and something was written', async () => {
      const { client, namespace } = use()
      const { resourceVersion } = await client.list(widgets, { namespace, limit: 1 })
      const watching = collect({ resourceVersion, timeoutSeconds: 8, allowWatchBookmarks: true }, () => false)
      const plain = collect({ resourceVersion, timeoutSeconds: 8 }, () => false)
      const { metadata } = await create('before-bookmark')
      const events = await watching
      expect(summary(await plain)).toEqual(['added before-bookmark'])
      const [added, ...bookmarks] = summary(events)
      expect(added).toBe('added before-bookmark')
      expect(bookmarks.length).toBeGreaterThanOrEqual(1)
      expect(new Set(bookmarks)).toEqual(new Set(['bookmark']))
      const last = events.at(-1)
      const version = last?.kind === 'bookmark' ? last.resourceVersion : ''
      expect(Number(version)).toBeGreaterThanOrEqual(Number(metadata.resourceVersion))
      const made = await create('after-bookmark')
      const resumed = await collect({ resourceVersion: version }, (all) => all.length === 1)
      expect(resumed[0]).toMatchObject({ kind: 'added', object: { metadata: { uid: made.metadata.uid } } })
    })

    it('that are quiet end after their time all the same', async () => {
      const { client, namespace } = use()
      const { resourceVersion } = await client.list(widgets, { namespace, limit: 1 })
      expect(await collect({ resourceVersion, timeoutSeconds: 1 }, () => false)).toEqual([])
    })

    it('from a version that is long gone are refused as expired', async () => {
      const events = await collect({ resourceVersion: '1', timeoutSeconds: 5 }, () => false)
      expect(events).toHaveLength(1)
      expect(events[0]).toMatchObject({
        kind: 'error',
        error: { status: 410, reason: 'Expired', code: 'KUBE_EXPIRED' },
      })
    })

    it('leave no connection behind when they are left', async () => {
      const { client, namespace } = use()
      const stop = new AbortController()
      const watching = (async () => {
        for await (const event of client.watch(widgets, { namespace, resourceVersion: '0' }, stop.signal)) {
          expect(event.kind).toBe('added')
          stop.abort(new Error('enough'))
        }
      })()
      await expect(watching).rejects.toThrow('enough')
    })
  })
}

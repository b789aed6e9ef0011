// The part of the suite about objects: creation, updates, conflicts, patches, deletion, lists.
import { describe, expect, it } from 'vitest'
import { isConflict, KubeError, type NewObject, type ResourceType } from '../../../src/kube/client.ts'
import { eventually } from '../eventually.ts'
import type { SuiteContext } from './suite.ts'
import { widgets, type Widget } from './widgets.ts'

const secrets: ResourceType = { group: '', version: 'v1', plural: 'secrets', kind: 'Secret', namespaced: true }
const events: ResourceType = { group: '', version: 'v1', plural: 'events', kind: 'Event', namespaced: true }

/** What a request was refused with. */
async function refusal(request: Promise<unknown>): Promise<KubeError> {
  const outcome = await request.then(
    () => undefined,
    (error: unknown) => error,
  )
  if (!(outcome instanceof KubeError)) throw new Error('the request was not refused', { cause: outcome })
  return outcome
}

export function suiteOfObjects(use: () => SuiteContext): void {
  const create = async (name: string, more: Partial<NewObject> = {}) => {
    const { client, namespace } = use()
    return await client.create<Widget>(widgets, {
      spec: { size: 1 },
      ...more,
      metadata: { ...more.metadata, namespace, name },
    })
  }
  const read = async (name: string) => {
    const { client, namespace } = use()
    return await client.get<Widget>(widgets, { namespace, name })
  }

  describe('creation', () => {
    it('fills in the metadata and the defaults, and ignores a status and unknown fields', async () => {
      const made = await create('made', { spec: { unknown: true }, status: { phase: 'Ready' } })
      expect(made).toMatchObject({ apiVersion: 'suite.egressproxies.dev/v1', kind: 'Widget' })
      expect(made.metadata.uid).toMatch(/^[0-9a-f-]{36}$/)
      expect(made.metadata.creationTimestamp).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/)
      expect(made.metadata.generation).toBe(1)
      expect(made.metadata.resourceVersion).toMatch(/^\d+$/)
      expect(made.spec).toEqual({ size: 1 })
      expect(made.status).toBeUndefined()
    })

    it('stores labels, annotations, finalizers and owner references', async () => {
      const { client, namespace } = use()
      const owner = await create('owner')
      const ownerReferences = [
        { apiVersion: 'suite.egressproxies.dev/v1', kind: 'Widget', name: 'owner', uid: owner.metadata.uid },
      ]
      const labels = { a: 'b' }
      const annotations = { c: 'd' }
      await create('owned', { metadata: { name: 'owned', labels, annotations, ownerReferences } })
      expect((await read('owned')).metadata).toMatchObject({ labels, annotations, ownerReferences })
      await client.delete(widgets, { namespace, name: 'owned' })
    })

    it('refuses a second object of the name, an unknown namespace, a bad name and a bad field', async () => {
      const { client } = use()
      await create('twice')
      expect(await refusal(create('twice'))).toMatchObject({ status: 409, reason: 'AlreadyExists' })
      const elsewhere = { metadata: { namespace: 'no-such-namespace', name: 'x' }, spec: { size: 1 } }
      expect(await refusal(client.create(widgets, elsewhere))).toMatchObject({
        status: 404,
        details: { kind: 'namespaces', name: 'no-such-namespace' },
      })
      expect(await refusal(create('Bad_Name'))).toMatchObject({
        status: 422,
        details: { causes: [{ field: 'metadata.name' }] },
      })
      const bad = await refusal(create('bad', { spec: { size: 0 } }))
      expect(bad).toMatchObject({ status: 422, reason: 'Invalid', code: 'KUBE_INVALID' })
      expect(bad.details?.causes).toEqual([
        {
          reason: 'FieldValueInvalid',
          field: 'spec.size',
          message: 'Invalid value: 0: spec.size in body should be greater than or equal to 1',
        },
      ])
      expect(bad.message).toContain('Widget.suite.egressproxies.dev "bad" is invalid: spec.size: Invalid value: 0')
    })

    it('answers for what is not there with NotFound and its name', async () => {
      const { client } = use()
      expect(await refusal(read('absent'))).toMatchObject({
        status: 404,
        reason: 'NotFound',
        details: { name: 'absent', group: 'suite.egressproxies.dev', kind: 'widgets' },
      })
      expect(await refusal(client.list({ ...widgets, plural: 'gadgets' }))).toMatchObject({ status: 404 })
    })
  })

  describe('updates', () => {
    it('count a generation for the spec alone', async () => {
      const { client } = use()
      const first = await create('generation')
      const labelled = await client.replace(widgets, { ...first, metadata: { ...first.metadata, labels: { a: 'b' } } })
      expect(labelled.metadata).toMatchObject({ generation: 1, labels: { a: 'b' } })
      expect(labelled.metadata.resourceVersion).not.toBe(first.metadata.resourceVersion)
      const bigger = await client.replace(widgets, { ...labelled, spec: { size: 2 } })
      expect(bigger.metadata.generation).toBe(2)
      const reported = await client.replaceStatus(widgets, { ...bigger, status: { phase: 'Ready' } })
      expect(reported.metadata.generation).toBe(2)
      expect(reported.status).toEqual({ phase: 'Ready' })
    })

    it('keep status and everything else apart', async () => {
      const { client } = use()
      const first = await create('apart')
      const changed = { ...first, metadata: { ...first.metadata, labels: { a: 'b' } }, spec: { size: 9 } }
      const status = await client.replaceStatus(widgets, { ...changed, status: { phase: 'Ready' } })
      expect(status.spec).toEqual({ size: 1 })
      expect(status.metadata.labels).toBeUndefined()
      const main = await client.replace(widgets, { ...status, spec: { size: 3 }, status: { phase: 'Failed' } })
      expect(main).toMatchObject({ spec: { size: 3 }, status: { phase: 'Ready' } })
    })

    it('that change nothing keep the resourceVersion', async () => {
      const { client } = use()
      const first = await create('same')
      expect((await client.replace(widgets, first)).metadata.resourceVersion).toBe(first.metadata.resourceVersion)
    })

    it('are refused with an old resourceVersion, and without one', async () => {
      const { client } = use()
      const first = await create('old')
      await client.replace(widgets, { ...first, spec: { size: 2 } })
      const late = await refusal(client.replace(widgets, { ...first, spec: { size: 3 } }))
      expect(late).toMatchObject({ status: 409, reason: 'Conflict', details: { name: 'old', kind: 'widgets' } })
      expect(isConflict(late)).toBe(true)
      expect(await refusal(client.replaceStatus(widgets, { ...first, status: {} }))).toMatchObject({ status: 409 })
      const bare = { ...first, metadata: { ...first.metadata, resourceVersion: '' } }
      expect(await refusal(client.replace(widgets, bare))).toMatchObject({
        status: 422,
        details: { causes: [{ field: 'metadata.resourceVersion' }] },
      })
    })

    it('are refused for another UID: a PUT as a conflict, a patch as a change of what cannot change', async () => {
      const { client, namespace } = use()
      const made = await create('uid')
      const uid = '00000000-0000-0000-0000-000000000000'
      const other = { ...made, metadata: { ...made.metadata, uid }, spec: { size: 2 } }
      expect(await refusal(client.replace(widgets, other))).toMatchObject({ status: 409, reason: 'Conflict' })
      expect(await refusal(client.replaceStatus(widgets, other))).toMatchObject({ status: 409 })
      const ref = { namespace, name: 'uid' }
      const patch = (metadata: object) => client.patch(widgets, ref, { kind: 'merge', body: { metadata } })
      const refused = await refusal(patch({ uid, labels: { a: 'b' } }))
      expect(refused).toMatchObject({ status: 422, reason: 'Invalid' })
      // A real server names the field twice.
      expect(refused.details?.causes?.[0]).toMatchObject({ field: 'metadata.uid' })
      await client.replace(widgets, { ...made, spec: { size: 3 } })
      const { resourceVersion } = made.metadata
      expect(await refusal(patch({ uid, resourceVersion, labels: { a: 'b' } }))).toMatchObject({ status: 409 })
    })
  })

  describe('patches', () => {
    it('merge, remove with null, and leave the status to its own path', async () => {
      const { client, namespace } = use()
      const ref = { namespace, name: 'merged' }
      await create('merged', { spec: { size: 1, color: 'red' } })
      const body = { spec: { size: 2, color: null }, status: { phase: 'Ready' } }
      const patched = await client.patch<Widget>(widgets, ref, { kind: 'merge', body })
      expect(patched.spec).toEqual({ size: 2 })
      expect(patched.status).toBeUndefined()
      expect(patched.metadata.generation).toBe(2)
      const status = await client.patchStatus<Widget>(widgets, ref, { phase: 'Ready' })
      expect(status).toMatchObject({ spec: { size: 2 }, status: { phase: 'Ready' } })
      const more = await client.patchStatus<Widget>(widgets, ref, { message: 'fine' })
      expect(more.status).toEqual({ phase: 'Ready', message: 'fine' })
    })

    it('are refused with an old resourceVersion', async () => {
      const { client, namespace } = use()
      const { metadata } = await create('guarded')
      const ref = { namespace, name: 'guarded', resourceVersion: metadata.resourceVersion }
      await client.patchStatus(widgets, ref, { phase: 'Ready' })
      expect(await refusal(client.patchStatus(widgets, ref, { phase: 'Failed' }))).toMatchObject({
        status: 409,
        reason: 'Conflict',
      })
      expect((await read('guarded')).status).toEqual({ phase: 'Ready' })
    })

    it('by JSON patch hold only when their tests do', async () => {
      const { client, namespace } = use()
      const ref = { namespace, name: 'tested' }
      await create('tested')
      const grow = (from: number, to: number) =>
        client.patch<Widget>(widgets, ref, {
          kind: 'json',
          operations: [
            { op: 'test', path: '/spec/size', value: from },
            { op: 'replace', path: '/spec/size', value: to },
          ],
        })
      expect((await grow(1, 2)).spec.size).toBe(2)
      expect(await refusal(grow(1, 3))).toMatchObject({ status: 422, reason: 'Invalid' })
      expect((await read('tested')).spec.size).toBe(2)
    })

    it('leave nothing that would not pass a create', async () => {
      const { client, namespace } = use()
      await create('valid')
      const patch = { kind: 'merge', body: { spec: { size: 0 } } } as const
      const refused = await refusal(client.patch(widgets, { namespace, name: 'valid' }, patch))
      expect(refused).toMatchObject({ status: 422, details: { causes: [{ field: 'spec.size' }] } })
    })
  })

  describe('deletion', () => {
    it('removes at once what has no finalizer', async () => {
      const { client, namespace } = use()
      const ref = { namespace, name: 'plain' }
      await create('plain')
      await client.delete(widgets, ref)
      expect(await refusal(read('plain'))).toMatchObject({ status: 404 })
      expect(await refusal(client.delete(widgets, ref))).toMatchObject({ status: 404 })
    })

    it('waits for the finalizers and takes no new one', async () => {
      const { client, namespace } = use()
      const ref = { namespace, name: 'held' }
      const finalizers = ['suite.egressproxies.dev/a', 'suite.egressproxies.dev/b']
      await create('held', { metadata: { name: 'held', finalizers } })
      await client.delete(widgets, ref)
      const marked = await read('held')
      expect(marked.metadata.deletionTimestamp).toMatch(/Z$/)
      expect(marked.metadata.generation).toBe(2)
      await client.delete(widgets, ref)
      expect((await read('held')).metadata.resourceVersion).toBe(marked.metadata.resourceVersion)
      const set = (names: readonly string[]) =>
        client.patch<Widget>(widgets, ref, { kind: 'merge', body: { metadata: { finalizers: names } } })
      expect(await refusal(set([...finalizers, 'suite.egressproxies.dev/c']))).toMatchObject({ status: 422 })
      await client.patchStatus(widgets, ref, { phase: 'Deleting' })
      expect((await set(finalizers.slice(1))).metadata.finalizers).toEqual(finalizers.slice(1))
      expect((await read('held')).status).toEqual({ phase: 'Deleting' })
      await set([])
      expect(await refusal(read('held'))).toMatchObject({ status: 404 })
    })

    it('keeps to the UID it was asked for', async () => {
      const { client, namespace } = use()
      const ref = { namespace, name: 'exact' }
      const { metadata } = await create('exact')
      const other = { uid: '00000000-0000-0000-0000-000000000000' }
      expect(await refusal(client.delete(widgets, ref, other))).toMatchObject({ status: 409, reason: 'Conflict' })
      await client.delete(widgets, ref, { uid: metadata.uid })
      expect(await refusal(read('exact'))).toMatchObject({ status: 404 })
    })
  })

  describe('lists', () => {
    it('come in pages of one snapshot', async () => {
      const { client, namespace } = use()
      const labelSelector = 'suite=pages'
      const labels = { suite: 'pages' }
      for (const name of ['page-1', 'page-2', 'page-3', 'page-4']) await create(name, { metadata: { name, labels } })
      const first = await client.list<Widget>(widgets, { namespace, labelSelector, limit: 3 })
      expect(first.items).toHaveLength(3)
      await create('page-5', { metadata: { name: 'page-5', labels } })
      await client.delete(widgets, { namespace, name: 'page-4' })
      const second = await client.list<Widget>(widgets, {
        namespace,
        labelSelector,
        limit: 3,
        continue: first.continue,
      })
      expect(second.continue).toBeUndefined()
      expect(second.resourceVersion).toBe(first.resourceVersion)
      const names = [...first.items, ...second.items].map((item) => item.metadata.name)
      expect(names).toEqual(['page-1', 'page-2', 'page-3', 'page-4'])
      expect(second.items[0]).toMatchObject({ apiVersion: 'suite.egressproxies.dev/v1', kind: 'Widget' })
    })

    it('go by labels, in one namespace or all', async () => {
      const { client, namespace } = use()
      await create('red', { metadata: { name: 'red', labels: { hue: 'red', warm: '' } } })
      await create('blue', { metadata: { name: 'blue', labels: { hue: 'blue' } } })
      const names = async (labelSelector: string, where: string | undefined = namespace) =>
        (await client.list(widgets, { namespace: where, labelSelector })).items.map((item) => item.metadata.name)
      expect(await names('hue=red')).toEqual(['red'])
      expect(await names('hue==blue')).toEqual(['blue'])
      expect(await names('hue in (red, blue)')).toEqual(['blue', 'red'])
      expect(await names('hue notin (red),hue')).toEqual(['blue'])
      expect(await names('hue,!warm')).toEqual(['blue'])
      expect(await names('hue,hue!=blue')).toEqual(['red'])
      expect((await client.list(widgets, { labelSelector: 'hue' })).items.length).toBeGreaterThanOrEqual(2)
      expect(await refusal(names('hue in red'))).toMatchObject({ status: 400 })
    })

    it('whose snapshot was forgotten are refused as expired', async () => {
      const { client, namespace, compact } = use()
      await create('forgotten-1')
      await create('forgotten-2')
      const first = await client.list(widgets, { namespace, limit: 1 })
      await create('forgotten-3')
      compact()
      // A real server that was not told otherwise forgets every five minutes.
      const refused = await eventually('the snapshot is forgotten', 400_000, async () => {
        const next = client.list(widgets, { namespace, limit: 1, continue: first.continue })
        return await refusal(next)
      })
      expect(refused).toMatchObject({ status: 410, reason: 'Expired', code: 'KUBE_EXPIRED' })
      const all = await client.listAll(widgets, { namespace, limit: 1 })
      expect(all.items.length).toBeGreaterThanOrEqual(3)
    })
  })

  describe('core kinds', () => {
    it('Secrets take plain text, and a PUT without a resourceVersion', async () => {
      const { client, namespace } = use()
      const metadata = { namespace, name: 'credentials' }
      const made = await client.create(secrets, { metadata, stringData: { username: 'me' } })
      expect(made).toMatchObject({ type: 'Opaque', data: { username: 'bWU=' } })
      expect(made.metadata.generation).toBeUndefined()
      const bare = { ...made, metadata: { ...made.metadata, resourceVersion: '' } }
      const replaced = await client.replace(secrets, { ...bare, data: { username: 'eW91' } })
      expect(replaced['data']).toEqual({ username: 'eW91' })
    })

    it('Events are stored beside what they are about, for cluster-scoped objects in default', async () => {
      const { client, namespace } = use()
      const { metadata } = await create('eventful')
      const about = { apiVersion: 'suite.egressproxies.dev/v1', kind: 'Widget', name: 'eventful', uid: metadata.uid }
      const event = (where: string, involvedObject: object, name: string) =>
        client.create(events, {
          metadata: { namespace: where, name },
          involvedObject,
          type: 'Normal',
          reason: 'Seen',
          message: 'it is there',
          count: 1,
        })
      const name = `eventful.${metadata.uid}`
      const made = await event(namespace, { ...about, namespace }, name)
      expect(made).toMatchObject({ reason: 'Seen', count: 1, involvedObject: { uid: metadata.uid } })
      const body = { count: 2 }
      const patched = await client.patch(events, { namespace, name }, { kind: 'merge', body })
      expect(patched['count']).toBe(2)
      expect(await refusal(event(namespace, { ...about, namespace: 'default' }, 'x'))).toMatchObject({ status: 422 })
      const cluster = await event('default', { ...about, kind: 'Node', apiVersion: 'v1' }, `node.${metadata.uid}`)
      expect(cluster.metadata.namespace).toBe('default')
      const fieldSelector = `involvedObject.uid=${metadata.uid}`
      const found = await client.list(events, { namespace, fieldSelector })
      expect(found.items.map((item) => item.metadata.name)).toEqual([name])
    })
  })
}

// The store: what it tells of which change, and what it keeps.
import { describe, expect, it } from 'vitest'
import { keyOf, refOfKey, resourcePath, type Resource } from '../../../src/kube/object.ts'
import { Store, type Change } from '../../../src/kube/store.ts'

function object(name: string, resourceVersion: string, uid = `uid-${name}`): Resource {
  return { metadata: { namespace: 'default', name, uid, resourceVersion, labels: { a: 'b' } } }
}

function make() {
  const errors: unknown[] = []
  const told: string[] = []
  const store = new Store<Resource>({ onListenerError: (error) => errors.push(error) })
  const describe = ({ kind, object: { metadata } }: Change<Resource>) =>
    `${kind} ${metadata.uid}@${metadata.resourceVersion}`
  const off = store.onChange((change) => told.push(describe(change)))
  return { store, told, errors, off }
}

describe('the store', () => {
  it('tells additions, changes and deletions, and nothing of what it has already', () => {
    const { store, told } = make()
    store.put(object('a', '1'))
    store.put(object('a', '1'))
    store.put(object('a', '2'))
    store.remove(object('a', '3'))
    store.remove(object('a', '3'))
    expect(told).toEqual(['added uid-a@1', 'modified uid-a@2', 'deleted uid-a@3'])
    expect(store.size).toBe(0)
  })

  it('takes another UID under the key for a deletion and an addition', () => {
    const { store, told } = make()
    store.put(object('a', '1', 'first'))
    store.put(object('a', '5', 'second'))
    store.remove(object('a', '4', 'first'))
    expect(told).toEqual(['added first@1', 'deleted first@1', 'added second@5'])
    expect(store.get('default/a')?.metadata.uid).toBe('second')
  })

  it('becomes what a list says', () => {
    const { store, told } = make()
    for (const name of ['kept', 'changed', 'gone']) store.put(object(name, '1'))
    store.put(object('replaced', '1', 'first'))
    told.length = 0
    const gone = store.replaceAll([
      object('kept', '1'),
      object('changed', '2'),
      object('replaced', '3', 'second'),
      object('new', '4'),
    ])
    expect(gone.map(({ metadata }) => metadata.name)).toEqual(['gone', 'replaced'])
    expect(told).toEqual([
      'deleted uid-gone@1',
      'deleted first@1',
      'modified uid-changed@2',
      'added second@3',
      'added uid-new@4',
    ])
    expect(
      store
        .list()
        .map(({ metadata }) => metadata.name)
        .sort(),
    ).toEqual(['changed', 'kept', 'new', 'replaced'])
  })

  it('tells every listener although one throws, until it is told to stop', () => {
    const { store, told, errors, off } = make()
    store.onChange(() => {
      throw new Error('a listener of the test')
    })
    const later: string[] = []
    store.onChange(({ kind }) => later.push(kind))
    store.put(object('a', '1'))
    expect([told.length, later.length, errors.length]).toEqual([1, 1, 1])
    off()
    store.put(object('b', '1'))
    expect([told.length, later.length, errors.length]).toEqual([1, 2, 2])
  })

  it('freezes what it holds, to the last member', () => {
    const { store } = make()
    store.put(object('a', '1'))
    expect(Object.isFrozen(store.get({ namespace: 'default', name: 'a' })?.metadata.labels)).toBe(true)
  })
})

describe('addresses', () => {
  it('have a key, and are in their key', () => {
    for (const ref of [{ namespace: 'n', name: 'x' }, { name: 'x' }]) expect(refOfKey(keyOf(ref))).toEqual(ref)
    expect(keyOf({ namespace: 'n', name: 'x' })).toBe('n/x')
  })

  it('become paths that cannot be broken out of', () => {
    const type = { group: 'g.dev', version: 'v1', plural: 'things', kind: 'Thing', namespaced: true }
    expect(resourcePath(type, {})).toBe('/apis/g.dev/v1/things')
    expect(resourcePath(type, { namespace: 'n', name: 'x' }, 'status')).toBe(
      '/apis/g.dev/v1/namespaces/n/things/x/status',
    )
    expect(resourcePath({ ...type, group: '' }, { namespace: 'n' })).toBe('/api/v1/namespaces/n/things')
    expect(resourcePath(type, { name: '../x?a' })).toBe('/apis/g.dev/v1/things/..%2Fx%3Fa')
  })
})

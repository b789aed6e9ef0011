// What the provider does not touch, and what it says about it.
import { describe, expect, it } from 'vitest'
import type { Mark } from '../../../../src/provider/contract.ts'
import { domainUuid } from '../../../../src/provider/libvirt/domain-xml.ts'
import { markXml } from '../../../../src/provider/libvirt/mark.ts'
import { buildSeed } from '../../../../src/provider/nocloud/seed.ts'
import { FakeHost } from './fake-host.ts'
import { context, createRequest, deleteRequest, installation, name, operator, owner } from './world.ts'

const foreignUuid = '11111111-2222-3333-4444-555555555555'
const providerID = `hosts/a/domains/${name}`

function hostWith(metadata: string | undefined, uuid = foreignUuid): FakeHost {
  const host = new FakeHost()
  host.addDomain({ uuid, name, metadata, state: 1 })
  host.addVolume(`${name}.qcow2`, Buffer.from('disk'))
  host.addVolume(`${name}-seed.iso`, Buffer.from('seed'))
  return host
}

const seedOf = (uid: string, of = installation) =>
  buildSeed({
    owner: { uid, installation: of },
    instanceName: name,
    userData: Buffer.alloc(0),
    installGuestAgent: false,
    createdAt: new Date(0),
  })

describe('a domain of that name that is not ours', () => {
  const full: Mark = { ...owner, specHash: 'v1:1' }
  it.each<[string, string | undefined, object]>([
    ['without a mark', undefined, { kind: 'permanent', origin: 'environment', code: 'MarkMissing' }],
    ['with a mark that cannot be read', '<x/>', { kind: 'permanent', origin: 'environment', code: 'MarkUnreadable' }],
    [
      'of another installation',
      markXml({ ...full, installation: 'away' }),
      { kind: 'permanent', code: 'OwnedByAnother' },
    ],
    ['of a UID of nobody knows where', markXml({ uid: 'uid-2' }), { kind: 'permanent', code: 'OwnedByAnother' }],
    ['of a Proxy that is gone', markXml({ ...full, uid: 'uid-2' }), { kind: 'transient', code: 'OrphanInTheWay' }],
    [
      'retained, of another spec',
      markXml({ installation, namespace: 'default', name: 'a', specHash: 'v1:0' }),
      { kind: 'permanent', code: 'RetainedInstance' },
    ],
  ])('%s stops a create and survives a delete', async (_what, metadata, refusal) => {
    const host = hostWith(metadata)
    await expect(operator(host).create(createRequest(), context())).rejects.toMatchObject(refusal)
    await operator(host).delete(deleteRequest(), context())
    expect(host.changes).toEqual([])
    expect([host.domains.size, host.volumes.size]).toEqual([1, 2])
  })

  it('of a Proxy that lives is a permanent error naming both UIDs', async () => {
    const host = hostWith(markXml({ ...full, uid: 'uid-2' }))
    const asked: string[] = []
    const isLive = (uid: string) => Promise.resolve(asked.push(uid) > 0)
    const error = await operator(host)
      .create(createRequest(), context({ isLive }))
      .catch((thrown: unknown) => thrown)
    expect(error).toMatchObject({ kind: 'permanent', origin: 'environment', code: 'OwnedByAnother' })
    expect(String(error)).toMatch(/uid-2.*uid-1/)
    expect(asked).toEqual(['uid-2'])
    expect(host.changes).toEqual([])
  })
})

describe('a domain that is ours', () => {
  it('without a UID in its mark is adopted and gets one', async () => {
    const host = hostWith(markXml({ createdAt: '2026-01-01T00:00:00Z' }))
    expect(await operator(host).create(createRequest(), context())).toBe(providerID)
    expect(host.markOf(foreignUuid)).toEqual({
      kind: 'marked',
      mark: { ...owner, specHash: 'v1:1', createdAt: '2026-01-01T00:00:00Z' },
    })
    expect(host.changes).toEqual(['setMark'])
  })

  it('and was renamed is found by the UUID that it was made with', async () => {
    const host = new FakeHost()
    await operator(host).create(createRequest(), context())
    for (const domain of host.domains.values()) domain.name = 'by-hand'
    host.changes.length = 0
    expect(await operator(host).get(providerID, context())).toMatchObject({ state: 'running', uid: owner.uid })
    expect(await operator(host).create(createRequest(), context())).toBe('hosts/a/domains/by-hand')
    expect(host.changes).toEqual([])
    await operator(host).delete(deleteRequest({ providerID: 'hosts/a/domains/by-hand' }), context())
    expect([host.domains.size, [...host.volumes.keys()].filter((volume) => !volume.startsWith('base-'))]).toEqual([
      0,
      [],
    ])
  })

  it('and lost its mark is an error for a get and for a delete, and stays', async () => {
    const host = hostWith(undefined, domainUuid(name))
    const refusal = { kind: 'permanent', origin: 'environment', code: 'MarkMissing' }
    await expect(operator(host).get(providerID, context())).rejects.toMatchObject(refusal)
    await expect(operator(host).delete(deleteRequest({ providerID }), context())).rejects.toMatchObject(refusal)
    expect(host.changes).toEqual([])
  })

  it('is started when it is stopped, and made anew when its disk is gone', async () => {
    const host = new FakeHost()
    await operator(host).create(createRequest(), context())
    for (const domain of host.domains.values()) domain.state = 5
    host.changes.length = 0
    await operator(host).create(createRequest(), context())
    expect(host.changes).toContain('start')
    expect(host.changes).not.toContain('define')
    for (const domain of host.domains.values()) domain.state = 5
    host.volumes.delete(`${name}.qcow2`)
    await operator(host).create(createRequest(), context())
    expect(host.changes).toContain('define')
    expect([...host.domains.values()].map((domain) => domain.state)).toEqual([1])
    expect(host.volumes.has(`${name}.qcow2`)).toBe(true)
  })

  it('is not resumed when somebody paused it', async () => {
    const host = new FakeHost()
    await operator(host).create(createRequest(), context())
    for (const state of [3, 7]) {
      for (const domain of host.domains.values()) domain.state = state
      await expect(operator(host).create(createRequest(), context())).rejects.toMatchObject({
        kind: 'permanent',
        origin: 'environment',
        code: 'InstancePaused',
        message: expect.stringMatching(
          /is DomainP.* and cannot be started by the operator; resume or destroy it/,
        ) as string,
      })
      expect(await operator(host).get(providerID, context())).toMatchObject({ state: 'paused' })
    }
  })
})

describe('volumes without a domain', () => {
  it.each([
    ['of a Proxy that is gone are replaced', false],
    ['of a Proxy that lives stop a create', true],
  ])('%s', async (_what, live) => {
    const host = new FakeHost()
    host.addVolume(`${name}-seed.iso`, seedOf('uid-2'))
    host.addVolume(`${name}.qcow2`, Buffer.from('theirs'), '/pool/base-debian.qcow2')
    const create = operator(host).create(createRequest(), context({ isLive: () => Promise.resolve(live) }))
    if (live) {
      await expect(create).rejects.toMatchObject({ kind: 'permanent', code: 'OwnedByAnother' })
      expect(host.volumes.get(`${name}.qcow2`)?.content.toString()).toBe('theirs')
    } else {
      await create
      expect(host.volumes.get(`${name}.qcow2`)?.content.toString()).toBe('')
    }
  })

  it('are not deleted when their seed names somebody else', async () => {
    for (const seed of [seedOf('uid-2'), seedOf(owner.uid, 'away')]) {
      const host = new FakeHost()
      host.addVolume(`${name}-seed.iso`, seed)
      host.addVolume(`${name}.qcow2`, Buffer.from('theirs'))
      await operator(host).delete(deleteRequest(), context())
      expect(host.changes).toEqual([])
    }
  })

  it('are deleted under our own name when there is no seed, or one that says nothing; under another name they are not', async () => {
    for (const seed of [undefined, Buffer.alloc(50_000), Buffer.alloc(0)]) {
      const host = new FakeHost()
      if (seed !== undefined) host.addVolume(`${name}-seed.iso`, seed)
      host.addVolume(`${name}.qcow2`, Buffer.from('cut off'))
      host.addVolume('other.qcow2', Buffer.from('not ours'))
      await operator(host).delete(deleteRequest({ providerID: 'hosts/a/domains/other' }), context())
      expect([...host.volumes.keys()]).toEqual(['other.qcow2'])
    }
  })

  it('keep an overlay that stands on the wanted base, and lose one on another', async () => {
    for (const [backing, kept] of [
      ['/pool/base-debian.qcow2', true],
      ['/pool/base-other.qcow2', false],
    ] as const) {
      const host = new FakeHost()
      host.addVolume(`${name}-seed.iso`, seedOf(owner.uid))
      host.addVolume(`${name}.qcow2`, Buffer.from('before'), backing)
      await operator(host).create(createRequest(), context())
      const overlay = host.volumes.get(`${name}.qcow2`)
      expect([overlay?.content.toString(), overlay?.backing]).toEqual([kept ? 'before' : '', '/pool/base-debian.qcow2'])
    }
  })
})

describe('permission to change', () => {
  it('is asked before every change and its loss ends a create and a delete at once', async () => {
    const whole = new FakeHost()
    await operator(whole).create(createRequest(), context())
    for (let allowed = 0; allowed < whole.changes.length; allowed++) {
      const host = new FakeHost()
      const mayMutate = () => host.changes.length < allowed
      await expect(operator(host).create(createRequest(), context({ mayMutate }))).rejects.toMatchObject({
        kind: 'transient',
        code: 'NotLeading',
      })
      expect(host.changes.length).toBe(allowed)
    }
    const { length } = whole.changes
    await expect(operator(whole).delete(deleteRequest(), context({ mayMutate: () => false }))).rejects.toMatchObject({
      code: 'NotLeading',
    })
    expect(whole.changes.length).toBe(length)
  })

  it('is not sought where the intent could not be recorded', async () => {
    const host = new FakeHost()
    const record = () => Promise.reject(new Error('the object is being deleted'))
    await expect(operator(host).create(createRequest(), context({ record }))).rejects.toMatchObject({
      kind: 'transient',
    })
    expect(host.changes).toEqual([])
    const kept = context()
    await operator(host).create(createRequest(), kept)
    expect(kept.recorded).toEqual([{ target: 'a' }])
  })

  it('is not recorded before the host answered and its pool runs, for a deletion would wait for both', async () => {
    const host = new FakeHost()
    const kept = context()
    const locked = operator(host, { dial: () => Promise.reject(new Error('no way in')) })
    await expect(locked.create(createRequest(), kept)).rejects.toMatchObject({ kind: 'transient' })
    host.poolState = 0
    await expect(operator(host).create(createRequest(), kept)).rejects.toMatchObject({ code: 'PoolNotActive' })
    expect([kept.recorded, host.changes]).toEqual([[], []])
  })

  it('is not sought for a placement that selects nothing, and no host is dialled', async () => {
    let dialled = 0
    const provider = operator(new FakeHost(), { dial: () => Promise.reject(new Error(`dial ${++dialled}`)) })
    const kept = context()
    const request = createRequest({ placement: { machineType: 'small', image: 'nope' } })
    await expect(provider.create(request, kept)).rejects.toMatchObject({ kind: 'permanent', origin: 'spec' })
    expect([dialled, kept.recorded]).toEqual([0, []])
  })
})

describe('delete', () => {
  it('reports targets that are no longer configured and goes on with the others', async () => {
    const host = new FakeHost()
    await operator(host).create(createRequest(), context())
    const request = deleteRequest({ providerID, intents: [{ target: 'gone' }, { target: 'a' }] })
    expect(await operator(host).delete(request, context())).toEqual({
      abandoned: [{ target: 'gone', instanceName: name }],
    })
    expect(host.domains.size).toBe(0)
  })

  it('of a Proxy for which nothing was recorded asks nobody', async () => {
    const provider = operator(new FakeHost(), { dial: () => Promise.reject(new Error('dialled')) })
    expect(await provider.delete(deleteRequest({ intents: [] }), context())).toEqual({ abandoned: [] })
  })

  it('is transient while a target cannot be asked', async () => {
    const provider = operator(new FakeHost(), { dial: () => Promise.reject(new Error('no route')) })
    await expect(provider.delete(deleteRequest(), context())).rejects.toMatchObject({ kind: 'transient', target: 'a' })
  })
})

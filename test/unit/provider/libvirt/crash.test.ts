// A crash at every single change on the host, before and after it took effect: a repeat ends where a first attempt does.
import { describe, expect, it } from 'vitest'
import { decodeSeedOwner } from '../../../../src/provider/nocloud/owner.ts'
import { readIso } from '../../../support/iso-reader.ts'
import { FakeHost } from './fake-host.ts'
import { context, createRequest, deleteRequest, imageBytes, imageDigest, name, operator, owner } from './world.ts'

const providerID = `hosts/a/domains/${name}`
const image = ['base-debian.qcow2', 'base-debian.qcow2.info', 'base-debian.qcow2.sha256']

function expectRunning(host: FakeHost, specHash = 'v1:1'): void {
  const domains = [...host.domains.values()]
  expect(domains.map((domain) => [domain.name, domain.state, domain.autostart])).toEqual([[name, 1, true]])
  expect(host.markOf(domains[0]?.uuid ?? '')).toMatchObject({
    kind: 'marked',
    mark: { uid: owner.uid, installation: owner.installation, specHash, imageDigest },
  })
  expect([...host.volumes.keys()].sort()).toEqual([...image, `${name}-seed.iso`, `${name}.qcow2`].sort())
  expect(host.volumes.get('base-debian.qcow2')?.content.equals(imageBytes)).toBe(true)
  expect(host.volumes.get('base-debian.qcow2.sha256')?.content.toString()).toBe(imageDigest)
  expect(host.volumes.get(`${name}.qcow2`)?.backing).toBe('/pool/base-debian.qcow2')
  const seed = host.volumes.get(`${name}-seed.iso`)?.content ?? Buffer.alloc(0)
  expect(readIso(seed).files.get('user-data')?.toString()).toBe('#cloud-config\n')
  expect(decodeSeedOwner(seed.subarray(32_768, 34_816))).toEqual({ uid: owner.uid, installation: owner.installation })
}

/** Every crash of one run, told by what a run without one changed. */
function crashesOf(changes: readonly string[]) {
  return changes.flatMap((what, index) => (['before', 'after'] as const).map((moment) => ({ what, index, moment })))
}

async function fresh(): Promise<readonly string[]> {
  const host = new FakeHost()
  expect(await operator(host).create(createRequest(), context())).toBe(providerID)
  expectRunning(host)
  return host.changes
}

describe('create', () => {
  it('writes seed, overlay, domain in this order, the marker of the image last, and claims the image for both', async () => {
    const small = (what: string) => [`create ${what}`, 'upload first half', 'upload rest']
    expect(await fresh()).toEqual([
      ...small('.claim.1'),
      ...['create .qcow2', 'upload chunk', 'upload chunk', 'upload chunk', 'refresh'],
      ...[...small('.info'), ...small('.sha256'), 'delete .claim.1'],
      ...[...small('.claim.1'), ...small('-seed.iso'), 'create .qcow2', 'delete .claim.1'],
      ...['define', 'autostart', 'start'],
    ])
  })

  it('ends with one running instance after a crash at any change', async () => {
    const crashes = crashesOf(await fresh())
    expect(crashes.length).toBeGreaterThan(30)
    for (const crash of crashes) {
      const host = new FakeHost()
      host.crashAt(crash)
      await expect(operator(host).create(createRequest(), context()), JSON.stringify(crash)).rejects.toMatchObject({
        kind: 'transient',
        message: expect.stringMatching(/crash at|out of reach/) as string,
      })
      host.recover()
      expect(await operator(host).create(createRequest(), context()), JSON.stringify(crash)).toBe(providerID)
      expectRunning(host)
    }
  })

  it('changes nothing when everything is there already', async () => {
    const host = new FakeHost()
    await operator(host).create(createRequest(), context())
    const before = host.changes.length
    await operator(host).create(createRequest(), context())
    expect(host.changes.slice(before)).toEqual([])
  })

  it('replaces an instance of another spec, after a crash at any change too', async () => {
    const make = async () => {
      const host = new FakeHost()
      await operator(host).create(createRequest(), context())
      host.changes.length = 0
      return host
    }
    const plain = await make()
    await operator(plain).create(createRequest({ specHash: 'v1:2' }), context())
    expectRunning(plain, 'v1:2')
    for (const crash of crashesOf(plain.changes)) {
      const host = await make()
      host.crashAt(crash)
      await operator(host)
        .create(createRequest({ specHash: 'v1:2' }), context())
        .catch(() => undefined)
      host.recover()
      await operator(host).create(createRequest({ specHash: 'v1:2' }), context())
      expectRunning(host, 'v1:2')
    }
  })
})

describe('delete', () => {
  const rest = (host: FakeHost) => ({ domains: host.domains.size, volumes: [...host.volumes.keys()].sort() })

  it('leaves nothing but the cached image, after a crash at any change too', async () => {
    const plain = new FakeHost()
    await operator(plain).create(createRequest(), context())
    plain.changes.length = 0
    expect(await operator(plain).delete(deleteRequest({ providerID }), context())).toEqual({ abandoned: [] })
    expect(plain.changes).toEqual(['destroy', 'undefine', 'delete .qcow2', 'delete -seed.iso'])
    expect(rest(plain)).toEqual({ domains: 0, volumes: image })
    for (const crash of crashesOf(plain.changes)) {
      const host = new FakeHost()
      await operator(host).create(createRequest(), context())
      host.changes.length = 0
      host.crashAt(crash)
      await expect(operator(host).delete(deleteRequest({ providerID }), context())).rejects.toMatchObject({
        kind: 'transient',
      })
      host.recover()
      await operator(host).delete(deleteRequest({ providerID }), context())
      expect(rest(host), JSON.stringify(crash)).toEqual({ domains: 0, volumes: image })
    }
  })

  it('clears what a create left that crashed at any change', async () => {
    for (const crash of crashesOf(await fresh())) {
      const host = new FakeHost()
      host.crashAt(crash)
      await operator(host)
        .create(createRequest(), context())
        .catch(() => undefined)
      host.recover()
      await operator(host).delete(deleteRequest(), context())
      const { domains, volumes } = rest(host)
      expect(domains).toBe(0)
      expect(
        volumes.filter((volume) => !volume.startsWith('base-')),
        JSON.stringify(crash),
      ).toEqual([])
    }
  })
})

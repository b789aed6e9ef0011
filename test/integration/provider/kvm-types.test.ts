// The types kvm and kvm2 side by side on one host, and the words that kvm's own document has; over real SSH and RPC.
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { systemClock } from '../../../src/lib/clock.ts'
import { kvmFlavour } from '../../../src/provider/libvirt/flavour.ts'
import { createImageSharing } from '../../../src/provider/libvirt/image-sharing.ts'
import {
  cachedImage,
  context,
  createRequest,
  deleteRequest,
  failure,
  startWorld,
  volumeNames,
  type World,
} from './stub-world.ts'
import { eventually } from '../../support/eventually.ts'

const { instanceName: nameA } = createRequest('a')
const { instanceName: nameB } = createRequest('b')
const at = (name: string) => `hosts/lab/domains/${name}`

let world: World
beforeEach(async () => {
  world = await startWorld()
})
afterEach(async () => {
  await world[Symbol.asyncDispose]()
})

const kvmOf = (block: object = {}) => world.provider(block, {}, 'kvm')

describe('kvm and kvm2 on one host with one Secret', () => {
  it('share images and nothing else', async () => {
    const imageSharing = createImageSharing(systemClock)
    const kvm = world.provider({}, { imageSharing }, 'kvm')
    const kvm2 = world.provider({}, { imageSharing })
    expect([kvm.type, kvm2.type]).toEqual(['kvm', 'kvm2'])
    await Promise.all([kvm.create(createRequest('a'), context()), kvm2.create(createRequest('b'), context())])
    expect(world.images.requests.filter((request) => request.startsWith('GET'))).toHaveLength(1)
    expect((await kvm.list(context())).map(({ providerID }) => providerID)).toEqual([at(nameA)])
    expect((await kvm2.list(context())).map(({ providerID }) => providerID)).toEqual([at(nameB)])
    expect(await kvm.get(at(nameA), context())).toMatchObject({ state: 'running', uid: 'uid-a' })
    expect(await failure(kvm2.get(at(nameA), context()))).toMatchObject({ kind: 'permanent', code: 'MarkMissing' })
    const { domains } = world.stub.host
    expect(domains.document(domains.byName(nameA), true)).toMatch(/egress-proxies-operator\/kvm['"]/)
    expect(domains.document(domains.byName(nameB), true)).toMatch(/egress-proxies-operator\/kvm2['"]/)
    await kvm.delete(deleteRequest('a'), context())
    await kvm2.delete(deleteRequest('b'), context())
    expect([world.stub.domains(), volumeNames(world)]).toEqual([[], cachedImage])
  })

  it('refuse the name of an instance that the other one made, and leave it alone', async () => {
    const kvm = kvmOf()
    const kvm2 = world.provider()
    await kvm.create(createRequest(), context())
    const error = await failure(kvm2.create(createRequest(), context()))
    expect(error).toMatchObject({ kind: 'permanent', origin: 'environment', code: 'MarkMissing' })
    expect(error.message).toContain('carries no kvm2 mark; it was not created by this provider')
    expect(world.stub.domain(nameA)?.state).toBe('running')
  })
})

describe('a kvm2 entry that was kvm before', () => {
  const marks = () => {
    const { domains } = world.stub.host
    const documents = [false, true].map((inactive) => domains.document(domains.byName(nameA), inactive))
    const count = (type: string) =>
      documents.map((xml) => xml.match(new RegExp(`egress-proxies-operator/${type}['"]`, 'g'))?.length ?? 0)
    return { kvm: count('kvm'), kvm2: count('kvm2') }
  }

  it('finds, lists and observes what kvm made, and takes it over without a reboot', async () => {
    await kvmOf().create(createRequest(), context())
    const { id } = world.stub.host.domains.byName(nameA)
    const provider = world.provider({ adoptFrom: ['kvm'] })
    expect(await provider.get(at(nameA), context())).toMatchObject({ state: 'running', uid: 'uid-a', unadopted: true })
    expect(await provider.list(context())).toMatchObject([{ providerID: at(nameA), mark: { uid: 'uid-a' } }])
    expect(await provider.observe('lab', context())).toEqual(new Map([[at(nameA), 'running']]))
    expect(await provider.create(createRequest(), context())).toBe(at(nameA))
    expect(marks()).toEqual({ kvm: [0, 0], kvm2: [1, 1] })
    expect(world.stub.host.domains.byName(nameA).id).toBe(id)
    expect(await provider.get(at(nameA), context())).not.toHaveProperty('unadopted')
    expect(await kvmOf().list(context())).toEqual([])
    expect(await world.provider().get(at(nameA), context())).toMatchObject({ uid: 'uid-a', specHash: 'v1:1' })
  })

  it('takes over one that is stopped, with its disk, and one with a mark of few words', async () => {
    await kvmOf().create(createRequest(), context())
    const { host } = world.stub
    const domain = host.domains.byName(nameA)
    host.shutDown(domain, 1)
    const { markNamespace } = kvmFlavour
    const xml =
      '<instance><managed>true</managed><uid>uid-a</uid><createdAt>2025-01-01T00:00:00Z</createdAt></instance>'
    host.domains.setMetadata(domain, markNamespace, 'kvm', xml, 2)
    // As the earlier implementation left it: without an owner.
    host.pools.byName('default').volumes.get(`${nameA}-seed.iso`)?.content.write(32768, Buffer.alloc(2048))
    const { path } = world.stub.volume(`${nameA}.qcow2`) ?? {}
    const made = world.stub.calls('STORAGE_VOL_CREATE_XML')
    expect(await world.provider({ adoptFrom: ['kvm'] }).create(createRequest(), context())).toBe(at(nameA))
    expect(world.stub.calls('STORAGE_VOL_CREATE_XML')).toBe(made)
    expect([path, world.stub.domain(nameA)?.state]).toEqual([expect.any(String), 'running'])
    expect(marks()).toEqual({ kvm: [0, 0], kvm2: [1, 1] })
  })

  it('deletes what kvm made, replaces what was made from another spec, and leaves another Proxy alone', async () => {
    await kvmOf().create(createRequest(), context())
    const provider = world.provider({ adoptFrom: ['kvm'] })
    const stranger = createRequest('a', { owner: { ...createRequest('a').owner, uid: 'uid-other' } })
    expect(await failure(provider.create(stranger, context({ isLive: () => Promise.resolve(true) })))).toMatchObject({
      code: 'OwnedByAnother',
    })
    await provider.create(createRequest('a', { specHash: 'v1:2' }), context())
    expect(marks()).toEqual({ kvm: [0, 0], kvm2: [1, 1] })
    await provider.delete(deleteRequest(), context())
    await kvmOf().create(createRequest(), context())
    await provider.delete(deleteRequest(), context())
    expect([world.stub.domains(), volumeNames(world)]).toEqual([[], cachedImage])
  })

  it('removes the old mark that a crash left beside the new one', async () => {
    await kvmOf().create(createRequest(), context())
    const provider = world.provider({ adoptFrom: ['kvm'] })
    const release = world.stub.knobs.hang('DOMAIN_SET_METADATA', 'after')
    const first = failure(provider.create(createRequest(), context()))
    await eventually('the new mark', 30_000, () => Promise.resolve(marks().kvm2[0] === 1 ? true : undefined))
    world.stub.cutConnections()
    release()
    expect(await first).toMatchObject({ kind: 'transient' })
    expect(marks()).toEqual({ kvm: [1, 1], kvm2: [1, 1] })
    await provider.create(createRequest(), context())
    expect(marks()).toEqual({ kvm: [0, 0], kvm2: [1, 1] })
  })
})

describe('the health check of kvm', () => {
  const checked = async (block: object = {}) => (await kvmOf(block).check(context()))[0]
  const host = () => ({ name: 'lab', address: world.stub.address, user: world.stub.user, bridge: 'br0' })

  it('has the details of its document, and a connection of its own', async () => {
    const kvm = kvmOf()
    await kvm.create(createRequest(), context())
    const [health] = await kvm.check(context())
    expect(health).toMatchObject({ ready: true, reason: 'Reachable' })
    expect(health?.details).toEqual({
      user: world.stub.user,
      pool: 'default',
      libvirtVersion: '9.0.0',
      hostname: 'libvirt-stub',
      poolState: 'running',
      poolCapacity: '100.0 GiB',
      poolAvailable: expect.stringMatching(/^\d+\.\d GiB$/) as string,
      'image.tiny': expect.stringMatching(/^sha256 [0-9a-f]{12} fetched /) as string,
    })
  })

  it.each<[string, object, () => void]>([
    ['SSHMaterialUnavailable', { sshKeyFile: '/nonexistent/id' }, () => undefined],
    ['Unreachable', { hosts: [{ name: 'lab', address: '127.0.0.1:1', user: 'u', bridge: 'br0' }] }, () => undefined],
    ['LibvirtConnectFailed', {}, () => (world.stub.knobs.refuseForwarding = true)],
    ['PoolNotActive', {}, () => (world.stub.pool().active = false)],
  ])('says %s', async (reason, block, arrange) => {
    arrange()
    expect(await checked(block)).toMatchObject({ ready: false, reason })
  })

  it('says what libvirt and SSH refuse in its own words', async () => {
    expect(await checked({ hosts: [{ ...host(), user: 'nobody' }] })).toMatchObject({ reason: 'SSHHandshakeFailed' })
    expect(await checked({ hosts: [{ ...host(), pool: 'nope' }] })).toMatchObject({
      reason: 'PoolNotFound',
      details: { libvirtVersion: '9.0.0' },
    })
    const nothing = { str1: null, str2: null, str3: null, dom: null, net: null }
    const error = { code: 1, domain: 0, level: 2, message: 'internal error: odd', int1: -1, int2: -1, ...nothing }
    world.stub.knobs.failNext('CONNECT_GET_HOSTNAME', error)
    expect(await checked()).toMatchObject({ reason: 'LibvirtError', message: 'internal error: odd' })
    const release = world.stub.knobs.hang('STORAGE_POOL_GET_INFO')
    const [health] = await kvmOf().check(context({ signal: AbortSignal.timeout(1000) }))
    release()
    expect(health).toMatchObject({ ready: false, reason: 'Timeout' })
  })
})

describe('the log of kvm', () => {
  it('names calls as the libvirt API does, on a logger of their own', async () => {
    const kvm = kvmOf()
    await kvm.create(createRequest(), context())
    await kvm.get(at(nameA), context())
    await kvm.delete(deleteRequest(), context())
    const calls = world.lines.filter(({ msg }) => msg === 'libvirt call')
    expect(new Set(calls.map(({ logger }) => logger))).toEqual(new Set(['kvm.libvirt']))
    expect(calls.map(({ rpc }) => rpc)).toEqual(
      expect.arrayContaining([
        'virDomainLookupByUUID',
        'virConnectListAllDomains',
        'virDomainDefineXML',
        'virStorageVolCreateXML',
        'virConnectDomainEventRegisterAny',
      ]),
    )
    const operations = world.lines.filter(({ logger }) => logger === 'kvm').map(({ msg }) => msg)
    expect(operations).toEqual(
      expect.arrayContaining(['libvirt host connected', 'KVM domain fetched', 'KVM domain deleted', 'domain defined']),
    )
  })

  it('says that a connection was dropped, and why, when it was not we who ended it', async () => {
    const kvm = kvmOf()
    await kvm.check(context())
    await kvm.list(context())
    const dropped = () => world.lines.filter(({ msg }) => msg === 'libvirt connection dropped')
    expect(dropped()).toEqual([])
    world.stub.cutConnections()
    const [line] = await eventually('a line about it', 30_000, () =>
      Promise.resolve(dropped().length > 0 ? dropped() : undefined),
    )
    expect(line).toMatchObject({ logger: 'kvm', host: 'lab', reason: expect.stringMatching(/./) as string })
  })
})

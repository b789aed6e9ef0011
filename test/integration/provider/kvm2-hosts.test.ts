// What a host of a kvm2 entry may be besides libvirtd with a bridge: modular daemons, a network of libvirt's own, one that is drained.
import { afterEach, describe, expect, it } from 'vitest'
import type { DomainInterface } from '../../../src/provider/libvirt/host-api.ts'
import { eventually } from '../../support/eventually.ts'
import type { LibvirtStubOptions } from '../../support/libvirt-stub/stub.ts'
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

const budgetMs = 30_000
const { instanceName: name } = createRequest()
const providerID = `hosts/lab/domains/${name}`

let world: World
async function start(options?: LibvirtStubOptions) {
  world = await startWorld(options)
}
afterEach(async () => {
  await world[Symbol.asyncDispose]()
})

/** The host as the config has it, without a socket. */
const host = (change: object = {}) => ({
  name: 'lab',
  address: world.stub.address,
  user: world.stub.user,
  bridge: 'br0',
  ...change,
})
const providerOf = (change: object = {}) => world.provider({ hosts: [host(change)] })
const onNetwork = { bridge: undefined, network: 'lan' }
const readAddress = (provider: ReturnType<typeof providerOf>) =>
  eventually('an address', budgetMs, async () => (await provider.get(providerID, context())).ip)

describe("libvirt's socket", () => {
  const modular = '/var/run/libvirt/virtqemud-sock'

  it('is that of the modular daemons where the monolithic one is absent', async () => {
    await start({ socketPath: modular })
    const provider = providerOf()
    await provider.create(createRequest(), context())
    expect((await provider.check(context()))[0]).toMatchObject({ ready: true })
    expect((await provider.get(providerID, context())).state).toBe('running')
  })

  it('is the configured one and no other', async () => {
    await start({ socketPath: modular })
    const [health] = await providerOf({ socket: '/var/run/libvirt/libvirt-sock' }).check(context())
    expect(health).toMatchObject({ ready: false, reason: 'Unreachable' })
    expect(health?.message).not.toContain('virtqemud')
  })

  it('that is not there names what was tried', async () => {
    await start({ socketPath: '/elsewhere' })
    const [health] = await providerOf().check(context())
    expect(health).toMatchObject({ ready: false, reason: 'Unreachable' })
    for (const tried of ['/var/run/libvirt/libvirt-sock', modular]) expect(health?.message).toContain(tried)
    expect((await failure(providerOf().create(createRequest(), context()))).message).toContain(modular)
  })
})

describe('a network of libvirt', () => {
  it("gives instances their interface, and its leases their address before any agent's word", async () => {
    await start()
    const { domains } = world.stub.host
    domains.networks.set('lan', true)
    const provider = providerOf(onNetwork)
    expect((await provider.check(context()))[0]).toMatchObject({ ready: true, details: { network: 'lan' } })
    world.stub.knobs.arpBroken = true
    world.stub.knobs.addresses.set(1, () => [])
    await provider.create(createRequest(), context())
    expect(domains.document(domains.byName(name), true)).toMatch(
      /<interface type=['"]network['"]>[^]*<source network=['"]lan['"]/,
    )
    expect(await readAddress(provider)).toBe(world.stub.domain(name)?.address)
  })

  it('that is missing is told by check and create, and so is one that does not run', async () => {
    await start()
    const provider = providerOf(onNetwork)
    expect((await provider.check(context()))[0]).toMatchObject({
      ready: false,
      reason: 'APIError',
      message: expect.stringContaining("no network with matching name 'lan'") as string,
      details: { poolState: 'running' },
    })
    expect(await failure(provider.create(createRequest(), context()))).toMatchObject({
      kind: 'permanent',
      origin: 'environment',
      code: 'NetworkNotFound',
    })
    world.stub.host.domains.networks.set('lan', false)
    const [health] = await provider.check(context())
    expect(health).toMatchObject({ ready: false, reason: 'APIError' })
    expect(health?.message).toContain('virsh net-start lan')
    expect(await failure(provider.create(createRequest(), context()))).toMatchObject({ kind: 'transient' })
    world.stub.host.domains.networks.set('lan', true)
    await provider.create(createRequest(), context())
    expect(world.stub.domain(name)?.state).toBe('running')
  })
})

describe('a host that is drained', () => {
  it('makes nothing new, serves what it has, and says how much that is', async () => {
    await start()
    const before = providerOf()
    await before.create(createRequest('a'), context())
    const provider = providerOf({ drain: true })
    const refusal = await failure(provider.create(createRequest('b'), context()))
    expect(refusal).toMatchObject({ kind: 'permanent', origin: 'spec', code: 'HostDraining' })
    expect(refusal.message).toContain('kvm2.hosts has drain: true')
    expect(world.stub.domains()).toHaveLength(1)
    expect((await provider.check(context()))[0]).toMatchObject({
      ready: true,
      message: expect.stringContaining('1 instances are left') as string,
      details: { drain: 'true', instances: '1' },
    })
    world.stub.host.shutDown(world.stub.host.domains.byName(name), 1)
    expect(await provider.create(createRequest('a'), context())).toBe(providerID)
    expect((await provider.get(providerID, context())).state).toBe('running')
    expect(await failure(provider.create(createRequest('a', { specHash: 'v1:2' }), context()))).toMatchObject({
      code: 'HostDraining',
    })
    await provider.delete(deleteRequest('a'), context())
    expect([world.stub.domains(), volumeNames(world)]).toEqual([[], cachedImage])
    expect((await provider.check(context()))[0]?.details).toMatchObject({ instances: '0' })
  })
})

describe('an address', () => {
  const row = (mac: string, ...ips: string[]): DomainInterface => ({
    name: 'vnet0',
    hwaddr: mac,
    addrs: ips.map((addr) => ({ type: addr.includes(':') ? 1 : 0, addr, prefix: 24 })),
  })
  const macOf = (one: string) => world.stub.host.domains.byName(one).live?.nics[0]?.mac ?? ''
  const answers = (from: 'lease' | 'agent' | 'arp', interfaces: (mac: string) => DomainInterface[]) =>
    world.stub.knobs.addresses.set({ lease: 0, agent: 1, arp: 2 }[from], () => interfaces(macOf(name)))

  it.each<[string, (mac: string) => DomainInterface[], string | undefined]>([
    [
      'of a container bridge is not taken',
      (mac) => [row('02:42:ac:11:00:02', '172.17.0.1'), row(mac, '10.0.0.5')],
      '10.0.0.5',
    ],
    ['alone on a container bridge is none', () => [row('02:42:ac:11:00:02', '172.17.0.1')], undefined],
    ['that is link-local is none', (mac) => [row(mac, '169.254.1.2', 'fe80::1')], undefined],
    ['of IPv6 counts when there is no other', (mac) => [row(mac, 'fe80::1', '2001:db8::5')], '2001:db8::5'],
    ['among several is the first of IPv4', (mac) => [row(mac, '2001:db8::5', '10.0.0.5', '10.0.0.6')], '10.0.0.5'],
    ['that is not there yet is none', (mac) => [row(mac)], undefined],
  ])('%s', async (_what, interfaces, expected) => {
    await start()
    const provider = providerOf()
    await provider.create(createRequest(), context())
    world.stub.knobs.addresses.set(2, () => [])
    answers('agent', interfaces)
    expect((await provider.get(providerID, context())).ip).toBe(expected)
  })

  it('from several ARP rows is none until the agent decides', async () => {
    await start()
    const provider = providerOf()
    await provider.create(createRequest(), context())
    answers('agent', () => [])
    answers('arp', (mac) => [row(mac, '10.0.0.5'), row(mac, '10.0.0.6'), row('52:54:00:00:00:01', '10.0.0.7')])
    expect((await provider.get(providerID, context())).ip).toBeUndefined()
    answers('agent', (mac) => [row(mac, '10.0.0.6')])
    expect((await provider.get(providerID, context())).ip).toBe('10.0.0.6')
  })

  it('from several ARP rows is none until a lease decides', async () => {
    await start()
    world.stub.host.domains.networks.set('lan', true)
    const provider = providerOf(onNetwork)
    await provider.create(createRequest(), context())
    answers('agent', () => [])
    answers('lease', (mac) => [row(mac, '10.0.0.5', '10.0.0.6')])
    answers('arp', (mac) => [row(mac, '10.0.0.5'), row(mac, '10.0.0.6')])
    expect((await provider.get(providerID, context())).ip).toBeUndefined()
    answers('lease', (mac) => [row(mac, '10.0.0.5')])
    expect((await provider.get(providerID, context())).ip).toBe('10.0.0.5')
  })

  it('from the ARP table is refused while another instance has it', async () => {
    await start()
    const provider = providerOf()
    await provider.create(createRequest('a'), context())
    await provider.create(createRequest('b'), context())
    const { instanceName: other } = createRequest('b')
    const otherID = `hosts/lab/domains/${other}`
    world.stub.knobs.addresses.set(1, () => [row(macOf(other), '10.0.0.5')])
    expect((await provider.get(otherID, context())).ip).toBe('10.0.0.5')
    answers('arp', (mac) => [row(mac, '10.0.0.5')])
    expect((await provider.get(providerID, context())).ip).toBeUndefined()
    world.stub.knobs.addresses.set(1, () => [])
    await provider.delete(deleteRequest('b'), context())
    expect((await provider.get(providerID, context())).ip).toBe('10.0.0.5')
  })
})

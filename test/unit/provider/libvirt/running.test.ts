// From a start to an address: what counts as running, what is said when it is not, and which source of addresses is believed.
import { describe, expect, it } from 'vitest'
import { defaultBudgets } from '../../../../src/provider/libvirt/budgets.ts'
import { parseDomainXml } from '../../../../src/provider/libvirt/domain-xml.ts'
import { LibvirtConnectionError } from '../../../../src/wire/libvirt/errors.ts'
import { fail, FakeHost } from './fake-host.ts'
import { context, createRequest, name, operator } from './world.ts'

const providerID = `hosts/a/domains/${name}`

describe('after a start', () => {
  it('it is waited for while it is starting up', async () => {
    const host = new FakeHost()
    host.afterStart.push([0, 0], [3, 11], [4, 0], [1, 1])
    await operator(host).create(createRequest(), context())
    expect(host.afterStart).toEqual([])
  })

  it.each<[string, readonly [number, number], object]>([
    [
      'paused',
      [3, 5],
      {
        kind: 'permanent',
        origin: 'environment',
        code: 'InstancePaused',
        message: expect.stringContaining('DomainPaused (I/O error)') as string,
      },
    ],
    [
      'shut off',
      [5, 6],
      { kind: 'transient', code: 'StoppedAfterStart', message: expect.stringContaining(`${name}.log`) as string },
    ],
    ['crashed', [6, 0], { kind: 'transient', code: 'StoppedAfterStart' }],
  ])('it is an error of its own when it is %s', async (_what, status, refusal) => {
    const host = new FakeHost()
    host.afterStart.push(status)
    await expect(operator(host).create(createRequest(), context())).rejects.toMatchObject(refusal)
  })

  it('it is given up when it never runs', async () => {
    const host = new FakeHost()
    host.afterStart.push(...Array.from({ length: 10_000 }, () => [0, 0] as const))
    const budgets = { ...defaultBudgets, runningWaitMs: 50, runningPollMs: 5 }
    await expect(operator(host, { budgets }).create(createRequest(), context())).rejects.toMatchObject({
      kind: 'transient',
      code: 'NotRunning',
    })
  })
})

describe('the address', () => {
  async function running() {
    const host = new FakeHost()
    const provider = operator(host)
    await provider.create(createRequest(), context())
    const [domain] = host.domains.values()
    const hwaddr = parseDomainXml(domain?.xml ?? '')?.macs[0] ?? ''
    const nic = (addr: string) => [{ name: 'eth0', hwaddr, addrs: [{ type: 0, addr, prefix: 24 }] }]
    return { host, nic, ip: async () => (await provider.get(providerID, context())).ip, provider }
  }
  const noAgent = () =>
    fail('DOMAIN_INTERFACE_ADDRESSES', 86, 'Guest agent is not responding: QEMU guest agent is not connected')
  const brokenArp = () => fail('DOMAIN_INTERFACE_ADDRESSES', 1, 'internal error: wrong nlmsg len')

  it("is the agent's, and the ARP table's only where the agent has none", async () => {
    const { host, nic, ip } = await running()
    host.sources.arp = () => nic('10.0.0.2')
    expect(await ip()).toBe('10.0.0.2')
    host.sources.agent = () => nic('10.0.0.1')
    expect(await ip()).toBe('10.0.0.1')
    host.sources.agent = noAgent
    expect(await ip()).toBe('10.0.0.2')
  })

  it.each([86, 112, 97, 74])(
    'is not known, and that is no error, while the agent answers with code %i and ARP fails',
    async (code) => {
      const { host, ip } = await running()
      host.sources.agent = () => fail('DOMAIN_INTERFACE_ADDRESSES', code, 'no agent')
      host.sources.arp = brokenArp
      expect(await ip()).toBeUndefined()
    },
  )

  it('is an error when no source could be asked', async () => {
    const { host, ip } = await running()
    host.sources.agent = () => fail('DOMAIN_INTERFACE_ADDRESSES', 1, 'internal error: odd')
    host.sources.arp = brokenArp
    await expect(ip()).rejects.toMatchObject({
      kind: 'transient',
      code: 'AddressSourcesFailed',
      message: expect.stringMatching(/agent: internal error: odd; arp: internal error: wrong nlmsg len/) as string,
    })
    host.sources.arp = () => []
    expect(await ip()).toBeUndefined()
  })

  it('is an error when the connection breaks meanwhile, and notFound when the domain is gone', async () => {
    const { host, ip } = await running()
    host.sources.agent = () => {
      throw new LibvirtConnectionError('CLOSED', 'gone')
    }
    await expect(ip()).rejects.toMatchObject({ kind: 'transient', code: 'Unreachable' })
    host.sources.agent = () => fail('DOMAIN_INTERFACE_ADDRESSES', 42, 'Domain not found')
    await expect(ip()).rejects.toMatchObject({ kind: 'notFound' })
  })

  it('is asked for once at a time per domain', async () => {
    const { host, provider } = await running()
    let asking = 0
    let most = 0
    host.sources.agent = () => {
      most = Math.max(most, ++asking)
      queueMicrotask(() => asking--)
      return []
    }
    await Promise.all(Array.from({ length: 10 }, () => provider.get(providerID, context())))
    expect(most).toBe(1)
  })

  it('of a domain made anew is looked for at its new MAC', async () => {
    const { host, nic, ip, provider } = await running()
    host.sources.agent = () => nic('10.0.0.1')
    expect(await ip()).toBe('10.0.0.1')
    for (const domain of host.domains.values()) {
      host.domains.set(domain.uuid, {
        ...domain,
        xml: '<domain><devices><interface><mac address="52:54:00:99:99:99"/></interface></devices></domain>',
        metadata: domain.metadata?.replace(/<createdAt>.*<\/createdAt>/, '<createdAt>later</createdAt>'),
      })
    }
    expect(await ip()).toBeUndefined()
    await provider.close()
  })
})

describe('states', () => {
  it.each([
    [1, 'running'],
    [2, 'running'],
    [3, 'paused'],
    [4, 'running'],
    [5, 'stopped'],
    [6, 'stopped'],
    [7, 'paused'],
    [0, 'provisioning'],
  ])('%i is %s, for a get and in a round', async (state, word) => {
    const host = new FakeHost()
    const provider = operator(host)
    await provider.create(createRequest(), context())
    expect(await provider.observe('a', context())).toEqual(new Map())
    for (const domain of host.domains.values()) domain.state = state
    expect(await provider.get(providerID, context())).toMatchObject({ state: word })
    expect(await provider.observe('a', context())).toEqual(new Map([[providerID, word]]))
    host.domains.clear()
    expect(await provider.observe('a', context())).toEqual(new Map())
  })

  it('cannot be asked of what is no providerID or of a host that is not configured', async () => {
    const provider = operator(new FakeHost())
    for (const [id, code] of [
      ['nonsense', 'ProviderIDInvalid'],
      ['hosts/gone/domains/x', 'HostNotConfigured'],
    ] as const) {
      await expect(provider.get(id, context())).rejects.toMatchObject({
        kind: 'permanent',
        origin: 'environment',
        code,
      })
    }
    await expect(provider.observe('gone', context())).rejects.toMatchObject({ code: 'HostNotConfigured' })
  })
})

describe('list', () => {
  it('skips what has no mark, shows what has one that cannot be read, and is an error when a host fails', async () => {
    const host = new FakeHost()
    const provider = operator(host)
    await provider.create(createRequest(), context())
    host.addDomain({ uuid: '1', name: 'foreign' })
    host.addDomain({ uuid: '2', name: 'odd', metadata: '<x/>', state: 5 })
    const listed = await provider.list(context())
    expect(listed.map(({ instanceName, state, mark }) => [instanceName, state, mark?.uid])).toEqual([
      [name, 'running', 'uid-1'],
      ['odd', 'stopped', undefined],
    ])
    const hosts = ['a', 'b'].map((one) => ({ name: one, address: `${one}:22`, user: 'u', bridge: 'br0' }))
    const half = operator(host, {
      block: { hosts },
      dial: (target) => (target === 'a' ? Promise.resolve(host.session()) : Promise.reject(new Error('no route'))),
    })
    await expect(half.list(context())).rejects.toMatchObject({ kind: 'transient', target: 'b' })
  })
})

// The kvm2 provider against a real SSH server and real RPC framing: the life of an instance and its address.
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { eventually } from '../../support/eventually.ts'
import {
  cachedImage,
  context,
  createRequest,
  deleteRequest,
  failure,
  imageBytes,
  startWorld,
  userData,
  volumeNames,
  type World,
} from './stub-world.ts'

const budgetMs = 30_000
const { instanceName: name } = createRequest()
const providerID = `hosts/lab/domains/${name}`

let world: World
beforeEach(async () => {
  world = await startWorld()
})
afterEach(async () => {
  await world[Symbol.asyncDispose]()
})

const rpcs = () => world.lines.filter((line) => line['msg'] === 'libvirt call').map((line) => String(line['rpc']))

describe('the life of an instance', () => {
  it('create, address, observe, list, replace, delete', async () => {
    const provider = world.provider()
    expect(await provider.create(createRequest(), context())).toBe(providerID)
    expect(world.stub.domain(name)).toMatchObject({ state: 'running', autostart: true })
    expect(world.stub.volume('base-tiny.qcow2')?.bytes().equals(imageBytes)).toBe(true)
    expect(volumeNames(world)).toEqual([...cachedImage, `${name}-seed.iso`, `${name}.qcow2`].sort())
    const instance = await eventually('an address', budgetMs, async () => {
      const found = await provider.get(providerID, context())
      return found.ip === undefined ? undefined : found
    })
    expect(instance).toEqual({
      state: 'running',
      ip: world.stub.domain(name)?.address,
      uid: 'uid-a',
      specHash: 'v1:1',
    })
    expect(world.stub.domain(name)?.userData?.toString()).toBe(userData)
    expect([...(await provider.observe('lab', context()))]).toEqual([[providerID, 'running']])
    expect(await provider.list(context())).toMatchObject([
      { providerID, instanceName: name, target: 'lab', state: 'running', mark: { uid: 'uid-a', specHash: 'v1:1' } },
    ])

    const mac = world.stub.domain(name)?.macs
    expect(await provider.create(createRequest('a', { specHash: 'v1:2' }), context())).toBe(providerID)
    expect(await provider.get(providerID, context())).toMatchObject({ specHash: 'v1:2' })
    expect(world.stub.domain(name)?.macs).not.toEqual(mac)

    expect(await provider.delete(deleteRequest('a', { providerID }), context())).toEqual({ abandoned: [] })
    expect([world.stub.domains(), volumeNames(world)]).toEqual([[], cachedImage])
    expect(await failure(provider.get(providerID, context()))).toMatchObject({ kind: 'notFound' })
    expect(await provider.delete(deleteRequest('a', { providerID }), context())).toEqual({ abandoned: [] })
  })

  it('takes few calls', async () => {
    const provider = world.provider()
    await provider.create(createRequest('warm'), context())
    world.lines.length = 0
    await provider.create(createRequest(), context())
    expect(rpcs().length).toBeLessThanOrEqual(20)
    await eventually('an address', budgetMs, async () => (await provider.get(providerID, context())).ip)
    world.lines.length = 0
    await provider.get(providerID, context())
    expect(rpcs()).toEqual(['DomainLookupByUUID', 'DomainGetMetadata', 'DomainGetState', 'DomainInterfaceAddresses'])
    world.lines.length = 0
    await provider.observe('lab', context())
    expect(rpcs()).toEqual(['ConnectGetAllDomainStats'])
  })

  it('never logs the user-data or the key, at any level', async () => {
    const provider = world.provider()
    await provider.create(createRequest(), context())
    await provider.check(context())
    await provider.delete(deleteRequest(), context())
    const text = JSON.stringify(world.lines)
    expect(text.length).toBeGreaterThan(1000)
    expect(text).not.toContain('canary-user-data')
    expect(text).not.toContain(Buffer.from(userData).toString('base64').slice(0, 20))
    for (const line of world.stub.privateKey.split('\n').filter((part) => part.length > 20)) {
      if (!line.includes('PRIVATE KEY')) expect(text).not.toContain(line)
    }
  })

  it('counts every call with its result', async () => {
    const provider = world.provider()
    await provider.create(createRequest(), context())
    await failure(provider.get('hosts/lab/domains/none', context()))
    const { values } = await world.metrics.providerOperationDuration.get()
    const counts = values.filter((value) => value.metricName?.endsWith('_count') === true)
    expect(counts.map(({ labels, value }) => [labels.operation, labels.result, value])).toEqual([
      ['create', 'ok', 1],
      ['get', 'notFound', 1],
    ])
  })
})

describe('addresses', () => {
  it('come from ARP while the agent is silent, and are none while nobody knows', async () => {
    world.stub.knobs.bootDelayMs = 3_600_000
    const provider = world.provider()
    await provider.create(createRequest(), context())
    expect(await provider.get(providerID, context())).toEqual({ state: 'running', uid: 'uid-a', specHash: 'v1:1' })
    world.stub.knobs.arpBroken = true
    expect(await provider.get(providerID, context())).toEqual({ state: 'running', uid: 'uid-a', specHash: 'v1:1' })
  })

  it('of a frozen agent hold up nothing else', async () => {
    const provider = world.provider()
    const others = ['b', 'c', 'd', 'e', 'f']
    for (const other of ['a', ...others]) {
      await provider.create(createRequest(other), context())
      world.stub.knobs.frozenAgents.add(createRequest(other).instanceName)
    }
    const slow = others.map((other) =>
      provider.get(`hosts/lab/domains/${createRequest(other).instanceName}`, context()),
    )
    const began = performance.now()
    await provider.observe('lab', context())
    await provider.delete(deleteRequest(), context())
    // Each of the five agents holds its call for 5 s; what does not ask an agent waits for none of them.
    expect(performance.now() - began).toBeLessThan(4000)
    expect((await Promise.all(slow)).map(({ state }) => state)).toEqual(others.map(() => 'running'))
  })
})

// The kvm2 provider against a real SSH server and real RPC framing: the life of an instance, faults of the host, connections.
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { ProviderError } from '../../../src/provider/errors.ts'
import { defaultBudgets } from '../../../src/provider/libvirt/budgets.ts'
import { eventually } from '../../support/eventually.ts'
import { generateTestKey, knownHostsLine } from '../../support/ssh/keys.ts'
import {
  context,
  createRequest,
  deleteRequest,
  imageBytes,
  startWorld,
  userData,
  type Answer,
  type World,
} from './stub-world.ts'

const budgetMs = 30_000
let world: World
let folder: string

beforeEach(async () => {
  world = await startWorld()
  folder = await mkdtemp(join(tmpdir(), 'kvm2-test-'))
})
afterEach(async () => {
  await world[Symbol.asyncDispose]()
  await rm(folder, { recursive: true })
})

const { instanceName: name } = createRequest()
const providerID = `hosts/lab/domains/${name}`
const volumes = () =>
  world.stub
    .volumes()
    .map((volume) => volume.name)
    .sort()
const cached = ['base-tiny.qcow2', 'base-tiny.qcow2.info', 'base-tiny.qcow2.sha256']
const failure = async (promise: Promise<unknown>) =>
  (await promise.then(
    () => new Error('it did not fail'),
    (error: unknown) => error,
  )) as ProviderError
const rpcs = () => world.lines.filter((line) => line['msg'] === 'libvirt call').map((line) => String(line['rpc']))

describe('the life of an instance', () => {
  it('create, address, observe, list, replace, delete', async () => {
    const provider = world.provider()
    expect(await provider.create(createRequest(), context())).toBe(providerID)
    expect(world.stub.domain(name)).toMatchObject({ state: 'running', autostart: true })
    expect(world.stub.volume('base-tiny.qcow2')?.bytes().equals(imageBytes)).toBe(true)
    expect(volumes()).toEqual([...cached, `${name}-seed.iso`, `${name}.qcow2`].sort())
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
    expect([world.stub.domains(), volumes()]).toEqual([[], cached])
    expect(await failure(provider.get(providerID, context()))).toMatchObject({ kind: 'notFound' })
    expect(await provider.delete(deleteRequest('a', { providerID }), context())).toEqual({ abandoned: [] })
  })

  it('takes few calls', async () => {
    const provider = world.provider()
    await provider.create(createRequest('warm'), context())
    world.lines.length = 0
    await provider.create(createRequest(), context())
    expect(rpcs().length).toBeLessThanOrEqual(36)
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

describe('a host that will not have us', () => {
  const both = async (block: object) => {
    const provider = world.provider(block)
    const [health] = await provider.check(context())
    return { health, error: await failure(provider.create(createRequest(), context())) }
  }

  it('because of the key', async () => {
    const sshKeyFile = join(folder, 'other')
    await writeFile(sshKeyFile, generateTestKey().privateKey)
    const { health, error } = await both({ sshKeyFile })
    expect(health).toMatchObject({ ready: false, reason: 'Unauthorized' })
    expect(error).toMatchObject({ kind: 'permanent', origin: 'environment', code: 'Unauthorized', target: 'lab' })
    expect(error.message).toContain(sshKeyFile)
  })

  it('because the key is not there yet, or is none', async () => {
    const sshKeyFile = join(folder, 'absent')
    const absent = await both({ sshKeyFile })
    expect(absent.health).toMatchObject({ ready: false, reason: 'CredentialsUnavailable' })
    expect(absent.error).toMatchObject({ kind: 'transient', code: 'CredentialsUnavailable' })
    await writeFile(sshKeyFile, 'ssh-ed25519 AAAA public half')
    const wrong = await both({ sshKeyFile })
    expect(wrong.health).toMatchObject({ ready: false, reason: 'CredentialsUnavailable' })
    expect(wrong.error).toMatchObject({ kind: 'permanent', origin: 'environment', code: 'CredentialsUnavailable' })
    expect(wrong.error.message).toContain(sshKeyFile)
  })

  it('because of its own key', async () => {
    const knownHostsFile = join(folder, 'known_hosts')
    const [host = '', port = ''] = world.stub.address.split(':')
    await writeFile(knownHostsFile, `${knownHostsLine(host, Number(port), generateTestKey().publicKey)}\n`)
    const { health, error } = await both({ knownHostsFile })
    expect(health).toMatchObject({ ready: false, reason: 'Unauthorized' })
    expect(error).toMatchObject({ kind: 'permanent', origin: 'environment', code: 'Unauthorized' })
    expect(error.message).toContain(knownHostsFile)
  })

  it('takes new credentials without a restart', async () => {
    const sshKeyFile = join(folder, 'key')
    await writeFile(sshKeyFile, generateTestKey().privateKey)
    const provider = world.provider({ sshKeyFile })
    await failure(provider.create(createRequest(), context()))
    await writeFile(sshKeyFile, world.stub.privateKey)
    expect(await provider.create(createRequest(), context())).toBe(providerID)
  })

  it('because nobody listens, or libvirtd is down', async () => {
    world.stub.knobs.refuseForwarding = true
    const down = await both({})
    expect(down.health).toMatchObject({ ready: false, reason: 'Unreachable' })
    expect(down.error).toMatchObject({ kind: 'transient', code: 'Unreachable' })
    const host = { name: 'lab', address: '127.0.0.1:1', user: 'u', bridge: 'br0' }
    const away = await both({ hosts: [host] })
    expect(away.health).toMatchObject({ ready: false, reason: 'Unreachable', address: '127.0.0.1:1' })
    expect(away.error).toMatchObject({ kind: 'transient', code: 'Unreachable' })
  })

  it('because its pool is missing or stopped', async () => {
    const host = { name: 'lab', address: world.stub.address, user: world.stub.user, bridge: 'br0' }
    const missing = await both({ hosts: [{ ...host, pool: 'nope' }] })
    expect(missing.health).toMatchObject({ ready: false, reason: 'PoolNotFound', details: { libvirtVersion: '9.0.0' } })
    expect(missing.error).toMatchObject({ kind: 'permanent', origin: 'environment', code: 'PoolNotFound' })
    world.stub.pool().active = false
    const stopped = await both({})
    expect(stopped.health).toMatchObject({ ready: false, reason: 'PoolNotActive', details: { poolState: 'inactive' } })
    expect(stopped.error).toMatchObject({ kind: 'permanent', origin: 'environment', code: 'PoolNotActive' })
    expect(stopped.error.message).toContain('virsh pool-start default')
    expect([world.stub.domains(), world.stub.volumes()]).toEqual([[], []])
  })

  it('and stopped its pool after a create cannot finish a delete, and says how it could', async () => {
    const provider = world.provider()
    await provider.create(createRequest(), context())
    world.stub.pool().active = false
    expect(await failure(provider.delete(deleteRequest(), context()))).toMatchObject({ code: 'PoolNotActive' })
    world.stub.pool().active = true
    await provider.delete(deleteRequest(), context())
    expect([world.stub.domains(), volumes()]).toEqual([[], cached])
  })

  it('checks all hosts at once, each on a connection of its own that it ends', async () => {
    const host = { name: 'lab', address: world.stub.address, user: world.stub.user, bridge: 'br0' }
    const provider = world.provider({ hosts: [{ ...host, address: '127.0.0.1:1', name: 'away' }, host] })
    const health = await provider.check(context())
    expect(health.map(({ name: target, ready, reason }) => [target, ready, reason])).toEqual([
      ['away', false, 'Unreachable'],
      ['lab', true, 'Reachable'],
    ])
    expect(health[1]?.details).toEqual({
      user: world.stub.user,
      pool: 'default',
      libvirtVersion: '9.0.0',
      hostname: expect.stringMatching(/./) as string,
      poolState: 'running',
      poolCapacityGiB: '100.0',
      poolAvailableGiB: '100.0',
    })
    await eventually('the connection ended', budgetMs, () =>
      Promise.resolve(world.stub.connections() === 0 ? true : undefined),
    )
  })

  it('checks in no more time than it is given', async () => {
    const release = world.stub.knobs.hang('STORAGE_POOL_GET_INFO')
    const [health] = await world.provider().check(context({ signal: AbortSignal.timeout(1000) }))
    expect(health).toMatchObject({ ready: false, reason: 'Timeout', details: { libvirtVersion: '9.0.0' } })
    release()
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

describe('connections', () => {
  it('are shared by all operations, and dialled anew after they are lost', async () => {
    const provider = world.provider()
    await provider.create(createRequest('warm'), context())
    await Promise.all(['a', 'b', 'c'].map((one) => provider.create(createRequest(one), context())))
    await eventually('one connection', budgetMs, () =>
      Promise.resolve(world.stub.connections() === 1 ? true : undefined),
    )
    world.stub.cutConnections()
    await eventually('a working connection', budgetMs, async () => {
      await provider.list(context())
      return true
    })
  })

  it('lost in the middle of a create make it transient, and a repeat ends it', async () => {
    for (const procedure of ['STORAGE_VOL_CREATE_XML', 'DOMAIN_DEFINE_XML', 'DOMAIN_CREATE'] as const) {
      const provider = world.provider()
      const release = world.stub.knobs.hang(procedure, 'after')
      const reached = world.stub.nextCall(procedure)
      const create = failure(provider.create(createRequest(procedure.toLowerCase()), context()))
      await reached
      world.stub.cutConnections()
      expect(await create).toMatchObject({ kind: 'transient' })
      release()
      await provider.create(createRequest(procedure.toLowerCase()), context())
    }
    expect(world.stub.domains().map(({ state }) => state)).toEqual(['running', 'running', 'running'])
  })

  it('keep a change that was sent until it is answered: a delete waits for the create that was given up', async () => {
    const provider = world.provider()
    await provider.create(createRequest('warm'), context())
    const release = world.stub.knobs.hang('DOMAIN_CREATE', 'after')
    const reached = world.stub.nextCall('DOMAIN_CREATE')
    const giveUp = new AbortController()
    let ended = false
    const create = failure(provider.create(createRequest(), context({ signal: giveUp.signal }))).finally(
      () => (ended = true),
    )
    await reached
    giveUp.abort(new Error('deleted meanwhile'))
    const deleted = provider.delete(deleteRequest(), context())
    await provider.observe('lab', context())
    expect(ended).toBe(false)
    expect(world.stub.calls('DOMAIN_DESTROY')).toBe(0)
    release()
    expect(await create).toMatchObject({ kind: 'transient', code: 'Cancelled' })
    await deleted
    expect(world.stub.domains().map(({ name: left }) => left)).toEqual([createRequest('warm').instanceName])
  })

  it('ask for the permission to change when the turn of a call has come, not when it was put into the queue', async () => {
    const provider = world.provider()
    await provider.create(createRequest(), context())
    const { knobs } = world.stub
    const asked = world.stub.nextCall('DOMAIN_GET_METADATA')
    const releaseMetadata = knobs.hang('DOMAIN_GET_METADATA')
    let leads = true
    const deleted = failure(provider.delete(deleteRequest(), context({ mayMutate: () => leads })))
    await asked
    // Five more than the connection has places: whatever the delete does next has to wait behind them.
    const releaseStats = knobs.hang('CONNECT_GET_ALL_DOMAIN_STATS')
    const before = world.stub.calls('CONNECT_GET_ALL_DOMAIN_STATS')
    const rounds = Array.from({ length: 5 }, () => provider.observe('lab', context()))
    await world.stub.nextCall('CONNECT_GET_ALL_DOMAIN_STATS')
    releaseMetadata()
    await eventually('all places taken', budgetMs, () =>
      Promise.resolve(world.stub.calls('CONNECT_GET_ALL_DOMAIN_STATS') - before >= 4 ? true : undefined),
    )
    leads = false
    releaseStats()
    await Promise.all(rounds)
    expect(await deleted).toMatchObject({ kind: 'transient', code: 'NotLeading' })
    expect(world.stub.calls('DOMAIN_DESTROY')).toBe(0)
    expect(world.stub.domain(name)?.state).toBe('running')
  })

  it('end with the provider, and calls in flight with them', async () => {
    const provider = world.provider()
    await provider.create(createRequest(), context())
    const release = world.stub.knobs.hang('DOMAIN_GET_STATE')
    const reached = world.stub.nextCall('DOMAIN_GET_STATE')
    const get = failure(provider.get(providerID, context()))
    await reached
    await provider.close()
    expect(await get).toMatchObject({ kind: 'transient' })
    expect(await failure(provider.get(providerID, context()))).toMatchObject({
      kind: 'transient',
      code: 'ProviderClosed',
    })
    release()
  })

  it('that do not answer within the budget are given up', async () => {
    const provider = world.provider({}, { budgets: { ...defaultBudgets, rpcMs: 500 } })
    const release = world.stub.knobs.hang('CONNECT_GET_ALL_DOMAIN_STATS')
    expect(await failure(provider.list(context()))).toMatchObject({ kind: 'transient', code: 'Timeout' })
    release()
    expect(await provider.list(context())).toEqual([])
  })
})

describe('images', () => {
  it('come through redirects and without HEAD', async () => {
    world.images.answer = (request, response) => {
      if (request.method === 'HEAD') response.writeHead(501).end()
      else if (request.url === '/image.qcow2') response.writeHead(302, { location: '/moved' }).end()
      else response.writeHead(200, { 'content-length': imageBytes.byteLength }).end(imageBytes)
    }
    await world.provider().create(createRequest(), context())
    expect(world.stub.volume('base-tiny.qcow2')?.bytes().equals(imageBytes)).toBe(true)
  })

  it.each<[string, Answer, object]>([
    [
      'in chunks without a length',
      (_request, response) => {
        response.writeHead(200)
        response.write('x')
        response.end('y')
      },
      { kind: 'permanent', code: 'ImageLengthUnknown' },
    ],
    [
      'cut off half way',
      (request, response) => {
        response.writeHead(200, { 'content-length': imageBytes.byteLength })
        if (request.method === 'HEAD') response.end()
        else response.write(imageBytes.subarray(0, 300_000), () => response.destroy())
      },
      { kind: 'transient', code: 'ImageDownloadFailed' },
    ],
    [
      'that are not there',
      (_request, response) => response.writeHead(404).end('no'),
      { kind: 'permanent', code: 'ImageNotAvailable' },
    ],
  ])('%s leave nothing behind', async (_what, answer, refusal) => {
    world.images.answer = answer
    const provider = world.provider()
    expect(await failure(provider.create(createRequest(), context()))).toMatchObject(refusal)
    expect([world.stub.domains(), volumes()]).toEqual([[], []])
  })

  it('that do not fit are a matter of quota, whenever the pool fills up', async () => {
    const { capacity } = world.stub.pool()
    world.stub.pool().capacity = 2 ** 30
    const provider = world.provider()
    expect(await failure(provider.create(createRequest(), context()))).toMatchObject({
      kind: 'quotaExceeded',
      code: 'PoolSpace',
    })
    world.stub.pool().capacity = capacity
    world.images.answer = (request, response) => {
      // Something else takes the room after it was looked at.
      if (request.method === 'GET') world.stub.pool().capacity = 200_000
      response.writeHead(200, { 'content-length': imageBytes.byteLength })
      response.end(request.method === 'HEAD' ? undefined : imageBytes)
    }
    expect(await failure(provider.create(createRequest(), context()))).toMatchObject({
      kind: 'quotaExceeded',
      code: 'PoolFull',
    })
    expect(volumes()).toEqual([])
  })

  it('under way are ended by nobody but the last who waits, and what is left is cleared by the next', async () => {
    world.stub.knobs.limitUploads(100_000)
    const provider = world.provider()
    const first = new AbortController()
    const second = new AbortController()
    const said: string[] = []
    const one = failure(provider.create(createRequest('a'), context({ signal: first.signal })))
    await world.stub.nextCall('STORAGE_VOL_UPLOAD')
    const two = failure(
      provider.create(createRequest('b'), context({ signal: second.signal, progress: (text) => void said.push(text) })),
    )
    await eventually('the second waits for the same download', budgetMs, () =>
      Promise.resolve(said.length > 0 ? true : undefined),
    )
    first.abort(new Error('gone'))
    expect(await one).toMatchObject({ kind: 'transient', code: 'Cancelled' })
    expect(await provider.observe('lab', context())).toEqual(new Map())
    expect(world.stub.calls('STORAGE_VOL_UPLOAD')).toBe(1)
    second.abort(new Error('gone too'))
    expect(await two).toMatchObject({ kind: 'transient', code: 'Cancelled' })
    world.stub.knobs.limitUploads(Number.POSITIVE_INFINITY)
    await provider.create(createRequest('c'), context())
    expect(world.stub.volume('base-tiny.qcow2')?.bytes().equals(imageBytes)).toBe(true)
  })
})

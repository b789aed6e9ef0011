// The kvm2 provider while connections break, calls hang and downloads fail, over real SSH and HTTP.
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { defaultBudgets } from '../../../src/provider/libvirt/budgets.ts'
import { tcpConnect } from '../../../src/wire/ssh/tcp.ts'
import { eventually } from '../../support/eventually.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { startTcpRelay } from '../../support/tcp-relay.ts'
import {
  context,
  createRequest,
  deleteRequest,
  failure,
  imageBytes,
  startWorld,
  volumeNames,
  type Answer,
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

  it('to a host that vanished without a word are given up after 30 s, idle or in use, and the next call dials anew', async () => {
    const [host = '', port = ''] = world.stub.address.split(':')
    await using relay = Object.assign(await startTcpRelay({ host, port: Number(port) }), {
      [Symbol.asyncDispose]: () => relay.close(),
    })
    const clock = new ManualClock()
    const provider = world.provider(
      {},
      {
        clock,
        // Longer than the silence, which is to be what ends the call.
        budgets: { ...defaultBudgets, rpcMs: 600_000 },
        connect: (_host, _port, signal) => tcpConnect('127.0.0.1', relay.port, signal),
      },
    )
    await provider.list(context())
    const connections = relay.accepted
    relay.swallow()
    await clock.advance(30_000)
    await eventually('the idle connections are gone', budgetMs, () =>
      Promise.resolve(relay.open === 0 ? true : undefined),
    )
    expect(world.lines).toContainEqual(
      expect.objectContaining({
        msg: 'libvirt connection dropped',
        host: 'lab',
        reason: expect.stringContaining('went silent for 30 s') as string,
      }),
    )
    await provider.list(context())
    expect(relay.accepted).toBeGreaterThan(connections)

    relay.swallow()
    let ended = false
    const observed = failure(provider.observe('lab', context())).finally(() => (ended = true))
    await clock.advance(29_999)
    expect(ended).toBe(false)
    await clock.advance(1)
    const error = await observed
    expect(error).toMatchObject({ kind: 'transient', target: 'lab' })
    expect(error.message).toContain('went silent for 30 s')
    await provider.observe('lab', context())
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
  it('go up on a connection of their own, which ends with them', async () => {
    const provider = world.provider()
    await provider.list(context())
    const before = world.stub.connections()
    const goOn = Promise.withResolvers<undefined>()
    world.images.answer = (request, response) => {
      response.writeHead(200, { 'content-length': imageBytes.byteLength })
      if (request.method === 'HEAD') {
        response.end()
        return
      }
      response.write(imageBytes.subarray(0, 1000))
      void goOn.promise.then(() => response.end(imageBytes.subarray(1000)))
    }
    const create = provider.create(createRequest(), context())
    try {
      await eventually('the upload', budgetMs, () => Promise.resolve(world.stub.volume('base-tiny.qcow2')))
      expect(world.stub.connections()).toBe(before + 1)
    } finally {
      goOn.resolve(undefined)
    }
    await create
    await eventually('its end', budgetMs, () => Promise.resolve(world.stub.connections() === before ? true : undefined))
  })

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
    expect([world.stub.domains(), volumeNames(world)]).toEqual([[], []])
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
      response.writeHead(200, { 'content-length': imageBytes.byteLength })
      if (request.method === 'HEAD') {
        response.end()
        return
      }
      response.write(imageBytes.subarray(0, 1000))
      // Something else takes the room after it was looked at.
      void eventually('the upload', budgetMs, () =>
        Promise.resolve(world.stub.volume('base-tiny.qcow2') === undefined ? undefined : true),
      ).then(() => {
        world.stub.pool().capacity = 200_000
        response.end(imageBytes.subarray(1000))
      })
    }
    expect(await failure(provider.create(createRequest(), context()))).toMatchObject({
      kind: 'quotaExceeded',
      code: 'PoolFull',
    })
    expect(volumeNames(world)).toEqual([])
  })

  it('under way are ended by nobody but the last who waits, and what is left is cleared by the next', async () => {
    world.stub.knobs.limitUploads(100_000)
    const provider = world.provider()
    const first = new AbortController()
    const second = new AbortController()
    const said: string[] = []
    const one = failure(provider.create(createRequest('a'), context({ signal: first.signal })))
    await eventually('the upload', budgetMs, () => Promise.resolve(world.stub.volume('base-tiny.qcow2')))
    const two = failure(
      provider.create(createRequest('b'), context({ signal: second.signal, progress: (text) => void said.push(text) })),
    )
    await eventually('the second waits for the same download', budgetMs, () =>
      Promise.resolve(said.length > 0 ? true : undefined),
    )
    const uploads = world.stub.calls('STORAGE_VOL_UPLOAD')
    first.abort(new Error('gone'))
    expect(await one).toMatchObject({ kind: 'transient', code: 'Cancelled' })
    expect(await provider.observe('lab', context())).toEqual(new Map())
    expect(world.stub.calls('STORAGE_VOL_UPLOAD')).toBe(uploads)
    second.abort(new Error('gone too'))
    expect(await two).toMatchObject({ kind: 'transient', code: 'Cancelled' })
    world.stub.knobs.limitUploads(Number.POSITIVE_INFINITY)
    await provider.create(createRequest('c'), context())
    expect(world.stub.volume('base-tiny.qcow2')?.bytes().equals(imageBytes)).toBe(true)
  })
})

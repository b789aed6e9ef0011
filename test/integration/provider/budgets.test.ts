// Every budget of a libvirt provider ends its call, and only such a call ends a connection; who has a connection or a lock of its own.
import { once } from 'node:events'
import { createServer, type AddressInfo } from 'node:net'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { defaultBudgets, type Budgets } from '../../../src/provider/libvirt/budgets.ts'
import type { ProcedureName } from '../../../src/wire/libvirt/protocol.gen.ts'
import { eventually } from '../../support/eventually.ts'
import { context, createRequest, deleteRequest, failure, imageBytes, startWorld, type World } from './stub-world.ts'

const patienceMs = 30_000
const { instanceName: name } = createRequest()
const id = `hosts/lab/domains/${name}`

let world: World
beforeEach(async () => {
  world = await startWorld()
})
afterEach(async () => {
  await world[Symbol.asyncDispose]()
})

const providerWith = (budgets: Partial<Budgets>, block: object = {}) =>
  world.provider(block, { budgets: { ...defaultBudgets, ...budgets } })
const count = (msg: string) => world.lines.filter((line) => line['msg'] === msg).length
const dials = () => count('libvirt host connected')
const drops = () => count('libvirt connection dropped')

it('are those of the documents where nothing else is said', () => {
  expect(defaultBudgets).toMatchObject({
    dialMs: 10_000,
    rpcMs: 30_000,
    startMs: 90_000,
    smallTransferMs: 60_000,
    imageMs: 1_200_000,
    imageReserveMs: 60_000,
    runningWaitMs: 15_000,
    runningPollMs: 500,
    headMs: 30_000,
    closeMs: 5_000,
  })
})

describe('a call past its budget', () => {
  it.each<[string, Partial<Budgets>, ProcedureName]>([
    ['an ordinary one', { rpcMs: 400 }, 'STORAGE_VOL_CREATE_XML'],
    ['a start', { startMs: 400 }, 'DOMAIN_CREATE'],
  ])('ends with its connection: %s', async (_what, budgets, procedure) => {
    await world.provider().create(createRequest('warm'), context())
    const provider = providerWith(budgets)
    await provider.observe('lab', context())
    const [dialled, dropped] = [dials(), drops()]
    const release = world.stub.knobs.hang(procedure)
    const error = await failure(provider.create(createRequest(), context()))
    expect(error).toMatchObject({ kind: 'transient', code: 'Timeout', target: 'lab' })
    release()
    await eventually('the connection is gone', patienceMs, () => Promise.resolve(drops() > dropped ? true : undefined))
    await provider.create(createRequest(), context())
    expect(dials()).toBeGreaterThan(dialled)
    expect(world.stub.domain(name)?.state).toBe('running')
  })

  it.each<ProcedureName>(['STORAGE_VOL_UPLOAD', 'STORAGE_VOL_DOWNLOAD'])(
    'ends without its connection where it is a transfer that the host lets us give up: %s',
    async (procedure) => {
      await world.provider().create(createRequest('warm'), context())
      const provider = providerWith({ smallTransferMs: 400 })
      const release = world.stub.knobs.hang(procedure)
      expect(await failure(provider.create(createRequest(), context()))).toMatchObject({
        ...{ kind: 'transient', code: 'Timeout', target: 'lab' },
      })
      release()
      await provider.create(createRequest(), context())
      expect(world.stub.domain(name)?.state).toBe('running')
    },
  )

  it('takes the others on its connection with it, once, and leaves those of a check alone', async () => {
    const provider = providerWith({ startMs: 1500 })
    await provider.create(createRequest('warm'), context())
    const { knobs } = world.stub
    const releaseStart = knobs.hang('DOMAIN_CREATE')
    const releaseStats = knobs.hang('CONNECT_GET_ALL_DOMAIN_STATS')
    const releasePool = knobs.hang('CONNECT_GET_HOSTNAME')
    const ends = [failure(provider.create(createRequest(), context())), failure(provider.observe('lab', context()))]
    const checked = provider.check(context())
    const errors = await Promise.all(ends)
    expect(errors.map(({ kind }) => kind)).toEqual(['transient', 'transient'])
    for (const release of [releaseStart, releaseStats, releasePool]) release()
    expect((await checked)[0]).toMatchObject({ ready: true })
    await provider.observe('lab', context())
  })

  it('of a dial to a host that says nothing is a host that cannot be reached', async () => {
    const server = createServer(() => undefined).listen(0, '127.0.0.1')
    await once(server, 'listening')
    const address = `127.0.0.1:${(server.address() as AddressInfo).port}`
    const host = { name: 'lab', address, user: 'u', bridge: 'br0' }
    const provider = providerWith({ dialMs: 300 }, { hosts: [host] })
    expect(await failure(provider.list(context()))).toMatchObject({ kind: 'transient', code: 'Unreachable' })
    expect((await provider.check(context()))[0]).toMatchObject({ ready: false, reason: 'Unreachable' })
    const signal = AbortSignal.timeout(300)
    const [health] = await world.provider({ hosts: [host] }).check(context({ signal }))
    expect(health).toMatchObject({ ready: false, reason: 'Timeout', details: { user: 'u', pool: 'default' } })
    server.close()
  })

  it('of the goodbye to a host that is gone ends it without one', async () => {
    const provider = providerWith({ closeMs: 300 })
    await provider.observe('lab', context())
    world.stub.freezeConnections()
    await provider.close()
    expect(await failure(provider.observe('lab', context()))).toMatchObject({ code: 'ProviderClosed' })
  })
})

describe('a connection', () => {
  it('outlives a call that was cancelled', async () => {
    const provider = world.provider()
    await provider.create(createRequest(), context())
    await provider.get(id, context())
    const dialled = dials()
    const release = world.stub.knobs.hang('DOMAIN_GET_STATE')
    const reached = world.stub.nextCall('DOMAIN_GET_STATE')
    const cancel = new AbortController()
    const got = failure(provider.get(id, context({ signal: cancel.signal })))
    await reached
    cancel.abort(new Error('not wanted any more'))
    expect(await got).toMatchObject({ kind: 'transient', code: 'Cancelled' })
    await provider.observe('lab', context())
    release()
    expect(await provider.get(id, context())).toMatchObject({ state: 'running' })
    expect([dials(), drops()]).toEqual([dialled, 0])
  })

  it('of its own carries an image: the shared one outlives a transfer past its budget', async () => {
    world.stub.knobs.limitUploads(imageBytes.byteLength / 2)
    const provider = providerWith({ imageMs: 4000, imageReserveMs: 2000 })
    await provider.observe('lab', context())
    const dialled = dials()
    const error = failure(provider.create(createRequest(), context()))
    await eventually('half of the image', patienceMs, () =>
      Promise.resolve((world.stub.volume('base-tiny.qcow2')?.allocation ?? 0) > 0 ? true : undefined),
    )
    expect(dials()).toBe(dialled + 1)
    expect((await error).kind).toBe('transient')
    await provider.observe('lab', context())
    expect(dials()).toBe(dialled + 1)
    world.stub.knobs.limitUploads(Number.POSITIVE_INFINITY)
    await world.provider().create(createRequest(), context())
    expect(world.stub.domain(name)?.state).toBe('running')
  })

  it('of its own carries a check: one that ran out of time ends no call of others', async () => {
    const provider = world.provider()
    await provider.observe('lab', context())
    const { knobs } = world.stub
    const releaseStats = knobs.hang('CONNECT_GET_ALL_DOMAIN_STATS')
    const releasePool = knobs.hang('STORAGE_POOL_GET_INFO')
    const observed = provider.observe('lab', context())
    const [health] = await provider.check(context({ signal: AbortSignal.timeout(500) }))
    expect(health).toMatchObject({ ready: false, reason: 'Timeout' })
    releaseStats()
    releasePool()
    expect(await observed).toEqual(new Map())
    expect(drops()).toBe(0)
  })
})

describe('calls for one name', () => {
  it('delete once, however many ask for it', async () => {
    const provider = world.provider()
    await provider.create(createRequest(), context())
    await Promise.all([1, 2, 3].map(() => provider.delete(deleteRequest(), context())))
    expect([world.stub.calls('DOMAIN_DESTROY'), world.stub.calls('DOMAIN_UNDEFINE_FLAGS')]).toEqual([1, 1])
    expect(world.stub.domains()).toEqual([])
  })

  it('wait for a create that is under way, unless they only look; another name waits for nobody', async () => {
    const provider = world.provider()
    await provider.create(createRequest('other'), context())
    const release = world.stub.knobs.hang('DOMAIN_SET_AUTOSTART')
    const reached = world.stub.nextCall('DOMAIN_SET_AUTOSTART')
    const created = provider.create(createRequest(), context())
    await reached
    const deleted = provider.delete(deleteRequest(), context())
    expect(await provider.get(id, context())).toMatchObject({ uid: 'uid-a' })
    expect(await provider.list(context())).toHaveLength(2)
    await provider.delete(deleteRequest('other'), context())
    expect(world.stub.calls('DOMAIN_DESTROY')).toBe(1)
    release()
    expect(await created).toBe(id)
    await deleted
    expect(world.stub.domains()).toEqual([])
    expect(world.stub.calls('DOMAIN_DESTROY')).toBe(2)
  })
})

// How many calls on the wire things take, counted where they arrive.
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { silentLogger } from '../../../src/observe/logger.ts'
import { InstanceObserver } from '../../../src/reconcile/observer.ts'
import { procedures, type ProcedureName } from '../../../src/wire/libvirt/protocol.gen.ts'
import { eventually } from '../../support/eventually.ts'
import { qcow2Header } from '../../support/libvirt-stub/model/formats.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { context, createRequest, startWorld, type World } from './stub-world.ts'

const budgetMs = 30_000
const most = 20
const { instanceName: name } = createRequest()
const image = Buffer.concat([qcow2Header({ capacity: 2 ** 30 }), Buffer.alloc(500_000)])
/** What a connection says before its first call of ours, and in between. */
const ofConnections = /^(AUTH_|CONNECT_(OPEN|CLOSE|SUPPORTS_FEATURE|GET_URI|REGISTER|DOMAIN_EVENT)|KEEPALIVE)/

let world: World
beforeEach(async () => {
  world = await startWorld()
  world.images.answer = (request, response) => {
    response.writeHead(200, { 'content-length': image.byteLength })
    response.end(request.method === 'HEAD' ? undefined : image)
  }
})
afterEach(async () => {
  await world[Symbol.asyncDispose]()
})

function counts(): ReadonlyMap<ProcedureName, number> {
  const names = Object.keys(procedures) as ProcedureName[]
  return new Map(names.map((procedure) => [procedure, world.stub.calls(procedure)]))
}

/** Calls that `work` made, by procedure. */
async function callsOf(work: () => Promise<unknown>): Promise<ReadonlyMap<ProcedureName, number>> {
  const before = counts()
  await work()
  return new Map(
    [...counts()]
      .map(([procedure, count]): [ProcedureName, number] => [procedure, count - (before.get(procedure) ?? 0)])
      .filter(([procedure, count]) => count > 0 && !ofConnections.test(procedure)),
  )
}

function total(calls: ReadonlyMap<ProcedureName, number>): number {
  return [...calls.values()].reduce((sum, count) => sum + count, 0)
}

/** For people who read the output of the suite. */
function print(what: string, calls: ReadonlyMap<ProcedureName, number>): void {
  const list = [...calls].map(([procedure, count]) => (count === 1 ? procedure : `${procedure} x${count}`)).join(' ')
  process.stdout.write(`${what}: ${total(calls)} calls: ${list}\n`)
}

describe('a create with a cached image', () => {
  it('takes at most 20 calls in a process that knows the image', async () => {
    const provider = world.provider()
    await provider.create(createRequest('warm'), context())
    const calls = await callsOf(() => provider.create(createRequest(), context()))
    print('create, image known', calls)
    expect(total(calls)).toBeGreaterThan(10)
    expect(total(calls)).toBeLessThanOrEqual(most)
  })

  it('takes at most 20 calls in a process that has just begun', async () => {
    await world.provider().create(createRequest('warm'), context())
    const provider = world.provider()
    const calls = await callsOf(() => provider.create(createRequest(), context()))
    print('create, new process', calls)
    expect(total(calls)).toBeLessThanOrEqual(most)
    expect(world.stub.domain(name)?.state).toBe('running')
  })

  it('takes at most 20 calls when one of several at once', async () => {
    const provider = world.provider()
    await provider.create(createRequest('warm'), context())
    const calls = await callsOf(() =>
      Promise.all(Array.from({ length: 8 }, (_, i) => provider.create(createRequest(`n${i}`), context()))),
    )
    print('8 creates at once', calls)
    expect(total(calls)).toBeLessThanOrEqual(8 * most)
    expect(calls.get('DOMAIN_CREATE')).toBe(8)
  })

  it('finds out when the image that it knew is gone, and when another one stands there', async () => {
    const provider = world.provider()
    await provider.create(createRequest('warm'), context())
    const pool = world.stub.pool()
    pool.volumes.delete('base-tiny.qcow2.sha256')
    pool.volumes.delete('base-tiny.qcow2')
    await provider.create(createRequest('b'), context())
    expect(world.images.requests.filter((request) => request.startsWith('GET')).length).toBe(2)
    expect(world.stub.volume('base-tiny.qcow2')?.bytes().equals(image)).toBe(true)
  })
})

describe('steady state', () => {
  it('takes one listing per host and round of 30 s, however many instances are observed', async () => {
    const provider = world.provider()
    const clock = new ManualClock()
    let changes = 0
    const observer = new InstanceObserver({
      ...{ clock, random: () => 0.5, log: silentLogger },
      onChange: () => changes++,
    })
    const names = ['a', 'b', 'c', 'd', 'e']
    for (const each of names) {
      const request = createRequest(each)
      const id = await provider.create(request, context())
      observer.watch({ key: `default/${each}`, uid: request.owner.uid, provider, providerID: id, target: 'lab' })
    }
    const hasAddress = (each: string) => {
      const observation = observer.observation(createRequest(each).owner.uid)
      return observation.kind === 'seen' && observation.instance.ip !== undefined
    }
    await eventually('addresses', budgetMs, async () => {
      await clock.advance(250)
      return names.every(hasAddress) || undefined
    })
    const listings = () => world.stub.calls('CONNECT_GET_ALL_DOMAIN_STATS')
    const seen = changes
    const calls = await callsOf(async () => {
      for (let round = 1; round <= 3; round++) {
        const before = listings()
        await clock.advance(30_000)
        await eventually(`round ${round}`, budgetMs, () => Promise.resolve(listings() > before || undefined))
        // Told by a call behind it: the round's answer has been dealt with.
        await provider.observe('lab', context())
        await clock.advance(0)
      }
    })
    observer.stop()
    print('3 rounds of 5 instances, and 3 of this test', calls)
    expect([...calls]).toEqual([['CONNECT_GET_ALL_DOMAIN_STATS', 6]])
    expect(changes).toBe(seen)
  })
})

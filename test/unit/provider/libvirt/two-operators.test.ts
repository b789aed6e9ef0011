// Two operators of two installations on one host, which know of each other only by what stands in its pool: images between them.
import { setImmediate as turn } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { systemClock } from '../../../../src/lib/clock.ts'
import { instanceName } from '../../../../src/provider/names.ts'
import { eventually } from '../../../support/eventually.ts'
import { FakeHost } from './fake-host.ts'
import { context, createRequest, imageBytes, imageDigest, imageServer, operator, owner } from './world.ts'

const base = 'base-debian.qcow2'
const budgetMs = 30_000
const late = 16 * 60_000

function requestOf(who: string, image = 'debian') {
  const mine = { ...owner, uid: `uid-${who}`, name: who }
  return createRequest({ owner: mine, instanceName: instanceName(mine), placement: { machineType: 'small', image } })
}

/** A server that sends the first two thirds of the image, and the rest when told to. */
function haltingServer() {
  const plain = imageServer()
  const halted = Promise.withResolvers<undefined>()
  const goOn = Promise.withResolvers<undefined>()
  async function* body(): AsyncIterable<Uint8Array> {
    yield await Promise.resolve(imageBytes.subarray(0, 2000))
    halted.resolve(undefined)
    await goOn.promise
    yield imageBytes.subarray(2000)
  }
  const ask: typeof plain.ask = async (method, url, signal) => {
    const answer = await plain.ask(method, url, signal)
    return method === 'GET' ? { ...answer, body: body() } : answer
  }
  return { ...plain, ask, halted: halted.promise, goOn: () => goOn.resolve(undefined) }
}

const until = (what: string, look: () => unknown) =>
  eventually(what, budgetMs, () => Promise.resolve(look() === true || undefined))

/** A host on which `one` downloads and has come two thirds of the way, and `two` waits for it. */
async function halfWay() {
  const host = new FakeHost()
  const server = haltingServer()
  const one = operator(host, { installation: 'one', imageServer: server })
  const created = one.create(requestOf('a'), context()).catch((error: unknown) => error)
  await server.halted
  const otherServer = imageServer()
  const two = operator(host, { installation: 'two', imageServer: otherServer, maxConcurrentCreates: 1 })
  const waiter = context()
  const waiting = two.create(requestOf('b'), waiter)
  await until('the other one waits', () => waiter.said.length > 0)
  return { host, server, created, otherServer, two, waiter, waiting }
}

describe('another operator that wants an image which is being downloaded', () => {
  it('waits, says so, holds no place, and finds it', async () => {
    const { host, server, created, otherServer, two, waiter, waiting } = await halfWay()
    expect(new Set(waiter.said)).toEqual(new Set(["waiting for another operator's download of image debian on host a"]))
    await two.create(requestOf('c', 'https://other.example/i.qcow2'), context())
    expect(otherServer.asked).toEqual(['HEAD', 'GET'])
    server.goOn()
    await Promise.all([created, waiting])
    expect(otherServer.asked).toEqual(['HEAD', 'GET'])
    expect(server.asked).toEqual(['HEAD', 'GET'])
    expect([...host.domains.values()].map(({ state }) => state)).toEqual([1, 1, 1])
    expect([...host.volumes.keys()].filter((volume) => volume.includes('.claim.'))).toEqual([])
  })

  it('takes over when the other one is gone, and that one, should it come back, spoils nothing', async () => {
    const { host, server, created, otherServer, waiting } = await halfWay()
    const claim = host.volumes.get(`${base}.claim.1`)
    if (claim === undefined) throw new Error('there is no claim')
    claim.modifiedMs -= late
    await waiting
    expect(otherServer.asked).toEqual(['HEAD', 'GET'])
    const good = host.volumes.get(base)
    expect(good?.content.equals(imageBytes)).toBe(true)
    server.goOn()
    expect(await created).toMatchObject({ kind: 'transient' })
    expect(host.volumes.get(base)).toBe(good)
    expect(host.volumes.get(`${base}.sha256`)?.content.toString()).toBe(imageDigest)
  })

  it('has one that lost its claim neither write the marker nor take the half away that is not its own', async () => {
    const host = new FakeHost()
    const server = haltingServer()
    const created = operator(host, { installation: 'one', imageServer: server })
      .create(requestOf('a'), context())
      .catch((error: unknown) => error)
    await server.halted
    // As somebody who took over has it, with a download of his own under way.
    const signature = JSON.stringify({ installation: 'two', token: 'x', purpose: 'download' })
    host.addVolume(`${base}.claim.2`, Buffer.from(signature))
    server.goOn()
    expect(await created).toMatchObject({ kind: 'transient', code: 'ClaimLost' })
    expect(host.volumes.has(`${base}.sha256`)).toBe(false)
    expect(host.volumes.has(base)).toBe(true)
    expect(host.volumes.has(`${base}.claim.2`)).toBe(true)
  })

  it('has one that lost it at the very end write no marker either', async () => {
    const host = new FakeHost()
    const session = host.session()
    const api = {
      ...session.api,
      writeVolume: async (...call: Parameters<typeof session.api.writeVolume>) => {
        await session.api.writeVolume(...call)
        if (call[0].name.endsWith('.info')) host.addVolume(`${base}.claim.2`, Buffer.alloc(0))
      },
    }
    const one = operator(host, { installation: 'one', dial: () => Promise.resolve({ ...session, api }) })
    await expect(one.create(requestOf('a'), context())).rejects.toMatchObject({ code: 'ClaimLost' })
    expect(host.volumes.has(`${base}.sha256`)).toBe(false)
  })

  it('holds no place while it waits for an image that it knows, whether somebody is at it or it is gone', async () => {
    const host = new FakeHost()
    const server = haltingServer()
    const warm = operator(host, { installation: 'two', maxConcurrentCreates: 1, imageServer: imageServer() })
    await warm.create(requestOf('warm'), context())
    const signature = { installation: 'one', token: 'x', purpose: 'create' }
    host.addVolume(`${base}.claim.1`, Buffer.from(JSON.stringify(signature)))
    const waiter = context()
    const waiting = warm.create(requestOf('a'), waiter)
    await until('it waits', () => waiter.said.length > 0)
    await warm.create(requestOf('b', 'https://other.example/i.qcow2'), context())
    host.volumes.delete(`${base}.claim.1`)
    await waiting

    const cold = operator(host, { installation: 'two', maxConcurrentCreates: 1, imageServer: server })
    await cold.create(requestOf('c'), context())
    host.volumes.delete(`${base}.sha256`)
    const fetching = cold.create(requestOf('d'), context())
    await server.halted
    await cold.create(requestOf('e', 'https://other.example/i.qcow2'), context())
    server.goOn()
    await fetching
    expect(server.asked).toEqual(['HEAD', 'GET'])
  })

  it('makes no overlay after it stood still for so long that others may be at the base', async () => {
    const host = new FakeHost()
    await operator(host, { installation: 'one' }).create(requestOf('warm'), context())
    let stoodStillMs = 0
    const clock = { ...systemClock, monotonic: () => systemClock.monotonic() + stoodStillMs }
    const session = host.session()
    const api = {
      ...session.api,
      writeVolume: async (...call: Parameters<typeof session.api.writeVolume>) => {
        await session.api.writeVolume(...call)
        if (call[0].name.endsWith('-seed.iso')) stoodStillMs = late
      },
    }
    const one = operator(host, { installation: 'one', clock, dial: () => Promise.resolve({ ...session, api }) })
    await expect(one.create(requestOf('a'), context())).rejects.toMatchObject({ code: 'ClaimLost' })
    expect(host.volumes.has(`${requestOf('a').instanceName}.qcow2`)).toBe(false)
    await operator(host, { installation: 'one' }).create(requestOf('a'), context())
  })

  it('is not let in while a create makes its overlay, and takes its turn afterwards', async () => {
    const host = new FakeHost()
    await operator(host, { installation: 'one' }).create(requestOf('warm'), context())
    const reached = Promise.withResolvers<undefined>()
    const goOn = Promise.withResolvers<undefined>()
    const session = host.session()
    const api = {
      ...session.api,
      createVolume: async (...call: Parameters<typeof session.api.createVolume>) => {
        if (call[1].includes('<backingStore>')) {
          reached.resolve(undefined)
          await goOn.promise
        }
        return await session.api.createVolume(...call)
      },
    }
    const one = operator(host, { installation: 'one', dial: () => Promise.resolve({ ...session, api }) })
    const created = one.create(requestOf('a'), context())
    await reached.promise
    // Its config has another image under the same name, for which the base would have to go.
    const two = operator(host, {
      installation: 'two',
      block: { images: { debian: { url: 'https://images.example/new.qcow2' } } },
      imageServer: imageServer({ body: Buffer.alloc(imageBytes.byteLength, 'n') }),
    })
    const waiter = context()
    const waiting = two.create(requestOf('b'), waiter)
    await until('the other one waits', () => waiter.said.length > 0)
    expect(waiter.said[0]).toBe("waiting for another operator's create from image debian on host a")
    for (let i = 0; i < 20; i++) await turn()
    expect(host.volumes.get(base)?.content.equals(imageBytes)).toBe(true)
    goOn.resolve(undefined)
    await Promise.all([created, waiting])
    // Both have what they wanted: the first one's base was not touched, because overlays stand on it.
    const backings = ['a', 'b'].map((who) => host.volumes.get(`${requestOf(who).instanceName}.qcow2`)?.backing)
    expect(backings[0]).toBe(`/pool/${base}`)
    expect(backings[1]).toMatch(/^\/pool\/base-debian-[0-9a-f]{12}\.qcow2$/)
    expect(host.volumes.get(base)?.content.equals(imageBytes)).toBe(true)
  })

  it('makes 20 instances beside the other one, from one download', async () => {
    const host = new FakeHost()
    const server = imageServer()
    const operators = ['one', 'two'].map((installation) => operator(host, { installation, imageServer: server }))
    await Promise.all(
      operators.flatMap((it, which) =>
        Array.from({ length: 10 }, (_, index) => it.create(requestOf(`${which}-${index}`), context())),
      ),
    )
    expect(server.asked.filter((method) => method === 'GET').length).toBe(1)
    expect([...host.domains.values()].map(({ state }) => state)).toEqual(Array.from({ length: 20 }, () => 1))
    expect([...host.volumes.keys()].filter((volume) => /\.claim\.|\.time\./.test(volume))).toEqual([])
  })
})

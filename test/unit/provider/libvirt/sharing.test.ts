// What operations share and what they must not wait for: fetches, connections, places for creates.
import { setImmediate as turn } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { HostConnections, type HostSession } from '../../../../src/provider/libvirt/hosts.ts'
import type { ImageServer } from '../../../../src/provider/libvirt/image-http.ts'
import { SharedWork, type Company } from '../../../../src/provider/libvirt/shared-work.ts'
import { instanceName } from '../../../../src/provider/names.ts'
import { FakeHost } from './fake-host.ts'
import { context, createRequest, deleteRequest, imageServer, operator, owner } from './world.ts'

const participant = (signal = new AbortController().signal, mayMutate = () => true) => {
  const said: string[] = []
  return { said, signal, mayMutate, progress: (message: string) => void said.push(message) }
}

/** Work that waits to be told. */
function slowWork() {
  const gate = Promise.withResolvers<string>()
  const companies: Company[] = []
  const begin = async (company: Company) => {
    companies.push(company)
    company.signal.addEventListener('abort', () => gate.reject(new Error('let go')), { once: true })
    return await gate.promise
  }
  return { gate, companies, begin }
}

async function turns(): Promise<void> {
  for (let i = 0; i < 20; i++) await turn()
}

describe('SharedWork', () => {
  it('runs once for all who come meanwhile, and anew for who comes later', async () => {
    const shared = new SharedWork()
    const { gate, companies, begin } = slowWork()
    const results = Promise.all([1, 2, 3].map(() => shared.run('k', participant(), begin)))
    await turns()
    gate.resolve('done')
    expect(await results).toEqual(['done', 'done', 'done'])
    expect(companies.length).toBe(1)
    expect(await shared.run('k', participant(), () => Promise.resolve('again'))).toBe('again')
  })

  it('outlives the one who began it, and ends with the last', async () => {
    const shared = new SharedWork()
    const { companies, begin } = slowWork()
    const first = new AbortController()
    const second = new AbortController()
    const one = shared.run('k', participant(first.signal), begin)
    const two = shared.run('k', participant(second.signal), begin)
    await turns()
    first.abort(new Error('first left'))
    await expect(one).rejects.toThrow('first left')
    expect(companies[0]?.signal.aborted).toBe(false)
    second.abort(new Error('second left'))
    await expect(two).rejects.toThrow('second left')
    expect(companies[0]?.signal.aborted).toBe(true)
  })

  it('is not begun again before the one that all left has let go', async () => {
    const shared = new SharedWork()
    const letGo = Promise.withResolvers<undefined>()
    const leaving = new AbortController()
    const first = shared.run('k', participant(leaving.signal), async () => await letGo.promise)
    await turns()
    leaving.abort(new Error('left'))
    await expect(first).rejects.toThrow('left')
    let begun = false
    const next = shared.run('k', participant(), () => Promise.resolve((begun = true)))
    await turns()
    expect(begun).toBe(false)
    letGo.resolve(undefined)
    expect(await next).toBe(true)
  })

  it('may change things while one of its company may, and tells late comers where it is', async () => {
    const shared = new SharedWork()
    const { gate, companies, begin } = slowWork()
    let allowed = true
    const late = participant(undefined, () => allowed)
    const first = shared.run(
      'k',
      participant(undefined, () => false),
      begin,
    )
    await turns()
    const [company] = companies
    expect(company?.mayMutate()).toBe(false)
    company?.progress('half')
    const second = shared.run('k', late, begin)
    expect(late.said).toEqual(['half'])
    expect(company?.mayMutate()).toBe(true)
    allowed = false
    expect(company?.mayMutate()).toBe(false)
    gate.resolve('done')
    await Promise.all([first, second])
  })

  it('fails all alike', async () => {
    const shared = new SharedWork()
    const { gate, begin } = slowWork()
    const all = [1, 2].map(() => shared.run('k', participant(), begin))
    await turns()
    gate.reject(new Error('broken'))
    for (const one of all) await expect(one).rejects.toThrow('broken')
  })
})

describe('HostConnections', () => {
  const never = new AbortController().signal

  function dialler() {
    const dials: {
      host: string
      signal: AbortSignal
      open: (session: HostSession) => void
      fail: (e: Error) => void
    }[] = []
    const dial = (host: string, signal: AbortSignal) =>
      new Promise<HostSession>((resolve, reject) => {
        dials.push({ host, signal, open: resolve, fail: reject })
        signal.addEventListener('abort', () => reject(new Error('dial aborted')), { once: true })
      })
    return { dials, connections: new HostConnections(dial) }
  }

  it('dials once for concurrent callers, per host and line', async () => {
    const { dials, connections } = dialler()
    const all = [
      connections.line('a', 'shared', never),
      connections.line('a', 'shared', never),
      connections.line('a', 'agent', never),
      connections.line('b', 'shared', never),
    ]
    expect(dials.map(({ host }) => host)).toEqual(['a', 'a', 'b'])
    for (const { open } of dials) open(new FakeHost().session())
    const [first, second] = await Promise.all(all)
    expect(first).toBe(second)
    expect(await connections.line('a', 'shared', never)).toBe(first)
    expect(dials.length).toBe(3)
  })

  it('lets one waiter go without the others, and ends a dial that nobody waits for', async () => {
    const { dials, connections } = dialler()
    const leaving = new AbortController()
    const one = connections.line('a', 'shared', leaving.signal)
    const two = connections.line('a', 'shared', never)
    leaving.abort(new Error('left'))
    await expect(one).rejects.toThrow('left')
    expect(dials[0]?.signal.aborted).toBe(false)
    dials[0]?.open(new FakeHost().session())
    await two
    const alone = new AbortController()
    const other = connections.line('b', 'shared', alone.signal)
    alone.abort(new Error('left'))
    await expect(other).rejects.toThrow('left')
    expect(dials[1]?.signal.aborted).toBe(true)
    const again = connections.line('b', 'shared', never)
    dials[2]?.open(new FakeHost().session())
    await again
  })

  it('dials anew after a failure and after a connection ended', async () => {
    const { dials, connections } = dialler()
    const failed = connections.line('a', 'shared', never)
    dials[0]?.fail(new Error('no route'))
    await expect(failed).rejects.toThrow('no route')
    const second = connections.line('a', 'shared', never)
    const session = new FakeHost().session()
    dials[1]?.open(session)
    const api = await second
    session.destroy(new Error('lost'))
    await turns()
    const third = connections.line('a', 'shared', never)
    dials[2]?.open(new FakeHost().session())
    expect(await third).not.toBe(api)
  })

  it('gives fresh connections to one user each and ends them', async () => {
    const ended: string[] = []
    const connections = new HostConnections(() =>
      Promise.resolve({
        ...new FakeHost().session(),
        close: () => Promise.resolve(void ended.push('closed')),
        destroy: () => void ended.push('destroyed'),
      }),
    )
    expect(await connections.fresh('a', never, () => Promise.resolve(7))).toBe(7)
    const cut = new AbortController()
    const work = connections.fresh('a', cut.signal, async () => {
      cut.abort(new Error('cut'))
      return await Promise.reject(new Error('cut'))
    })
    await expect(work).rejects.toThrow('cut')
    expect(ended).toEqual(['closed', 'destroyed'])
  })

  it('refuses after close, and ends a dial under way', async () => {
    const { dials, connections } = dialler()
    const waiting = connections.line('a', 'shared', never)
    const refused = expect(waiting).rejects.toThrow('dial aborted')
    await connections.close()
    await refused
    await expect(connections.line('a', 'shared', never)).rejects.toMatchObject({
      kind: 'transient',
      code: 'ProviderClosed',
    })
    expect(dials.length).toBe(1)
  })
})

describe('a download under way', () => {
  it('delays neither other images, nor deletes on the host, however many creates wait for it', async () => {
    const gate = Promise.withResolvers<undefined>()
    const plain = imageServer()
    const server: ImageServer = {
      ...plain,
      ask: async (method, url, signal) => {
        if (url.includes('slow')) await gate.promise
        return await plain.ask(method, url, signal)
      },
    }
    const host = new FakeHost()
    const images = { slow: { url: 'https://slow.example/i' }, quick: { url: 'https://quick.example/i' } }
    const provider = operator(host, { imageServer: server, block: { images } })
    const request = (of: string, image: string) => {
      const mine = { ...owner, uid: `uid-${of}`, name: of }
      return createRequest({
        owner: mine,
        instanceName: instanceName(mine),
        placement: { machineType: 'small', image },
      })
    }
    const waiting = Array.from({ length: 50 }, (_, i) => provider.create(request(`w${i}`, 'slow'), context()))
    await turns()
    const quick = request('q', 'quick')
    await provider.create(quick, context())
    await provider.delete(deleteRequest({ owner: quick.owner, instanceName: quick.instanceName }), context())
    expect(host.domains.size).toBe(0)
    gate.resolve(undefined)
    await Promise.all(waiting)
    expect(host.domains.size).toBe(50)
    expect(plain.asked.filter((method) => method === 'GET').length).toBe(2)
  })
})

describe('places for creates', () => {
  it('are as many per host as configured', async () => {
    const host = new FakeHost()
    let starting = 0
    let most = 0
    const session = () => {
      const real = host.session()
      const startDomain: typeof real.api.startDomain = async (domain, guard) => {
        most = Math.max(most, ++starting)
        await turns()
        await real.api.startDomain(domain, guard)
        starting--
      }
      return Promise.resolve({ ...real, api: { ...real.api, startDomain } })
    }
    const provider = operator(host, { dial: session })
    await Promise.all(
      Array.from({ length: 12 }, async (_, i) => {
        const mine = { ...owner, uid: `uid-${i}`, name: `n${i}` }
        await provider.create(createRequest({ owner: mine, instanceName: instanceName(mine) }), context())
      }),
    )
    expect([host.domains.size, most]).toEqual([12, 4])
  })
})

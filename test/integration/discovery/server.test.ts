// The discovery API over a real socket, as a crawler would ask it.
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { FastifyInstance } from 'fastify'
import { proxySpecSchema, type Proxy, type ProxyPhase } from '../../../src/api/proxy.ts'
import { createDiscoveryServer } from '../../../src/discovery/server.ts'
import { silentLogger } from '../../../src/observe/logger.ts'

interface Given {
  readonly ip?: string
  readonly phase?: ProxyPhase
  readonly labels?: Record<string, string>
  readonly namespace?: string
  readonly zone?: string
}

function proxy(name: string, given: Given): Proxy {
  const { ip, phase = 'Ready', labels = {}, namespace = 'crawl', zone = 'kvm-1' } = given
  const spec = proxySpecSchema.parse({
    provider: 'home',
    placement: { zone, machineType: 'small', image: 'debian-13' },
  })
  const endpoint = ip === undefined ? {} : { ip, endpoint: `http://${ip.includes(':') ? `[${ip}]` : ip}:3128` }
  return {
    apiVersion: 'egressproxies.dev/v1alpha1',
    kind: 'Proxy',
    metadata: { name, namespace, uid: name, resourceVersion: '1', labels },
    spec,
    status: { phase, ...endpoint },
  }
}

let proxies: Proxy[]
let latencyMs: number
let app: FastifyInstance
let base: string

beforeEach(async () => {
  latencyMs = 12.4
  proxies = [
    proxy('b', { ip: '192.0.2.2', labels: { tier: 'gold' } }),
    proxy('a', { ip: '192.0.2.1' }),
    proxy('six', { ip: '2001:db8::6', namespace: 'other', zone: 'kvm-2' }),
    proxy('sick', { ip: '192.0.2.9', phase: 'Running' }),
    proxy('unborn', { phase: 'Provisioning' }),
  ]
  app = createDiscoveryServer({
    proxies: () => proxies,
    verdict: (key) => (key === 'crawl/a' ? { kind: 'healthy', latencyMs } : { kind: 'pending' }),
    random: () => 0.99,
    log: silentLogger,
  })
  base = await app.listen({ host: '127.0.0.1', port: 0 })
})

afterEach(async () => {
  await app.close()
})

async function ask(path: string, headers: Record<string, string> = {}) {
  const response = await fetch(`${base}${path}`, { headers })
  const body = await response.text()
  return { status: response.status, headers: response.headers, body, json: () => JSON.parse(body) as unknown }
}

async function names(query: string): Promise<string[]> {
  const { items } = (await ask(`/v1/proxies?${query}`)).json() as { items: { name: string }[] }
  return items.map(({ name }) => name)
}

describe('discovery API', () => {
  it('lists what is Ready, with all fields', async () => {
    const list = (await ask('/v1/proxies?namespace=crawl&limit=1')).json()
    expect(list).toEqual({
      count: 1,
      items: [
        {
          name: 'a',
          namespace: 'crawl',
          url: 'http://192.0.2.1:3128',
          host: '192.0.2.1',
          port: 3128,
          provider: 'home',
          zone: 'kvm-1',
          labels: {},
          healthy: true,
          egressIP: null,
          latencyMillis: 12,
          since: null,
        },
      ],
    })
  })

  it.each([
    ['', ['a', 'b', 'six']],
    ['healthy=any', ['a', 'b', 'sick', 'six']],
    ['namespace=other', ['six']],
    ['zone=kvm-2', ['six']],
    ['provider=home&limit=2', ['a', 'b']],
    ['provider=nope', []],
    ['labelSelector=tier%3Dgold', ['b']],
    ['labelSelector=!tier', ['a', 'six']],
  ])('filters by %j', async (query, expected) => {
    expect(await names(query)).toEqual(expected)
  })

  it('writes text as one URL a line, IPv6 in brackets', async () => {
    const expected = 'http://192.0.2.1:3128\nhttp://192.0.2.2:3128\nhttp://[2001:db8::6]:3128\n'
    expect((await ask('/v1/proxies?format=text')).body).toBe(expected)
    expect((await ask('/v1/proxies', { accept: 'text/plain' })).body).toBe(expected)
  })

  it('answers 304 until something but latency changes', async () => {
    const first = await ask('/v1/proxies')
    const headers = { 'if-none-match': first.headers.get('etag') ?? '' }
    latencyMs = 99
    expect((await ask('/v1/proxies', headers)).status).toBe(304)
    proxies = proxies.slice(1)
    const changed = await ask('/v1/proxies', headers)
    expect(changed.status).toBe(200)
    expect(changed.headers.get('etag')).not.toBe(first.headers.get('etag'))
  })

  it('chooses a random one among those that match, or says when to ask again', async () => {
    expect((await ask('/v1/proxies/random')).json()).toMatchObject({ name: 'six' })
    expect((await ask('/v1/proxies/random?zone=kvm-1&format=text')).body).toBe('http://192.0.2.1:3128\n')
    const none = await ask('/v1/proxies/random?zone=nowhere')
    expect(none.status).toBe(503)
    expect(none.headers.get('retry-after')).toBe('5')
    expect(none.headers.get('content-type')).toContain('application/problem+json')
  })

  it('shows one proxy by name, healthy or not', async () => {
    expect((await ask('/v1/proxies/crawl/sick')).json()).toMatchObject({ name: 'sick', healthy: false })
    expect((await ask('/v1/proxies/crawl/nope')).status).toBe(404)
    expect((await ask('/v1/proxies/crawl/unborn')).status).toBe(404)
  })

  it.each([
    ['limit=0', 'limit'],
    ['limit=x', 'limit'],
    ['healthy=no', 'healthy'],
    ['format=xml', 'format'],
    ['zoen=kvm-1', 'zoen'],
    ['labelSelector=a%3Db%3Dc', 'labelSelector'],
  ])('refuses %j with a problem that names the parameter', async (query, named) => {
    const answer = await ask(`/v1/proxies?${query}`)
    expect(answer.status).toBe(400)
    expect(answer.json()).toMatchObject({ status: 400, detail: expect.stringContaining(named) as string })
  })

  it('refuses a path that cannot be decoded with a problem', async () => {
    const answer = await fetch(`${base}/v1/proxies/%ZZ/a`)
    expect(answer.status).toBe(400)
    expect(answer.headers.get('content-type')).toContain('application/problem+json')
    expect(await answer.json()).toMatchObject({ type: 'about:blank', status: 400, title: 'Bad request' })
  })

  it('answers other paths with a problem', async () => {
    expect((await ask('/nope')).json()).toMatchObject({ status: 404, title: 'No such page' })
    expect((await ask('/healthz')).body).toBe('ok\n')
  })
})

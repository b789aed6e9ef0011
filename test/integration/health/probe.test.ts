// Real requests through real proxies on loopback: whose fault each failure is.
import { once } from 'node:events'
import { createServer, request as httpRequest, type Server } from 'node:http'
import { connect, createServer as createTcpServer, type AddressInfo, type Server as TcpServer } from 'node:net'
import { afterEach, describe, expect, it } from 'vitest'
import type { ProbeTarget } from '../../../src/api/probe.ts'
import { DirectChecks } from '../../../src/health/direct.ts'
import { probe } from '../../../src/health/probe.ts'
import { systemClock } from '../../../src/lib/clock.ts'
import { Secret } from '../../../src/lib/secret.ts'
import { fetchDirectly } from '../../../src/wire/http-proxy/client.ts'

const open: (Server | TcpServer)[] = []

afterEach(async () => {
  for (const server of open.splice(0)) {
    if ('closeAllConnections' in server) server.closeAllConnections()
    await new Promise((resolve) => server.close(resolve))
  }
})

async function listening(server: Server | TcpServer): Promise<number> {
  open.push(server)
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return (server.address() as AddressInfo).port
}

/** A page whose answer the test changes. */
async function startPage(answer: { status: number; body: string }): Promise<string> {
  const port = await listening(createServer((_request, response) => response.writeHead(answer.status).end(answer.body)))
  return `http://127.0.0.1:${port}/ip`
}

interface ForwardProxy {
  readonly port: number
  readonly seen: { authorization?: string | undefined; requests: number }
}

/** A forward proxy for plain HTTP and CONNECT; `refuse` answers that status in place of serving. */
async function startProxy(refuse?: () => number | undefined): Promise<ForwardProxy> {
  const seen: ForwardProxy['seen'] = { requests: 0 }
  const server = createServer((incoming, response) => {
    seen.requests++
    seen.authorization = incoming.headers['proxy-authorization']
    const status = refuse?.()
    if (status !== undefined) return void response.writeHead(status).end('no')
    const upstream = httpRequest(incoming.url ?? '', (answer) => {
      response.writeHead(answer.statusCode ?? 502)
      answer.pipe(response)
    })
    upstream.on('error', () => response.writeHead(502).end())
    upstream.end()
    return undefined
  })
  server.on('connect', (incoming, client) => {
    seen.requests++
    const status = refuse?.()
    if (status !== undefined) return void client.end(`HTTP/1.1 ${status} No\r\n\r\n`)
    const [host, port] = (incoming.url ?? '').split(':')
    const upstream = connect(Number(port), host ?? '', () => {
      client.write('HTTP/1.1 200 OK\r\n\r\n')
      upstream.pipe(client).pipe(upstream)
    })
    upstream.on('error', () => client.destroy())
    client.on('error', () => upstream.destroy())
    return undefined
  })
  return { port: await listening(server), seen }
}

function targetOf(port: number, url: string, more: Partial<ProbeTarget> = {}): ProbeTarget {
  const settings = { url, intervalMs: 1000, timeoutMs: 5000, failureThreshold: 1, successThreshold: 1 }
  return { uid: 'u', host: '127.0.0.1', port, settings, ...more }
}

function dependencies() {
  const direct = new DirectChecks({
    clock: systemClock,
    fetch: (url, signal) => fetchDirectly({ url, clock: systemClock, signal, maxBodyBytes: 0 }),
  })
  return { clock: systemClock, direct }
}

const never = new AbortController().signal

describe('probe', () => {
  it('takes the address that the page tells as the egress address', async () => {
    const url = await startPage({ status: 200, body: '{"ip":"2001:db8::7"}' })
    const proxy = await startProxy()
    const result = await probe(targetOf(proxy.port, url), dependencies(), never)
    expect(result).toMatchObject({ kind: 'success', egressIP: '2001:db8::7' })
    expect(proxy.seen.requests).toBe(1)
  })

  it('sends credentials to the proxy', async () => {
    const url = await startPage({ status: 204, body: '' })
    const proxy = await startProxy()
    const credentials = { username: 'crawler', password: new Secret('s3cret') }
    await probe(targetOf(proxy.port, url, { credentials }), dependencies(), never)
    expect(proxy.seen.authorization).toBe(`Basic ${Buffer.from('crawler:s3cret').toString('base64')}`)
  })

  it('blames a proxy that does not listen', async () => {
    const url = await startPage({ status: 200, body: '' })
    const gone = createTcpServer()
    const port = await listening(gone)
    await new Promise((resolve) => open.pop()?.close(resolve))
    const result = await probe(targetOf(port, url), dependencies(), never)
    expect(result).toMatchObject({ kind: 'failure', reason: 'ProxyUnreachable' })
  })

  it('blames a proxy that wants credentials, and names the field', async () => {
    const url = await startPage({ status: 200, body: '' })
    const proxy = await startProxy(() => 407)
    const result = await probe(targetOf(proxy.port, url), dependencies(), never)
    expect(result).toMatchObject({ kind: 'failure', reason: 'ProxyAuthenticationRequired' })
    expect(JSON.stringify(result)).toContain('spec.credentialsSecretRef')
  })

  it('blames a proxy whose 502 the page itself does not explain', async () => {
    const url = await startPage({ status: 200, body: '' })
    const proxy = await startProxy(() => 502)
    expect(await probe(targetOf(proxy.port, url), dependencies(), never)).toMatchObject({
      kind: 'failure',
      reason: 'BadStatus',
    })
  })

  it('blames nobody when the page fails directly too, once it was seen to work', async () => {
    const answer = { status: 200, body: '' }
    const url = await startPage(answer)
    const proxy = await startProxy()
    let nowMs = 0
    const clock = { ...systemClock, monotonic: () => nowMs }
    const direct = new DirectChecks({
      clock,
      fetch: (page, signal) => fetchDirectly({ url: page, clock, signal, maxBodyBytes: 0 }),
    })
    expect(await direct.check(url, 5000)).toEqual({ kind: 'reachable' })
    answer.status = 503
    nowMs = 60_000
    const result = await probe(targetOf(proxy.port, url), { clock, direct }, never)
    expect(result.kind).toBe('targetDown')
  })

  it('blames the proxy where a direct request never succeeded', async () => {
    const url = await startPage({ status: 503, body: '' })
    const proxy = await startProxy()
    expect((await probe(targetOf(proxy.port, url), dependencies(), never)).kind).toBe('failure')
  })

  it('blames a proxy that accepts and stays silent, within the timeout', async () => {
    const url = await startPage({ status: 200, body: '' })
    const port = await listening(createTcpServer((socket) => socket.on('error', () => undefined).resume()))
    const target = targetOf(port, url)
    const settings = { ...target.settings, timeoutMs: 200 }
    const result = await probe({ ...target, settings }, dependencies(), never)
    expect(result).toMatchObject({ kind: 'failure', reason: 'RequestFailed' })
    expect(JSON.stringify(result)).toContain('did not finish within 200 ms')
  })

  it('reports a CONNECT that the proxy refuses', async () => {
    const proxy = await startProxy(() => 403)
    const result = await probe(targetOf(proxy.port, 'https://127.0.0.1:9/'), dependencies(), never)
    expect(result).toMatchObject({ kind: 'failure', reason: 'BadStatus' })
    expect(JSON.stringify(result)).toContain('403 to CONNECT 127.0.0.1:9')
  })

  it('reports TLS that fails inside the tunnel as such', async () => {
    const page = await startPage({ status: 200, body: '' })
    const proxy = await startProxy()
    const result = await probe(targetOf(proxy.port, page.replace('http:', 'https:')), dependencies(), never)
    expect(result).toMatchObject({ kind: 'failure', reason: 'TLSFailed' })
  })
})

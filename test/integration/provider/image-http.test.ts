// The client that asks image servers, against real ones on loopback: redirects, logins, silence, and bodies of every framing.
import { once } from 'node:events'
import { createServer, Server as HttpServer, type RequestListener } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import { createServer as createTcpServer, type AddressInfo, type Server } from 'node:net'
import { setTimeout as wait } from 'node:timers/promises'
import { afterEach, describe, expect, it } from 'vitest'
import { createImageServer, type ImageResponse } from '../../../src/provider/libvirt/image-http.ts'
import { selfSigned } from '../../support/self-signed.ts'

const never = new AbortController().signal
let undo = new AsyncDisposableStack()
afterEach(async () => {
  await undo.disposeAsync()
  undo = new AsyncDisposableStack()
})

async function listen(server: Server): Promise<number> {
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  undo.defer(() => {
    if (server instanceof HttpServer) server.closeAllConnections()
    server.close()
  })
  return (server.address() as AddressInfo).port
}

const serve = async (listener: RequestListener) => `http://127.0.0.1:${await listen(createServer(listener))}`

function client(options: Partial<Parameters<typeof createImageServer>[0]> = {}) {
  return undo.adopt(createImageServer({ headersMs: 20_000, silenceMs: 20_000, ...options }), (it) => it.close())
}

async function text(response: ImageResponse): Promise<string> {
  const parts: Uint8Array[] = []
  for await (const part of response.body) parts.push(part)
  return Buffer.concat(parts).toString()
}

describe('an answer', () => {
  it('is asked for as it is, and its framing and encoding are told', async () => {
    const asked: unknown[] = []
    const url = await serve((request, response) => {
      asked.push([request.method, request.headers['accept-encoding'], request.headers.authorization])
      if (request.url === '/length')
        response.writeHead(200, { 'content-length': 3 }).end(request.method === 'GET' ? 'abc' : '')
      if (request.url === '/chunks') response.write('abc', () => response.end('def'))
      if (request.url === '/gzip')
        response.writeHead(200, { 'content-encoding': 'gzip', 'content-length': 3 }).end('abc')
      if (request.url === '/identity') response.writeHead(200, { 'content-encoding': 'identity' }).end('abc')
    })
    const images = client()
    const facts = async (path: string) => {
      const answer = await images.ask('GET', `${url}${path}`, never)
      return [answer.status, answer.lengthBytes, answer.isChunked, answer.encoding, await text(answer)]
    }
    expect(await facts('/length')).toEqual([200, 3, false, undefined, 'abc'])
    expect(await facts('/chunks')).toEqual([200, undefined, true, undefined, 'abcdef'])
    expect(await facts('/gzip')).toEqual([200, 3, false, 'gzip', 'abc'])
    expect(await facts('/identity')).toEqual([200, undefined, true, undefined, 'abc'])
    const head = await images.ask('HEAD', `${url}/length`, never)
    expect([head.status, head.lengthBytes, await text(head)]).toEqual([200, 3, ''])
    expect(asked[0]).toEqual(['GET', 'identity', undefined])
  })

  it('whose end only the connection tells is neither of a length nor in chunks', async () => {
    const port = await listen(createTcpServer((socket) => void socket.end('HTTP/1.0 200 OK\r\n\r\nabc')))
    const answer = await client().ask('GET', `http://127.0.0.1:${port}/`, never)
    expect([answer.lengthBytes, answer.isChunked, await text(answer)]).toEqual([undefined, false, 'abc'])
  })

  it.each(['content-length: 10', 'transfer-encoding: chunked'])('with %s that is cut off fails', async (framing) => {
    const part = framing.includes('chunked') ? '3\r\nabc\r\n' : 'abc'
    const port = await listen(
      createTcpServer((socket) => void socket.end(`HTTP/1.1 200 OK\r\n${framing}\r\n\r\n${part}`)),
    )
    const answer = await client().ask('GET', `http://127.0.0.1:${port}/`, never)
    await expect(text(answer)).rejects.toMatchObject({ name: 'ImageServerError', code: 'NETWORK' })
  })
})

describe('a redirect', () => {
  it('is followed, relative or to another server, and a login goes to its own server only', async () => {
    const logins: unknown[] = []
    const other = await serve((request, response) => {
      logins.push(['other', request.headers.authorization])
      response.end('there')
    })
    const url = await serve((request, response) => {
      logins.push([request.url, request.headers.authorization])
      if (request.url === '/a') response.writeHead(302, { location: '/b' }).end()
      else response.writeHead(307, { location: `${other}/c` }).end()
    })
    const answer = await client().ask('GET', url.replace('//', '//us%40er:pass@') + '/a', never)
    expect([await text(answer), answer.isDowngraded]).toEqual(['there', false])
    const login = `Basic ${Buffer.from('us@er:pass').toString('base64')}`
    expect(logins).toEqual([
      ['/a', login],
      ['/b', login],
      ['other', undefined],
    ])
  })

  it('in a circle, or to something else than http, leads nowhere', async () => {
    const url = await serve((request, response) => {
      response.writeHead(302, { location: request.url === '/file' ? 'file:///etc/passwd' : '/again' }).end()
    })
    for (const path of ['/circle', '/file']) {
      await expect(client().ask('GET', `${url}${path}`, never)).rejects.toMatchObject({ code: 'REDIRECT' })
    }
  })

  it('from https to http is told', async () => {
    const { key, cert } = selfSigned('127.0.0.1', Date.now())
    const plain = await serve((_request, response) => response.end('plain'))
    const server = createTlsServer({ key, cert }, (_request, response) => {
      response.writeHead(302, { location: plain }).end()
    })
    const port = await listen(server)
    const answer = await client({ ca: cert }).ask('GET', `https://127.0.0.1:${port}/`, never)
    expect([await text(answer), answer.isDowngraded]).toEqual(['plain', true])
  })
})

describe('silence', () => {
  it('of a server that does not answer, or stops in the middle, ends in words', async () => {
    const url = await serve((request, response) => {
      if (request.url === '/body') response.writeHead(200, { 'content-length': 10 }).write('abc')
    })
    const images = client({ headersMs: 1000, silenceMs: 1000 })
    await expect(images.ask('GET', `${url}/head`, never)).rejects.toMatchObject({
      code: 'STALLED',
      message: 'no answer within 1 s',
    })
    const answer = await images.ask('GET', `${url}/body`, never)
    await expect(text(answer)).rejects.toMatchObject({ code: 'STALLED', message: 'no byte came for 1 s' })
  })

  it('that is ours is not held against the server', async () => {
    const whole = Buffer.alloc(8 * 2 ** 20, 'x')
    const url = await serve((_request, response) => response.end(whole))
    const answer = await client({ silenceMs: 1000 }).ask('GET', url, never)
    let received = 0
    for await (const part of answer.body) {
      // Twice as long as the server may be silent.
      if (received === 0) await wait(2500)
      received += part.byteLength
    }
    expect(received).toBe(whole.byteLength)
  })

  it('is ended by the signal, with its reason', async () => {
    const url = await serve(() => undefined)
    const abort = new AbortController()
    const asked = client().ask('GET', url, abort.signal)
    abort.abort(new Error('enough'))
    await expect(asked).rejects.toThrow('enough')
  })
})

// A real forward proxy on one address: absolute-form HTTP and CONNECT, nothing cached, nobody turned away.
import { once } from 'node:events'
import { createServer, request as httpRequest, type IncomingMessage, type ServerResponse } from 'node:http'
import { connect } from 'node:net'
import type { Duplex } from 'node:stream'

export interface ForwardProxy {
  readonly host: string
  readonly port: number
  /** Requests and tunnels served so far. */
  requests(): number
  close(): Promise<void>
}

const hopByHop = new Set(['connection', 'proxy-connection', 'keep-alive', 'proxy-authorization', 'te', 'upgrade'])

/** Rejects with the socket's error when the address is taken. */
export async function startForwardProxy(host: string, port: number): Promise<ForwardProxy> {
  let served = 0
  const sockets = new Set<Duplex>()
  const server = createServer((request, response) => {
    served++
    forward(host, request, response)
  })
  server.on('connection', (socket) => {
    sockets.add(socket)
    socket.on('close', () => sockets.delete(socket))
  })
  server.on('connect', (request, client, head) => {
    served++
    tunnel(host, { request, client, head }, sockets)
  })
  server.listen(port, host)
  await once(server, 'listening')
  const address = server.address()
  return {
    host,
    port: typeof address === 'object' && address !== null ? address.port : port,
    requests: () => served,
    close: async () => {
      const closed = once(server, 'close')
      server.close()
      for (const socket of sockets) socket.destroy()
      await closed
    },
  }
}

/** Each proxy on the way adds itself (RFC 9110, 7.6.3). */
function appendVia(before: string | string[] | undefined): string {
  return [before ?? [], '1.1 libvirt-stub'].flat().join(', ')
}

/** Loopback sees the guest under its own address, as a VM's network would; from it nothing else can be reached. */
function sourceTowards(target: string, own: string): { localAddress?: string } {
  return /^127\./.test(target) && /^127\./.test(own) ? { localAddress: own } : {}
}

function forward(own: string, request: IncomingMessage, response: ServerResponse): void {
  const target = URL.parse(request.url ?? '')
  if (target?.protocol !== 'http:') {
    response
      .writeHead(400, { 'content-type': 'text/plain' })
      .end('this is a forward proxy: use an absolute http:// URL\n')
    return
  }
  const headers = Object.fromEntries(Object.entries(request.headers).filter(([name]) => !hopByHop.has(name)))
  const upstream = httpRequest(
    target,
    {
      method: request.method,
      headers: { ...headers, via: appendVia(headers['via']) },
      agent: false,
      ...sourceTowards(target.hostname, own),
    },
    (answer) => {
      response.writeHead(answer.statusCode ?? 502, { ...answer.headers, via: appendVia(answer.headers.via) })
      answer.pipe(response)
    },
  )
  upstream.on('error', () => {
    if (response.headersSent) response.destroy()
    else response.writeHead(502, { 'content-type': 'text/plain' }).end('the target did not answer\n')
  })
  response.on('close', () => upstream.destroy())
  request.pipe(upstream)
}

interface Tunnel {
  readonly request: IncomingMessage
  readonly client: Duplex
  readonly head: Buffer
}

function tunnel(own: string, { request, client, head }: Tunnel, sockets: Set<Duplex>): void {
  const target = URL.parse(`tunnel://${request.url ?? ''}`)
  client.on('error', () => client.destroy())
  if (target === null || target.port === '') {
    client.end('HTTP/1.1 400 Bad Request\r\n\r\n')
    return
  }
  const host = target.hostname.replace(/^\[|\]$/g, '')
  const upstream = connect({ port: Number(target.port), host, ...sourceTowards(host, own) })
  sockets.add(upstream)
  let established = false
  upstream.on('connect', () => {
    established = true
    client.write('HTTP/1.1 200 Connection established\r\n\r\n')
    upstream.write(head)
    upstream.pipe(client).pipe(upstream)
  })
  upstream.on('error', () => {
    if (established) client.destroy()
    else client.end('HTTP/1.1 502 Bad Gateway\r\n\r\n')
  })
  upstream.on('close', () => {
    sockets.delete(upstream)
    if (established) client.destroy()
  })
  client.on('close', () => upstream.destroy())
}

// One GET through an HTTP forward proxy (absolute form, or CONNECT for https) and one without; no verdict on what came back.
import { request as httpRequest, type IncomingMessage } from 'node:http'
import { request as httpsRequest } from 'node:https'
import { connect as tcpConnect, type Socket } from 'node:net'
import { connect as tlsConnect, type TLSSocket } from 'node:tls'
import { abortReason, type Clock } from '../../lib/clock.ts'
import { toError } from '../../lib/errors.ts'
import type { Secret } from '../../lib/secret.ts'

export interface ProxyAddress {
  readonly host: string
  readonly port: number
  readonly credentials?: { readonly username: string; readonly password: Secret<string> }
}

export interface FetchOptions {
  readonly url: URL
  readonly clock: Clock
  /** Ends the request at whatever stage it is in. */
  readonly signal: AbortSignal
  /** Bytes of the answer's body that are kept; the rest is not read. */
  readonly maxBodyBytes: number
  readonly connect?: TcpConnect
}

/** Opens a TCP connection; the socket may still be connecting. */
export type TcpConnect = (host: string, port: number) => Socket

/** How a request through a proxy ended. Every member says how far it came, which tells whose fault it can be. */
export type ProxyFetchResult =
  /** An answer to the request itself: from the target, or made by the proxy in its place. */
  | { readonly kind: 'answered'; readonly status: number; readonly body: string; readonly latencyMs: number }
  /** No TCP connection to the proxy. */
  | { readonly kind: 'unreachable'; readonly message: string }
  /** CONNECT was answered with something other than 2xx. */
  | { readonly kind: 'tunnelRefused'; readonly status: number }
  /** The connection was there and something on it failed: TLS in the tunnel, a cut, the signal. */
  | { readonly kind: 'broken'; readonly stage: 'tunnel' | 'tls' | 'request'; readonly message: string }

/** Fetches `options.url` through `proxy` on a connection of its own. Never rejects. */
export async function fetchThroughProxy(proxy: ProxyAddress, options: FetchOptions): Promise<ProxyFetchResult> {
  const startedMs = options.clock.monotonic()
  const connect: TcpConnect = options.connect ?? ((host, port) => tcpConnect({ host, port }))
  const socket = connect(unbracketed(proxy.host), proxy.port)
  // a socket without a listener would turn a late error into an uncaught exception
  socket.on('error', () => undefined)
  const onAbort = () => socket.destroy(abortReason(options.signal))
  options.signal.addEventListener('abort', onAbort, { once: true })
  let stage: 'tunnel' | 'tls' | 'request' | undefined
  try {
    if (options.signal.aborted) onAbort()
    await connected(socket)
    let answer: IncomingMessage
    if (options.url.protocol === 'https:') {
      stage = 'tunnel'
      const status = await openTunnel(socket, proxy, options.url)
      if (status < 200 || status > 299) return { kind: 'tunnelRefused', status }
      stage = 'tls'
      const secured = await secure(socket, options.url)
      stage = 'request'
      answer = await get(options.url, options.url.pathname + options.url.search, secured, {})
    } else {
      stage = 'request'
      answer = await get(options.url, options.url.href, socket, authorization(proxy))
    }
    const body = await readBody(answer, options.maxBodyBytes)
    return { kind: 'answered', status: statusOf(answer), body, latencyMs: options.clock.monotonic() - startedMs }
  } catch (thrown) {
    const message = describe(thrown)
    return stage === undefined ? { kind: 'unreachable', message } : { kind: 'broken', stage, message }
  } finally {
    options.signal.removeEventListener('abort', onAbort)
    socket.destroy()
  }
}

/** Fetches `options.url` without a proxy. Resolves to the HTTP status; rejects when there was no answer. */
export async function fetchDirectly(options: FetchOptions): Promise<{ readonly status: number }> {
  const send = options.url.protocol === 'https:' ? httpsRequest : httpRequest
  return await new Promise((resolve, reject) => {
    const request = send(options.url, { agent: false, signal: options.signal }, (answer) => {
      resolve({ status: statusOf(answer) })
      request.destroy()
    })
    request.on('error', reject)
    request.end()
  })
}

function connected(socket: Socket): Promise<void> {
  return new Promise((resolve, reject) => {
    if (socket.destroyed) {
      reject(socket.errored ?? new Error('closed'))
      return
    }
    socket.once('connect', resolve)
    socket.once('error', reject)
    socket.once('close', () => reject(socket.errored ?? new Error('closed before it was open')))
  })
}

/** Sends CONNECT and resolves to its status; on 2xx the socket is the tunnel. */
function openTunnel(socket: Socket, proxy: ProxyAddress, url: URL): Promise<number> {
  const target = `${url.hostname}:${url.port === '' ? 443 : url.port}`
  return new Promise((resolve, reject) => {
    const request = httpRequest({
      method: 'CONNECT',
      path: target,
      headers: { host: target, ...authorization(proxy) },
      // with an agent, even none, Node would open a connection of its own
      createConnection: () => socket,
    })
    request.once('connect', (answer, _socket, head) => {
      if (head.length > 0) socket.unshift(head)
      resolve(statusOf(answer))
    })
    request.once('response', (answer) => resolve(statusOf(answer)))
    request.once('error', reject)
    request.end()
  })
}

function secure(socket: Socket, url: URL): Promise<TLSSocket> {
  return new Promise((resolve, reject) => {
    const name = unbracketed(url.hostname)
    const secured = tlsConnect({ socket, host: name, ...(isAddress(name) ? {} : { servername: name }) })
    secured.once('secureConnect', () => resolve(secured))
    secured.once('error', reject)
    secured.once('close', () => reject(socket.errored ?? new Error('closed during the TLS handshake')))
  })
}

function get(url: URL, path: string, socket: Socket, headers: Record<string, string>): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const request = httpRequest({
      method: 'GET',
      path,
      headers: { host: url.host, connection: 'close', 'user-agent': 'egress-proxies-operator', ...headers },
      createConnection: () => socket,
    })
    request.once('response', resolve)
    request.once('error', reject)
    socket.once('close', () => reject(socket.errored ?? new Error('closed before the answer')))
    request.end()
  })
}

async function readBody(answer: IncomingMessage, maxBytes: number): Promise<string> {
  const chunks: Buffer[] = []
  let size = 0
  for await (const chunk of answer as AsyncIterable<Buffer>) {
    chunks.push(chunk)
    size += chunk.length
    if (size >= maxBytes) break
  }
  return Buffer.concat(chunks).subarray(0, maxBytes).toString('utf8')
}

function authorization(proxy: ProxyAddress): Record<string, string> {
  if (proxy.credentials === undefined) return {}
  const { username, password } = proxy.credentials
  return { 'proxy-authorization': `Basic ${Buffer.from(`${username}:${password.reveal()}`).toString('base64')}` }
}

function unbracketed(host: string): string {
  return host.startsWith('[') ? host.slice(1, -1) : host
}

/** SNI takes names only (RFC 6066 section 3). */
function isAddress(host: string): boolean {
  return host.includes(':') || /^[0-9.]+$/.test(host)
}

/** Messages alone hide the code where several addresses were tried (AggregateError has an empty message). */
function describe(thrown: unknown): string {
  const error = toError(thrown)
  const code = 'code' in error && typeof error.code === 'string' ? error.code : undefined
  if (error.message === '') return code ?? error.name
  return error.message
}

function statusOf(answer: IncomingMessage): number {
  return answer.statusCode ?? 0
}

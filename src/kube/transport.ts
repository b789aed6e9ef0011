// Carries requests to the API server over one pool of connections; knows kubeconfig and TLS, no resource and no retry.
import { createHash } from 'node:crypto'
import type { RequestOptions } from 'node:https'
import type { KubeConfig } from '@kubernetes/client-node'
import { Agent, ProxyAgent, type Dispatcher } from 'undici'
import { errorMessage } from '../lib/errors.ts'
import { KubeError } from './errors.ts'

export interface KubeRequest {
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'
  /** Path and query, without the server's own prefix. */
  readonly path: string
  readonly headers: Readonly<Record<string, string>>
  readonly body?: string
}

export interface KubeResponse {
  readonly status: number
  readonly retryAfter?: string
  /** Ends early and without a connection left behind when the request's signal aborts or the iterator is returned. */
  readonly body: AsyncIterable<Uint8Array>
}

/** The way to an API server. Rejects with whatever the network says; `KubeClient` turns it into a `KubeError`. */
export interface KubeTransport {
  /** Idle times are the caller's business: the signal is the only limit. */
  send(request: KubeRequest, signal: AbortSignal): Promise<KubeResponse>
  /** Ends every connection; requests in flight fail. */
  close(): Promise<void>
}

export interface UndiciTransportOptions {
  readonly kubeConfig: KubeConfig
  /** Most connections at a time; every open watch holds one. */
  readonly maxConnections: number
}

const connectTimeoutMs = 10_000

interface Connected {
  readonly fingerprint: string
  readonly dispatcher: Dispatcher
}

/**
 * One cached undici Agent for all requests, over HTTP/1.1: a watch then has a connection of its own, and cutting a
 * silent one cuts nothing else. Authentication is read per request, so that a rotated token, certificate or CA file is
 * taken up; a new Agent is made only when the TLS material changed.
 */
export class UndiciTransport implements KubeTransport {
  readonly #kubeConfig: KubeConfig
  readonly #maxConnections: number
  readonly #retired = new Set<Dispatcher>()
  #connected: Connected | undefined
  #closed = false

  constructor(options: UndiciTransportOptions) {
    this.#kubeConfig = options.kubeConfig
    this.#maxConnections = options.maxConnections
  }

  async send(request: KubeRequest, signal: AbortSignal): Promise<KubeResponse> {
    const { dispatcher, server, headers } = await this.#authenticate()
    const response = await dispatcher.request({
      origin: server.origin,
      path: server.pathname === '/' ? request.path : `${server.pathname}${request.path}`,
      method: request.method,
      headers: { ...request.headers, ...headers },
      body: request.body ?? null,
      signal,
      headersTimeout: 0,
      bodyTimeout: 0,
    })
    // An abort after the reader left would otherwise be an uncaught 'error' event; readers see it from the iterator.
    response.body.on('error', () => undefined)
    const retryAfter = response.headers['retry-after']
    return {
      status: response.statusCode,
      ...(typeof retryAfter === 'string' && { retryAfter }),
      body: response.body,
    }
  }

  async close(): Promise<void> {
    this.#closed = true
    const dispatchers = [...this.#retired, ...(this.#connected === undefined ? [] : [this.#connected.dispatcher])]
    this.#connected = undefined
    this.#retired.clear()
    await Promise.all(dispatchers.map((dispatcher) => dispatcher.destroy()))
  }

  async #authenticate(): Promise<{ dispatcher: Dispatcher; server: URL; headers: Record<string, string> }> {
    const cluster = this.#kubeConfig.getCurrentCluster()
    if (cluster === null) throw configError('the kubeconfig has no current cluster')
    const options: RequestOptions = {}
    try {
      await this.#kubeConfig.applyToHTTPSOptions(options)
    } catch (error) {
      throw configError(`credentials for ${cluster.server} cannot be used: ${errorMessage(error)}`, error)
    }
    if (this.#closed) throw new Error('the connection to the API server was closed')
    return { dispatcher: this.#dispatcherFor(options), server: new URL(cluster.server), headers: headersOf(options) }
  }

  #dispatcherFor(options: RequestOptions): Dispatcher {
    const fingerprint = fingerprintOf(options)
    if (this.#connected?.fingerprint === fingerprint) return this.#connected.dispatcher
    if (this.#connected !== undefined) this.#retire(this.#connected.dispatcher)
    const dispatcher = this.#connect(options)
    this.#connected = { fingerprint, dispatcher }
    return dispatcher
  }

  #connect(options: RequestOptions): Dispatcher {
    const pool = {
      connections: this.#maxConnections,
      pipelining: 1,
      allowH2: false,
      keepAliveTimeout: 30_000,
    }
    const tls = {
      ...(options.ca !== undefined && { ca: options.ca }),
      ...(options.cert !== undefined && { cert: options.cert }),
      ...(options.key !== undefined && { key: options.key }),
      ...(options.rejectUnauthorized !== undefined && { rejectUnauthorized: options.rejectUnauthorized }),
      ...(options.servername !== undefined && { servername: options.servername }),
    }
    const proxy = this.#kubeConfig.getCurrentCluster()?.proxyUrl
    if (proxy === undefined) {
      // TCP keepalive at client-go's interval, below the idle timeout of common load balancers.
      const tcp = { keepAlive: true, keepAliveInitialDelay: 30_000, timeout: connectTimeoutMs }
      return new Agent({ ...pool, connect: { ...tls, ...tcp } })
    }
    if (!/^https?:/.test(proxy)) throw configError(`proxy-url ${proxy} is not an http or https one`)
    return new ProxyAgent({ ...pool, uri: proxy, requestTls: tls })
  }

  /** Requests in flight on the old credentials end by themselves. */
  #retire(dispatcher: Dispatcher): void {
    this.#retired.add(dispatcher)
    void dispatcher
      .close()
      .catch(() => undefined)
      .finally(() => this.#retired.delete(dispatcher))
  }
}

function configError(message: string, cause?: unknown): KubeError {
  return new KubeError(message, { code: 'KUBE_CONFIG', status: 0, reason: 'Config', cause })
}

function headersOf(options: RequestOptions): Record<string, string> {
  const headers: Record<string, string> = {}
  for (const [name, value] of Object.entries(options.headers ?? {})) {
    // A token file usually ends in a newline, which no header may contain.
    if (typeof value === 'string') headers[name] = value.trim()
  }
  if (typeof options.auth === 'string' && headers['Authorization'] === undefined) {
    headers['Authorization'] = `Basic ${Buffer.from(options.auth).toString('base64')}`
  }
  return headers
}

function fingerprintOf(options: RequestOptions): string {
  const hash = createHash('sha256')
  for (const part of [options.ca, options.cert, options.key, options.servername, options.rejectUnauthorized]) {
    const text = Buffer.isBuffer(part) ? part.toString('base64') : JSON.stringify(part ?? null)
    hash.update(`${text.length}:${text}`)
  }
  return hash.digest('hex')
}

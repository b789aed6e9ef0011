// A Kubernetes API in this process, over real HTTP on loopback, for tests and the demo. It does what suite.ts shows of it
// and of a real API server, and no more: no other kinds, no controllers, no authorization, no schemas of its own.
import { writeFile } from 'node:fs/promises'
import { createServer, type Server } from 'node:http'
import { once } from 'node:events'
import type { AddressInfo, Socket } from 'node:net'
import { Faults } from './faults.ts'
import type { Json, Stored } from './json.ts'
import { customKind, eventKind, namespaceKind, secretKind, type CustomKind, type ServedKind } from './kinds.ts'
import { Lists } from './lists.ts'
import { Registry, idOf } from './registry.ts'
import { handleRequest } from './server.ts'
import { Storage } from './storage.ts'
import { Watches } from './watches.ts'

export type { FieldProblem } from './api-error.ts'
export type { Failure } from './faults.ts'
export type { Json } from './json.ts'
export type { Column, CustomKind } from './kinds.ts'

export interface KubeApiOptions {
  /** Custom resources to serve; more by {@link KubeApi.register}. */
  readonly kinds?: readonly CustomKind[]
  /** The bearer token that requests must carry; default: none is asked for. */
  readonly token?: string
  /** Time between bookmarks, milliseconds; default one minute, as a real server. */
  readonly bookmarkEveryMs?: number
}

export interface SeenRequest {
  readonly method: string
  /** Path and query. */
  readonly url: string
}

const maxRequestsKept = 10_000

export class KubeApi {
  /** What can go wrong on purpose. */
  readonly faults = new Faults()
  /** The requests since the start, in order; after ten thousand the oldest are forgotten. */
  readonly requests: SeenRequest[] = []
  /** Connections accepted since the start. */
  connectionsAccepted = 0
  token: string | undefined
  readonly #storage = new Storage()
  readonly #lists = new Lists()
  readonly #registry = new Registry(this.#storage)
  readonly #watches: Watches
  readonly #kinds: ServedKind[] = [namespaceKind, secretKind, eventKind]
  readonly #sockets = new Set<Socket>()
  #server: Server | undefined
  #port = 0

  constructor(options: KubeApiOptions = {}) {
    this.token = options.token
    const faults = { swallow: () => this.faults.takeSwallowed(), stalled: () => this.faults.watchesStalled }
    this.#watches = new Watches(this.#storage, faults, options.bookmarkEveryMs ?? 60_000)
    for (const name of ['default', 'kube-system']) {
      this.#registry.create(namespaceKind, undefined, { apiVersion: 'v1', kind: 'Namespace', metadata: { name } })
    }
    for (const kind of options.kinds ?? []) this.register(kind)
  }

  /** Serves a custom resource, as a CustomResourceDefinition makes a real server do. */
  register(kind: CustomKind): void {
    this.#kinds.push(customKind(kind))
  }

  get url(): string {
    return `http://127.0.0.1:${this.#port}`
  }

  /** Watches that are open now. */
  get openWatches(): number {
    return this.#watches.size
  }

  /** Connections that are open now. */
  get openConnections(): number {
    return this.#sockets.size
  }

  /** Objects of a kind as stored now, for assertions on the state of the world. */
  stored(kind: { readonly group: string; readonly plural: string }): readonly Stored[] {
    const served = this.#kinds.find((one) => one.group === kind.group && one.plural === kind.plural)
    return served === undefined ? [] : structuredClone(this.#storage.list(idOf(served)))
  }

  /** Listens on a free port; after {@link stop}, on the same one again, with everything still stored. */
  async start(): Promise<void> {
    const server = createServer((request, response) => {
      if (this.requests.length >= maxRequestsKept) this.requests.splice(0, maxRequestsKept / 2)
      this.requests.push({ method: request.method ?? '', url: request.url ?? '' })
      void handleRequest(
        {
          kinds: () => this.#kinds,
          registry: this.#registry,
          storage: this.#storage,
          lists: this.#lists,
          watches: this.#watches,
          faults: this.faults,
          token: () => this.token,
        },
        request,
        response,
      )
    })
    server.on('connection', (socket) => {
      this.connectionsAccepted++
      this.#sockets.add(socket)
      socket.once('close', () => this.#sockets.delete(socket))
    })
    server.listen(this.#port, '127.0.0.1')
    await once(server, 'listening')
    this.#port = (server.address() as AddressInfo).port
    this.#server = server
  }

  /** Stops listening and cuts every connection. */
  async stop(): Promise<void> {
    const server = this.#server
    if (server === undefined) return
    this.#server = undefined
    const closed = once(server, 'close')
    server.close()
    for (const socket of this.#sockets) socket.destroy()
    await closed
  }

  /** Cuts the connections of all watches. */
  dropWatches(): void {
    this.#watches.drop()
  }

  /** Tells every watch that asked for bookmarks how far it is. */
  sendBookmarks(): void {
    this.#watches.bookmark()
  }

  /** Forgets all history and the snapshots of lists: watches from before and continue tokens are refused as expired. */
  compact(): void {
    this.#storage.compact()
    this.#lists.forget()
  }

  /** A kubeconfig for this server. TLS verification is off because plain HTTP is refused by some clients otherwise. */
  kubeconfig(): string {
    const config: Json = {
      apiVersion: 'v1',
      kind: 'Config',
      clusters: [{ name: 'in-process', cluster: { server: this.url, 'insecure-skip-tls-verify': true } }],
      users: [{ name: 'user', user: this.token === undefined ? {} : { token: this.token } }],
      contexts: [{ name: 'in-process', context: { cluster: 'in-process', user: 'user' } }],
      'current-context': 'in-process',
    }
    return JSON.stringify(config, undefined, 2)
  }

  async writeKubeconfig(file: string): Promise<void> {
    await writeFile(file, this.kubeconfig(), { mode: 0o600 })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop()
  }
}

/** A server that listens. */
export async function startKubeApi(options?: KubeApiOptions): Promise<KubeApi> {
  const api = new KubeApi(options)
  await api.start()
  return api
}

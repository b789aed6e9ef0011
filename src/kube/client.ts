// Typed requests to the Kubernetes API: one method per verb, each with a budget; no cache, no retry, no kind of its own.
import { KubeConfig } from '@kubernetes/client-node'
import { abortReason, systemClock, type Clock } from '../lib/clock.ts'
import { DeadlineError, deadline } from '../lib/deadline.ts'
import { errorMessage } from '../lib/errors.ts'
import { KubeError, isExpired } from './errors.ts'
import { apiVersionOf, resourcePath, type KubeObject, type NewObject } from './object.ts'
import type { ObjectRef, Resource, ResourceType } from './object.ts'
import type { CompleteList, DeleteOptions, ListOptions, Patch, ResourceList, WatchOptions } from './requests.ts'
import { failure, parseJson, parseList, readText } from './response.ts'
import { UndiciTransport, type KubeRequest, type KubeTransport } from './transport.ts'
import { parseWatchLine, splitLines, type WatchEvent } from './watch-stream.ts'

export * from './errors.ts'
export * from './object.ts'
export type * from './requests.ts'
export type { WatchEvent } from './watch-stream.ts'

export interface ClientOptions {
  readonly clock?: Clock
  /** Budget of one request, milliseconds; default 30 s. A watch has it for its headers only. */
  readonly requestTimeoutMs?: number
  /** Most connections at a time, default 16. */
  readonly maxConnections?: number
}

/** What client-node takes for a cluster where it finds no kubeconfig at all; nothing could be authenticated there. */
const lastResort = 'http://localhost:8080'

/**
 * Every method rejects with a {@link KubeError}, or with the signal's reason when the caller aborted. The type parameter
 * says what the caller expects of the server; nothing here checks it.
 */
export class KubeClient {
  /** What the requests are authenticated by; undefined for a client on another transport. */
  readonly kubeConfig: KubeConfig | undefined
  readonly #transport: KubeTransport
  readonly #clock: Clock
  readonly #requestTimeoutMs: number

  constructor(transport: KubeTransport, options: ClientOptions = {}, kubeConfig?: KubeConfig) {
    this.#transport = transport
    this.#clock = options.clock ?? systemClock
    this.#requestTimeoutMs = options.requestTimeoutMs ?? 30_000
    this.kubeConfig = kubeConfig
  }

  /** `KUBECONFIG`, `~/.kube/config`, then the Pod's service account. @throws KubeError `KUBE_CONFIG` */
  static fromDefault(options: ClientOptions = {}): KubeClient {
    return this.#load((config) => {
      config.loadFromDefault()
      if (config.getCurrentCluster()?.server !== lastResort) return
      throw new Error('there is none: neither $KUBECONFIG, nor ~/.kube/config, nor the service account of a Pod')
    }, options)
  }

  /** @param source a file, or the kubeconfig itself as text */
  static fromKubeconfig(source: { file: string } | { text: string }, options: ClientOptions = {}): KubeClient {
    return this.#load((config) => {
      if ('file' in source) config.loadFromFile(source.file)
      else config.loadFromString(source.text)
    }, options)
  }

  static #load(load: (config: KubeConfig) => void, options: ClientOptions): KubeClient {
    const kubeConfig = new KubeConfig()
    try {
      load(kubeConfig)
    } catch (cause) {
      const message = `the kubeconfig cannot be used: ${errorMessage(cause)}`
      throw new KubeError(message, { code: 'KUBE_CONFIG', status: 0, reason: 'Config', cause })
    }
    const transport = new UndiciTransport({ kubeConfig, maxConnections: options.maxConnections ?? 16 })
    return new KubeClient(transport, options, kubeConfig)
  }

  async get<T extends Resource = KubeObject>(type: ResourceType, ref: ObjectRef, signal?: AbortSignal): Promise<T> {
    return (await this.#call('GET', resourcePath(type, ref), signal)) as T
  }

  async list<T extends Resource = KubeObject>(
    type: ResourceType,
    options: ListOptions = {},
    signal?: AbortSignal,
  ): Promise<ResourceList<T>> {
    const query = {
      labelSelector: options.labelSelector,
      fieldSelector: options.fieldSelector,
      limit: options.limit,
      continue: options.continue,
      resourceVersion: options.resourceVersion,
    }
    const path = withQuery(resourcePath(type, { namespace: options.namespace }), query)
    return parseList(type, await this.#call('GET', path, signal), `GET ${path}`)
  }

  /**
   * All pages. When the server forgot the snapshot between two pages, the list is read again in one piece.
   * @param options.limit objects per page, default 500
   */
  async listAll<T extends Resource = KubeObject>(
    type: ResourceType,
    options: Omit<ListOptions, 'continue'> = {},
    signal?: AbortSignal,
  ): Promise<CompleteList<T>> {
    const items: T[] = []
    let token: string | undefined
    try {
      for (;;) {
        const page: ResourceList<T> = await this.list<T>(
          type,
          { ...options, limit: options.limit ?? 500, continue: token },
          signal,
        )
        items.push(...page.items)
        token = page.continue
        if (token === undefined) return { resourceVersion: page.resourceVersion, items }
      }
    } catch (error) {
      if (token === undefined || !isExpired(error)) throw error
      const { resourceVersion, items: all } = await this.list<T>(type, { ...options, limit: undefined }, signal)
      return { resourceVersion, items: all }
    }
  }

  /** The namespace is the object's own. */
  async create<T extends Resource = KubeObject>(
    type: ResourceType,
    object: NewObject,
    signal?: AbortSignal,
  ): Promise<T> {
    const path = resourcePath(type, { namespace: object.metadata.namespace })
    return (await this.#call('POST', path, signal, complete(type, object))) as T
  }

  /** PUT of everything but the status. The object's resourceVersion decides whether it wins. */
  async replace<T extends Resource = KubeObject>(type: ResourceType, object: T, signal?: AbortSignal): Promise<T> {
    return (await this.#call('PUT', resourcePath(type, object.metadata), signal, complete(type, object))) as T
  }

  /** PUT of the status alone; everything else of the object but its resourceVersion and UID is ignored by the server. */
  async replaceStatus<T extends Resource = KubeObject>(
    type: ResourceType,
    object: T,
    signal?: AbortSignal,
  ): Promise<T> {
    return (await this.#call('PUT', resourcePath(type, object.metadata, 'status'), signal, complete(type, object))) as T
  }

  async patch<T extends Resource = KubeObject>(
    type: ResourceType,
    ref: ObjectRef,
    patch: Patch,
    options: { readonly subresource?: 'status'; readonly signal?: AbortSignal | undefined } = {},
  ): Promise<T> {
    const path = resourcePath(type, ref, options.subresource)
    const [mediaType, body] =
      patch.kind === 'merge'
        ? ['application/merge-patch+json', patch.body]
        : ['application/json-patch+json', patch.operations]
    return (await this.#call('PATCH', path, options.signal, body, mediaType)) as T
  }

  /** Merge patch of the status. `resourceVersion`, when given, must still be the object's. */
  async patchStatus<T extends Resource = KubeObject>(
    type: ResourceType,
    ref: ObjectRef & { readonly resourceVersion?: string },
    status: unknown,
    signal?: AbortSignal,
  ): Promise<T> {
    const guard = ref.resourceVersion === undefined ? {} : { metadata: { resourceVersion: ref.resourceVersion } }
    return await this.patch<T>(
      type,
      ref,
      { kind: 'merge', body: { ...guard, status } },
      { subresource: 'status', signal },
    )
  }

  /** Resolves when the server accepted the deletion: with finalizers left, the object is still there. */
  async delete(type: ResourceType, ref: ObjectRef, options: DeleteOptions = {}, signal?: AbortSignal): Promise<void> {
    const { uid, resourceVersion, propagationPolicy } = options
    const preconditions = {
      ...(uid !== undefined && { uid }),
      ...(resourceVersion !== undefined && { resourceVersion }),
    }
    await this.#call('DELETE', resourcePath(type, ref), signal, {
      apiVersion: 'v1',
      kind: 'DeleteOptions',
      ...(Object.keys(preconditions).length > 0 && { preconditions }),
      ...(propagationPolicy !== undefined && { propagationPolicy }),
    })
  }

  /**
   * Events until the server ends the watch (the iterator finishes), the connection breaks (it throws), or the signal
   * aborts (it throws the reason). An in-stream ERROR is an event, after which servers end the watch. Nothing here
   * notices a silent connection: whoever watches has the timer.
   */
  async *watch<T extends Resource = KubeObject>(
    type: ResourceType,
    options: WatchOptions,
    signal: AbortSignal,
  ): AsyncGenerator<WatchEvent<T>, void, undefined> {
    const path = withQuery(resourcePath(type, { namespace: options.namespace }), {
      watch: 'true',
      labelSelector: options.labelSelector,
      resourceVersion: options.resourceVersion,
      allowWatchBookmarks: options.allowWatchBookmarks === true ? 'true' : undefined,
      timeoutSeconds: options.timeoutSeconds,
    })
    const what = `WATCH ${path}`
    const cut = new AbortController()
    const onAbort = () => cut.abort(abortReason(signal))
    if (signal.aborted) throw abortReason(signal)
    signal.addEventListener('abort', onAbort, { once: true })
    const headers = this.#clock.after(this.#requestTimeoutMs, () =>
      cut.abort(new DeadlineError(what, this.#requestTimeoutMs)),
    )
    try {
      const response = await this.#transport.send({ method: 'GET', path, headers: jsonHeaders() }, cut.signal)
      if (response.status !== 200) throw await failure(what, response)
      headers.cancel()
      for await (const line of splitLines(response.body, what)) yield parseWatchLine<T>(line, what)
    } catch (error) {
      throw translate(error, what, cut.signal, signal)
    } finally {
      headers.cancel()
      signal.removeEventListener('abort', onAbort)
    }
  }

  /** Ends every connection. Requests in flight fail with `KUBE_UNREACHABLE`. */
  async close(): Promise<void> {
    await this.#transport.close()
  }

  async #call(
    method: KubeRequest['method'],
    path: string,
    signal: AbortSignal | undefined,
    body?: unknown,
    mediaType?: string,
  ): Promise<unknown> {
    const what = `${method} ${path}`
    using budget = deadline(this.#clock, what, this.#requestTimeoutMs, signal)
    try {
      if (budget.signal.aborted) throw abortReason(budget.signal)
      const response = await this.#transport.send(
        {
          method,
          path,
          headers: jsonHeaders(body === undefined ? undefined : (mediaType ?? 'application/json')),
          ...(body !== undefined && { body: JSON.stringify(body) }),
        },
        budget.signal,
      )
      if (response.status < 200 || response.status > 299) throw await failure(what, response)
      const text = await readText(response.body, what)
      return parseJson(text, what)
    } catch (error) {
      throw translate(error, what, budget.signal, signal)
    }
  }
}

/** An abort surfaces as many errors; the signals say what really ended the request. */
function translate(error: unknown, what: string, own: AbortSignal, callers: AbortSignal | undefined): Error {
  if (error instanceof KubeError) return error
  if (callers?.aborted === true) return abortReason(callers)
  return KubeError.from(own.aborted ? abortReason(own) : error, what)
}

function complete(type: ResourceType, object: object): object {
  return { ...object, apiVersion: apiVersionOf(type), kind: type.kind }
}

function jsonHeaders(contentType?: string): Record<string, string> {
  return {
    accept: 'application/json',
    'user-agent': 'egress-proxies-operator',
    ...(contentType !== undefined && { 'content-type': contentType }),
  }
}

function withQuery(path: string, query: Record<string, string | number | undefined>): string {
  const parameters = new URLSearchParams()
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== '') parameters.set(name, String(value))
  }
  return parameters.size === 0 ? path : `${path}?${parameters.toString()}`
}

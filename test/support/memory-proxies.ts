// Proxy objects as an API server keeps them, in memory and without HTTP, for tests that move the clock by hand.
import { apiVersion, proxyFinalizer } from '../../src/api/group.ts'
import { proxySpecSchema, type Proxy, type ProxySpecInput, type ProxyStatus } from '../../src/api/proxy.ts'
import { KubeError } from '../../src/kube/errors.ts'
import { keyOf, type ObjectRef } from '../../src/kube/object.ts'
import { Store } from '../../src/kube/store.ts'
import type { JsonObject } from '../../src/reconcile/merge-patch.ts'
import type { ProxyApi } from '../../src/reconcile/ports.ts'

export class MemoryProxies {
  /** What is stored now. */
  readonly objects = new Map<string, Proxy>()
  /** While true nobody is told of changes: a watch that lags. */
  lagging = false
  /** Set: every request fails with it. */
  failure: KubeError | undefined
  /** Status writes that changed something. */
  statusWrites = 0
  /** Requests so far, of all processes. */
  requests = 0
  /** Calls `crash` at that request: before it takes effect, or after it and before its answer. */
  crashPoint: { readonly request: number; readonly when: 'before' | 'after'; readonly crash: () => void } | undefined
  #version = 100
  #uid = 0
  readonly #watchers = new Set<() => void>()

  apply(name: string, spec: ProxySpecInput, annotations?: Record<string, string>): Proxy {
    const key = `default/${name}`
    const old = this.objects.get(key)
    const parsed = proxySpecSchema.parse(spec)
    const changed = JSON.stringify(old?.spec) !== JSON.stringify(parsed)
    const metadata = {
      ...(old?.metadata ?? { name, namespace: 'default', uid: `uid-${++this.#uid}` }),
      resourceVersion: this.#next(),
      generation: (old?.metadata.generation ?? 0) + (changed ? 1 : 0),
      ...(annotations === undefined ? {} : { annotations }),
    }
    return this.#put({ ...(old ?? { apiVersion, kind: 'Proxy' }), metadata, spec: parsed })
  }

  /** As `kubectl delete`: the object stays while it has finalizers. */
  delete(name: string): void {
    const proxy = this.read(`default/${name}`)
    const deletionTimestamp = proxy.metadata.deletionTimestamp ?? '2026-01-01T00:00:00Z'
    this.#finalize({ ...proxy, metadata: { ...proxy.metadata, resourceVersion: this.#next(), deletionTimestamp } })
  }

  /** Somebody else's finalizer is added. */
  guard(name: string, finalizer: string): void {
    const proxy = this.read(`default/${name}`)
    const finalizers = [...(proxy.metadata.finalizers ?? []), finalizer]
    this.#put({ ...proxy, metadata: { ...proxy.metadata, resourceVersion: this.#next(), finalizers } })
  }

  /** Somebody removes the finalizers by hand, and the object with them. */
  forceDelete(name: string): void {
    this.objects.delete(`default/${name}`)
    this.#tell()
  }

  read(key: string): Proxy {
    const proxy = this.objects.get(key)
    if (proxy === undefined) throw new Error(`no Proxy ${key}`)
    return proxy
  }

  status(name: string): ProxyStatus {
    return this.read(`default/${name}`).status ?? {}
  }

  /** @param alive once false, requests of this process never end */
  api(alive: () => boolean): ProxyApi {
    const request = async <T>(work: () => T): Promise<T> => {
      await Promise.resolve()
      if (!alive()) await new Promise<never>(() => undefined)
      const { crashPoint } = this
      const here = crashPoint?.request === ++this.requests ? crashPoint : undefined
      if (here?.when === 'before') {
        here.crash()
        await new Promise<never>(() => undefined)
      }
      if (this.failure !== undefined) throw this.failure
      const answer = work()
      here?.crash()
      await Promise.resolve()
      if (!alive()) await new Promise<never>(() => undefined)
      return answer
    }
    return {
      get: (ref) => request(() => this.#find(ref)),
      list: () => request(() => [...this.objects.values()]),
      patchStatus: (proxy, patch) => request(() => this.#patchStatus(proxy, patch)),
      patchFinalizers: (proxy, finalizers) =>
        request(() => {
          const present = this.#current(proxy)
          const metadata = { ...present.metadata, resourceVersion: this.#next(), finalizers: [...finalizers] }
          return this.#finalize({ ...present, metadata })
        }),
    }
  }

  /** A store kept as a reflector keeps it. @returns it, and how to end that */
  reflect(onEvent: (key: string) => void): { readonly store: Store<Proxy>; readonly end: () => void } {
    const store = new Store<Proxy>({
      onListenerError: (error) => {
        throw error
      },
    })
    store.onChange(({ object }) => onEvent(keyOf(object.metadata)))
    const watcher = () => {
      if (!this.lagging) store.replaceAll([...this.objects.values()].map((proxy) => structuredClone(proxy)))
    }
    this.#watchers.add(watcher)
    watcher()
    return { store, end: () => this.#watchers.delete(watcher) }
  }

  /** The watch catches up. */
  deliver(): void {
    this.lagging = false
    this.#tell()
  }

  #patchStatus(proxy: Proxy, patch: JsonObject): Proxy {
    const present = this.#current(proxy)
    this.statusWrites++
    const status = merge(present.status ?? {}, patch) as ProxyStatus
    return this.#put({ ...present, metadata: { ...present.metadata, resourceVersion: this.#next() }, status })
  }

  #current(proxy: Proxy): Proxy {
    const present = this.#find(proxy.metadata)
    if (present.metadata.resourceVersion === proxy.metadata.resourceVersion) return present
    throw new KubeError('the object has been modified', { code: 'KUBE_CONFLICT', status: 409, reason: 'Conflict' })
  }

  #find(ref: ObjectRef): Proxy {
    const proxy = this.objects.get(keyOf(ref))
    if (proxy !== undefined) return structuredClone(proxy)
    throw new KubeError('not found', { code: 'KUBE_NOT_FOUND', status: 404, reason: 'NotFound' })
  }

  #finalize(proxy: Proxy): Proxy {
    const { deletionTimestamp, finalizers = [] } = proxy.metadata
    if (deletionTimestamp === undefined || finalizers.length > 0) return this.#put(proxy)
    this.objects.delete(keyOf(proxy.metadata))
    this.#tell()
    return structuredClone(proxy)
  }

  #put(proxy: Proxy): Proxy {
    this.objects.set(keyOf(proxy.metadata), structuredClone(proxy))
    this.#tell()
    return structuredClone(proxy)
  }

  #tell(): void {
    for (const watcher of [...this.#watchers]) watcher()
  }

  #next(): string {
    return String(++this.#version)
  }
}

export function isGuarded(proxy: Proxy): boolean {
  return proxy.metadata.finalizers?.includes(proxyFinalizer) === true
}

/** RFC 7386. */
function merge(target: unknown, patch: unknown): unknown {
  if (typeof patch !== 'object' || patch === null || Array.isArray(patch)) return patch
  const isObject = typeof target === 'object' && target !== null && !Array.isArray(target)
  const result: Record<string, unknown> = isObject ? { ...target } : {}
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) Reflect.deleteProperty(result, key)
    else result[key] = merge(result[key], value)
  }
  return result
}

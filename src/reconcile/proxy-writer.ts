// The one writer of Proxy objects: their status, and our finalizer. What to write is decided elsewhere.
import { proxyFinalizer } from '../api/group.ts'
import type { Proxy, ProxyStatus } from '../api/proxy.ts'
import { isConflict, isNotFound } from '../kube/errors.ts'
import { keyOf, refOfKey } from '../kube/object.ts'
import { KeyedMutex } from '../lib/keyed-mutex.ts'
import type { Intent } from '../provider/contract.ts'
import { mergePatch } from './merge-patch.ts'
import type { ProxyApi, ProxyReader } from './ports.ts'

export interface ProxyWriterOptions {
  readonly api: ProxyApi
  readonly store: ProxyReader
  /** Wall clock, milliseconds since the epoch. */
  readonly now: () => number
  /** Whether this process may still act: the lease is held. */
  readonly mayMutate: () => boolean
}

export type WriteResult =
  | { readonly kind: 'written'; readonly proxy: Proxy }
  | { readonly kind: 'unchanged'; readonly proxy: Proxy }
  /** Somebody wrote in between: decide again on what is there now. */
  | { readonly kind: 'stale' }

/** An intent cannot be recorded, so what it announces must not be done. */
export class RecordRefusedError extends Error {
  override readonly name = 'RecordRefusedError'
  readonly code = 'RECORD_REFUSED'
}

/** Attempts to append an intent while others write the same object. */
const recordAttempts = 10

/**
 * Writes of one object wait for each other. Every write carries the resourceVersion it was made from, so a second
 * replica or a person's edit is never overwritten. What was written is seen by {@link newest} before the watch tells it.
 */
export class ProxyWriter {
  readonly #options: ProxyWriterOptions
  readonly #mutex = new KeyedMutex()
  /** By key, what is known to be newer than the store. */
  readonly #ahead = new Map<string, Proxy>()

  constructor(options: ProxyWriterOptions) {
    this.#options = options
  }

  /** The newest version known; undefined when there is no such object. */
  newest(key: string): Proxy | undefined {
    const stored = this.#options.store.get(key)
    const ahead = this.#ahead.get(key)
    if (ahead === undefined) return stored
    // the store has the last word on what exists, and on which object it is
    if (stored?.metadata.uid !== ahead.metadata.uid || !isNewer(ahead, stored)) {
      this.#ahead.delete(key)
      return stored
    }
    return ahead
  }

  /** Makes `status` the status of `proxy`, unless the object has changed since that version. */
  async writeStatus(proxy: Proxy, status: ProxyStatus, signal?: AbortSignal): Promise<WriteResult> {
    const key = keyOf(proxy.metadata)
    return await this.#mutex.run(
      key,
      async () => {
        const newest = this.newest(key)
        if (newest?.metadata.resourceVersion !== proxy.metadata.resourceVersion) return { kind: 'stale' }
        return await this.#patchStatus(proxy, status, signal)
      },
      signal,
    )
  }

  /**
   * Adds an intent to the status.
   * @throws RecordRefusedError when the object is gone, another one, being deleted, or the lease is lost
   */
  async record(key: string, uid: string, intent: Intent): Promise<void> {
    await this.#mutex.run(key, async () => {
      for (let attempt = 0; attempt < recordAttempts; attempt++) {
        if (!this.#options.mayMutate()) throw new RecordRefusedError('this process no longer holds the lease')
        // after a conflict the store may lag: the API server is asked itself
        const proxy = attempt === 0 ? this.newest(key) : await this.#read(key)
        refuseUnlessOurs(proxy, uid)
        const status = proxy.status ?? {}
        if (status.intents?.some((known) => known.target === intent.target && known.vmid === intent.vmid)) return
        const at = new Date(this.#options.now()).toISOString()
        const intents = [...(status.intents ?? []), { ...intent, at }]
        const result = await this.#patchStatus(proxy, { ...status, intents })
        if (result.kind !== 'stale') return
      }
      throw new RecordRefusedError('the object is being written by others all the time')
    })
  }

  async addFinalizer(proxy: Proxy, signal?: AbortSignal): Promise<WriteResult> {
    return await this.#setFinalizers(proxy, [...(proxy.metadata.finalizers ?? []), proxyFinalizer], signal)
  }

  async removeFinalizer(proxy: Proxy, signal?: AbortSignal): Promise<WriteResult> {
    const others = (proxy.metadata.finalizers ?? []).filter((finalizer) => finalizer !== proxyFinalizer)
    return await this.#setFinalizers(proxy, others, signal)
  }

  async #setFinalizers(proxy: Proxy, finalizers: string[], signal?: AbortSignal): Promise<WriteResult> {
    const key = keyOf(proxy.metadata)
    const write = () => this.#guarded(key, () => this.#options.api.patchFinalizers(proxy, finalizers, signal))
    return await this.#mutex.run(key, write, signal)
  }

  async #patchStatus(proxy: Proxy, status: ProxyStatus, signal?: AbortSignal): Promise<WriteResult> {
    const patch = mergePatch(proxy.status ?? {}, status)
    if (patch === undefined) return { kind: 'unchanged', proxy }
    const key = keyOf(proxy.metadata)
    return await this.#guarded(key, () => this.#options.api.patchStatus(proxy, patch, signal))
  }

  /** A conflict is an outcome, and what the server has now is remembered, so that the next decision is made on it. */
  async #guarded(key: string, write: () => Promise<Proxy>): Promise<WriteResult> {
    try {
      const proxy = await write()
      this.#ahead.set(key, proxy)
      return { kind: 'written', proxy }
    } catch (error) {
      if (isNotFound(error)) return { kind: 'stale' }
      if (!isConflict(error)) throw error
      const present = await this.#read(key)
      if (present !== undefined) this.#ahead.set(key, present)
      return { kind: 'stale' }
    }
  }

  async #read(key: string): Promise<Proxy | undefined> {
    try {
      return await this.#options.api.get(refOfKey(key))
    } catch (error) {
      if (isNotFound(error)) return undefined
      throw error
    }
  }
}

function refuseUnlessOurs(proxy: Proxy | undefined, uid: string): asserts proxy is Proxy {
  if (proxy === undefined) throw new RecordRefusedError('the Proxy is gone')
  if (proxy.metadata.uid !== uid) throw new RecordRefusedError('the name belongs to another Proxy now')
  if (proxy.metadata.deletionTimestamp !== undefined) throw new RecordRefusedError('the Proxy is being deleted')
}

/** Kubernetes: resource versions of one kind compare as decimal numbers (KEP-5504). Anything else is taken for older. */
function isNewer(a: Proxy, b: Proxy): boolean {
  const decimal = /^[0-9]+$/
  const [x, y] = [a.metadata.resourceVersion, b.metadata.resourceVersion]
  return decimal.test(x) && decimal.test(y) && BigInt(x) > BigInt(y)
}

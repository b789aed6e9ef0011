// Writes of status and finalizers that meet other writers: read, change, write, and on a conflict again; no cache, no policy.
import { isDeepStrictEqual } from 'node:util'
import { backoffDelayMs, type BackoffPolicy, type Random } from '../lib/backoff.ts'
import { sleep, type Clock } from '../lib/clock.ts'
import type { KubeClient } from './client.ts'
import { KubeError, isConflict, isNotFound, isUidChanged } from './errors.ts'
import { keyOf, type Resource, type ResourceType, type UidRef } from './object.ts'

export interface ObjectWriterOptions {
  readonly client: Pick<KubeClient, 'get' | 'replaceStatus' | 'patch'>
  readonly clock: Clock
  readonly random: Random
}

export interface WriteOptions<T> {
  readonly signal?: AbortSignal | undefined
  /** A copy that is probably current, from a store: saves the first read. When it is old, a conflict leads to a read. */
  readonly cached?: T | undefined
}

/** A kind whose status this writes. */
export interface WithStatus extends Resource {
  readonly status?: unknown
}

/** Attempts against a steady stream of other writers; the last conflict is then thrown. */
const maxAttempts = 10
const conflictBackoff: BackoffPolicy = { baseMs: 10, maxMs: 1000, jitter: 0.5 }

/** Every method rejects with a {@link KubeError}, the signal's reason, or what `mutate` threw; nothing is swallowed. */
export class ObjectWriter {
  readonly #client: ObjectWriterOptions['client']
  readonly #clock: Clock
  readonly #random: Random

  constructor(options: ObjectWriterOptions) {
    this.#client = options.client
    this.#clock = options.clock
    this.#random = options.random
  }

  /**
   * Sets the whole status to what `mutate` makes of the object. `mutate` runs again after each conflict, must not change
   * its argument, and may throw to give up. Returning undefined, or a status equal to the present one, writes nothing.
   * @returns the object as it is then
   * @throws KubeError `KUBE_UID_CHANGED` when the name belongs to another object, `KUBE_NOT_FOUND` when to none
   */
  async updateStatus<T extends WithStatus>(
    type: ResourceType,
    ref: UidRef,
    mutate: (fresh: T) => T['status'] | undefined,
    options: WriteOptions<T> = {},
  ): Promise<T> {
    return await this.#retry(type, ref, options, async (object, isFresh) => {
      const status = mutate(object)
      if (status === undefined || isDeepStrictEqual(withoutUndefined(status), object.status)) {
        return isFresh ? object : undefined
      }
      return await this.#client.replaceStatus<T>(type, { ...object, status }, options.signal)
    })
  }

  /**
   * Adds the finalizer. An object that is being deleted takes no new one: it is returned as it is.
   * @throws KubeError as {@link updateStatus}
   */
  async ensureFinalizer<T extends Resource>(
    type: ResourceType,
    ref: UidRef,
    finalizer: string,
    options: WriteOptions<T> = {},
  ): Promise<T> {
    return await this.#retry(type, ref, options, async (object) => {
      const present = object.metadata.finalizers ?? []
      if (object.metadata.deletionTimestamp !== undefined || present.includes(finalizer)) return object
      return await this.#patchFinalizers(type, object, [...present, finalizer], options.signal)
    })
  }

  /**
   * Removes the finalizer, after which the server may remove the object.
   * @returns the object; undefined when it, that UID, is no longer there
   */
  async removeFinalizer<T extends Resource>(
    type: ResourceType,
    ref: UidRef,
    finalizer: string,
    options: WriteOptions<T> = {},
  ): Promise<T | undefined> {
    try {
      return await this.#retry(type, ref, options, async (object, isFresh) => {
        const present = object.metadata.finalizers ?? []
        if (!present.includes(finalizer)) return isFresh ? object : undefined
        const rest = present.filter((other) => other !== finalizer)
        return await this.#patchFinalizers(type, object, rest, options.signal)
      })
    } catch (error) {
      if (isNotFound(error) || isUidChanged(error)) return undefined
      throw error
    }
  }

  /** The list is replaced as a whole, so the patch carries the version of the object it was made from. */
  async #patchFinalizers<T extends Resource>(
    type: ResourceType,
    object: T,
    finalizers: readonly string[],
    signal: AbortSignal | undefined,
  ): Promise<T> {
    const { uid, resourceVersion } = object.metadata
    const body = { metadata: { uid, resourceVersion, finalizers } }
    return await this.#client.patch<T>(type, object.metadata, { kind: 'merge', body }, { signal })
  }

  /** An attempt that finds nothing to do in a cached copy returns undefined: what the server has decides that. */
  async #retry<T extends Resource>(
    type: ResourceType,
    ref: UidRef,
    options: WriteOptions<T>,
    attempt: (object: T, isFresh: boolean) => Promise<T | undefined>,
  ): Promise<T> {
    let cached = options.cached?.metadata.uid === ref.uid ? options.cached : undefined
    for (let attempts = 1; ; attempts++) {
      const object = cached ?? (await this.#client.get<T>(type, ref, options.signal))
      if (object.metadata.uid !== ref.uid) {
        throw KubeError.uidChanged(`${type.kind} ${keyOf(ref)}`, ref.uid, object.metadata.uid)
      }
      try {
        const written = await attempt(object, cached === undefined)
        if (written !== undefined) return written
      } catch (error) {
        if (!isConflict(error) || attempts >= maxAttempts) throw error
        await sleep(this.#clock, backoffDelayMs(conflictBackoff, attempts - 1, this.#random), options.signal)
      }
      cached = undefined
    }
  }
}

/** What the status is once it has been through JSON, so that an absent field equals an undefined one. */
function withoutUndefined(status: unknown): unknown {
  return JSON.parse(JSON.stringify(status)) as unknown
}

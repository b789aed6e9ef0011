// Keeps a store equal to what the API server has, by list and watch, whatever happens to either; it never gives up and never throws.
import { backoffDelayMs, type BackoffPolicy, type Random } from '../lib/backoff.ts'
import { sleep, type Clock } from '../lib/clock.ts'
import { errorMessage, toError } from '../lib/errors.ts'
import { exhaustive } from '../lib/exhaustive.ts'
import type { Logger } from '../observe/logger.ts'
import type { KubeClient } from './client.ts'
import { KubeError, isExpired } from './errors.ts'
import { keyOf, typeId, type Resource, type ResourceType } from './object.ts'
import { auditStore } from './reflector-audit.ts'
import { Store, type StoreReader } from './store.ts'

export type EventKind = 'added' | 'modified' | 'deleted'

/** Why the objects were listed (again). */
export type ListReason = 'start' | 'expired' | 'stalled' | 'missed'

/** Hooks for metrics. */
export interface ReflectorMetrics {
  listed(reason: ListReason): void
  /** Deletions that no watch told, found by a list after a gap. */
  deletedInGap(objects: number): void
  /** Changes that an open watch should have told, found only by the periodic list. */
  missed(objects: number): void
}

export interface ReflectorTiming {
  /** The server is asked to end a watch after 1 to 1.5 times this. Bookmarks come about once a minute. */
  readonly watchTimeoutMs: number
  /** A watch that is silent this much longer than its server timeout is taken for dead. */
  readonly stallSlackMs: number
  /** Time between two lists that check what the watch told. */
  readonly relistEveryMs: number
  /** How far a watch may be behind a list before it counts as having missed something. */
  readonly relistGraceMs: number
  readonly backoff: BackoffPolicy
  /** Objects per page of a list. */
  readonly pageSize: number
}

export const defaultReflectorTiming: ReflectorTiming = {
  watchTimeoutMs: 180_000,
  stallSlackMs: 10_000,
  relistEveryMs: 600_000,
  relistGraceMs: 5_000,
  backoff: { baseMs: 500, maxMs: 30_000, jitter: 0.5 },
  pageSize: 500,
}

export interface ReflectorOptions<T extends Resource> {
  readonly client: Pick<KubeClient, 'listAll' | 'watch'>
  readonly type: ResourceType
  /** Left out: all namespaces. */
  readonly namespace?: string | undefined
  readonly labelSelector?: string | undefined
  readonly clock: Clock
  readonly random: Random
  readonly logger: Logger
  /** Called in order, after the store has the change. What it throws is logged and changes nothing else. */
  readonly onEvent?: (kind: EventKind, object: T) => void
  readonly metrics?: ReflectorMetrics
  readonly timing?: Partial<ReflectorTiming>
}

/** How a watch ended. `progress`: it told something, or lasted as long as a working one does. */
type WatchEnd = { readonly kind: 'closed' | 'expired' | 'stalled' | 'missed'; readonly progress: boolean }

/** Shortest life of a watch that ended without telling anything and is still taken for a working one. */
const healthyWatchMs = 1000

export class Reflector<T extends Resource> {
  readonly store: StoreReader<T>
  /** Resolves after the first complete list. Pending for ever when stopped before that. */
  readonly synced: Promise<void>
  readonly #options: ReflectorOptions<T>
  readonly #timing: ReflectorTiming
  readonly #logger: Logger
  readonly #store: Store<T>
  readonly #resolveSynced: () => void
  readonly #stop = new AbortController()
  #running: Promise<unknown> | undefined
  #hasSynced = false
  /** What the next watch starts after; undefined: list first. */
  #resourceVersion: string | undefined
  #listReason: ListReason = 'start'
  /** The open watch: cut to end it, and the keys it told something of. */
  #live: { readonly cut: (end: 'stalled' | 'missed') => void; readonly told: Set<string> } | undefined

  constructor(options: ReflectorOptions<T>) {
    this.#options = options
    this.#timing = { ...defaultReflectorTiming, ...options.timing }
    this.#logger = options.logger.child({ resource: typeId(options.type) })
    this.#store = new Store<T>({
      onListenerError: (error) => {
        this.#logger.error(`an event handler failed: ${errorMessage(error)}`, { error: toError(error) })
      },
    })
    this.store = this.#store
    const { promise, resolve } = Promise.withResolvers<undefined>()
    this.synced = promise
    this.#resolveSynced = () => resolve(undefined)
    const { onEvent } = options
    if (onEvent !== undefined) this.#store.onChange((change) => onEvent(change.kind, change.object))
  }

  /** Whether {@link synced} has resolved. */
  get hasSynced(): boolean {
    return this.#hasSynced
  }

  start(): void {
    this.#running ??= Promise.all([this.#run(this.#stop.signal), this.#audit(this.#stop.signal)])
  }

  /** Resolves when the connections are left. The store keeps what it has. */
  async stop(): Promise<void> {
    this.#stop.abort(new Error('the reflector was stopped'))
    await this.#running
  }

  #stopped(): boolean {
    return this.#stop.signal.aborted
  }

  async #run(signal: AbortSignal): Promise<void> {
    let failures = 0
    while (!this.#stopped()) {
      let delayMs = 0
      try {
        this.#resourceVersion ??= await this.#list(signal)
        const end = await this.#watch(this.#resourceVersion, signal)
        this.#afterWatch(end)
        failures = end.progress ? 0 : failures + 1
        // A watch that ended at once might end at once again.
        if (!end.progress) delayMs = backoffDelayMs(this.#timing.backoff, failures - 1, this.#options.random)
      } catch (error) {
        if (this.#stopped()) return
        delayMs = this.#delayAfter(error, failures)
        failures++
        this.#logger.warn(`list or watch failed, trying again: ${errorMessage(error)}`, {
          failures,
          delayMs: Math.round(delayMs),
        })
      }
      await sleep(this.#options.clock, delayMs, signal).catch(() => undefined)
    }
  }

  async #list(signal: AbortSignal): Promise<string> {
    const reason = this.#listReason
    const { resourceVersion, items } = await this.#listAll(signal)
    this.#options.metrics?.listed(reason)
    const gone = this.#store.replaceAll(items)
    if (gone.length > 0) {
      this.#options.metrics?.deletedInGap(gone.length)
      this.#logger.info('the list showed deletions that no watch told', { objects: gone.length })
    }
    this.#logger.debug('listed', { reason, objects: items.length, resourceVersion })
    if (!this.#hasSynced) {
      this.#hasSynced = true
      this.#resolveSynced()
    }
    return resourceVersion
  }

  async #listAll(signal: AbortSignal) {
    const { client, type, namespace, labelSelector } = this.#options
    return await client.listAll<T>(type, { namespace, labelSelector, limit: this.#timing.pageSize }, signal)
  }

  async #watch(resourceVersion: string, signal: AbortSignal): Promise<WatchEnd> {
    const { client, type, namespace, labelSelector, clock, random } = this.#options
    const timeoutSeconds = Math.ceil((this.#timing.watchTimeoutMs * (1 + 0.5 * random())) / 1000)
    const silenceMs = timeoutSeconds * 1000 + this.#timing.stallSlackMs
    const openedMs = clock.monotonic()
    const own = new AbortController()
    let cutFor: 'stalled' | 'missed' | undefined
    let told = false
    const cut = (end: 'stalled' | 'missed') => {
      cutFor ??= end
      own.abort(new Error(`the watch was cut: ${end}`))
    }
    let silence = clock.after(silenceMs, () => cut('stalled'))
    const live = { cut, told: new Set<string>() }
    this.#live = live
    try {
      const options = { namespace, labelSelector, resourceVersion, allowWatchBookmarks: true, timeoutSeconds }
      for await (const event of client.watch<T>(type, options, AbortSignal.any([signal, own.signal]))) {
        silence.cancel()
        silence = clock.after(silenceMs, () => cut('stalled'))
        if (event.kind === 'error') {
          if (isExpired(event.error)) return { kind: 'expired', progress: told }
          throw event.error
        }
        told = true
        if (event.kind === 'bookmark') {
          this.#resourceVersion = event.resourceVersion
          continue
        }
        live.told.add(keyOf(event.object.metadata))
        if (event.kind === 'deleted') this.#store.remove(event.object)
        else this.#store.put(event.object)
        this.#resourceVersion = event.object.metadata.resourceVersion
      }
      return { kind: 'closed', progress: told || clock.monotonic() - openedMs >= healthyWatchMs }
    } catch (error) {
      if (cutFor !== undefined) return { kind: cutFor, progress: true }
      if (isExpired(error)) return { kind: 'expired', progress: told }
      throw error
    } finally {
      silence.cancel()
      if (this.#live === live) this.#live = undefined
    }
  }

  #afterWatch(end: WatchEnd): void {
    switch (end.kind) {
      case 'closed':
        this.#logger.debug('the server ended the watch')
        return
      case 'stalled':
        this.#logger.warn('the watch was silent for longer than its server timeout; listing again')
        break
      case 'expired':
        this.#logger.info('the watch is too far behind; listing again')
        break
      case 'missed':
        break
      default:
        exhaustive(end.kind)
    }
    this.#resourceVersion = undefined
    this.#listReason = end.kind
  }

  /** Checks every so often that the watch tells everything; when it does not, it is cut and the objects are listed again. */
  async #audit(signal: AbortSignal): Promise<void> {
    while (!this.#stopped()) {
      try {
        await sleep(this.#options.clock, this.#timing.relistEveryMs, signal)
        const live = this.#live
        if (live === undefined) continue
        live.told.clear()
        const missed = await auditStore({
          store: this.#store,
          list: async () => (await this.#listAll(signal)).items,
          settle: () => sleep(this.#options.clock, this.#timing.relistGraceMs, signal),
          told: live.told,
        })
        // Another watch than the audited one may simply be late.
        if (missed === 0 || this.#live !== live) continue
        this.#options.metrics?.missed(missed)
        this.#logger.warn('the watch missed changes that a list shows; listing again', { objects: missed })
        live.cut('missed')
      } catch (error) {
        if (!this.#stopped()) this.#logger.warn(`the periodic list failed: ${errorMessage(error)}`)
      }
    }
  }

  #delayAfter(error: unknown, failures: number): number {
    const asked = error instanceof KubeError ? (error.retryAfterMs ?? 0) : 0
    return Math.max(asked, backoffDelayMs(this.#timing.backoff, failures, this.#options.random))
  }
}

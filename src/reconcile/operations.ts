// The creates and deletes in flight, one per object, and how the last one ended; what follows from that is decided elsewhere.
import { backoffDelayMs, type BackoffPolicy, type Random } from '../lib/backoff.ts'
import type { Clock, Timer } from '../lib/clock.ts'
import { errorMessage } from '../lib/errors.ts'
import type { Logger } from '../observe/logger.ts'
import type { CreateRequest, DeleteRequest, DeleteResult, Intent, Provider } from '../provider/contract.ts'
import { ProviderError } from '../provider/errors.ts'
import { asProviderError } from './provider-error.ts'
import type { OperationFailure, OperationView } from './world.ts'

/** Attempts after failures, 1 s to 5 min. */
const retryBackoff: BackoffPolicy = { baseMs: 1000, maxMs: 300_000, jitter: 0.5 }
/** Wait after `quotaExceeded`, milliseconds: space is made by people or by other deletions. */
const quotaRetryMs = 300_000
/** Progress is shown at most this often, milliseconds. */
const progressEveryMs = 5000

export interface OperationsOptions {
  readonly clock: Clock
  readonly random: Random
  readonly log: Logger
  /** Called with the key when an operation ended or has something to show. */
  readonly onChange: (key: string) => void
  /** Whether this process may change anything at all: the lease is held. */
  readonly mayMutate: () => boolean
  /** Whether an object with this UID exists, read from the API server. */
  readonly isLive: (uid: string) => Promise<boolean>
  /** Writes an intent into the status of the object. */
  readonly record: (key: string, uid: string, intent: Intent) => Promise<void>
}

/** Whose operation it is. */
export interface Subject {
  readonly key: string
  readonly uid: string
}

type Ended =
  | { readonly kind: 'created'; readonly specHash: string; readonly providerID: string }
  | { readonly kind: 'deleted'; readonly abandoned: DeleteResult['abandoned'] }
  | {
      readonly kind: 'createFailed'
      readonly specHash: string
      readonly adoption: boolean
      readonly error: ProviderError
    }
  | { readonly kind: 'deleteFailed'; readonly error: ProviderError }

interface InFlight {
  readonly kind: 'create' | 'delete'
  readonly specHash: string
  readonly adoption: boolean
  readonly abort: AbortController
  readonly done: Promise<void>
  progress: string | undefined
}

interface Entry {
  readonly subject: Subject
  inFlight: InFlight | undefined
  ended: Ended | undefined
  /** Failures in a row of the same kind of operation. */
  failures: number
  /** Monotonic time before which it is not tried again. */
  retryAtMs: number
}

/** Operations by UID. Nobody waits for one: its end is told by the key, and read with {@link view}. */
export class Operations {
  readonly #options: OperationsOptions
  readonly #entries = new Map<string, Entry>()

  constructor(options: OperationsOptions) {
    this.#options = options
  }

  view(uid: string): OperationView {
    const entry = this.#entries.get(uid)
    if (entry?.inFlight !== undefined) return viewInFlight(entry.inFlight)
    const ended = entry?.ended
    if (entry === undefined || ended === undefined) return { kind: 'idle' }
    switch (ended.kind) {
      case 'created':
      case 'deleted':
        return ended
      case 'createFailed':
        return {
          kind: ended.kind,
          specHash: ended.specHash,
          ...(ended.adoption ? { adoption: true } : {}),
          failure: this.#failure(entry, ended.error),
        }
      case 'deleteFailed':
        return { kind: ended.kind, failure: this.#failure(entry, ended.error) }
    }
  }

  /**
   * @param adoption it gives our mark to an instance that works
   * @throws when an operation of this object is in flight: callers decide on {@link view} first
   */
  startCreate(subject: Subject, provider: Provider, request: CreateRequest, adoption = false): void {
    const { specHash } = request
    this.#start(subject, { kind: 'create', specHash, adoption }, async (signal, progress) => {
      const context = {
        ...this.#mutationContext(signal),
        record: (intent: Intent) => this.#record(subject, intent, signal),
        progress,
      }
      return { kind: 'created', specHash, providerID: await provider.create(request, context) }
    })
  }

  /** @throws when an operation of this object is in flight */
  startDelete(subject: Subject, provider: Provider, request: DeleteRequest): void {
    this.#start(subject, { kind: 'delete', specHash: '', adoption: false }, async (signal) => {
      const { abandoned } = await provider.delete(request, this.#mutationContext(signal))
      return { kind: 'deleted', abandoned }
    })
  }

  /** Tells the operation in flight to end. It is in flight until it has let go of the hypervisor. */
  letGo(uid: string, why: string): void {
    this.#entries.get(uid)?.inFlight?.abort.abort(new Error(why))
  }

  /**
   * Lets go of the creates that other objects of that key have in flight. A delete may end by itself: cut short, it would
   * leave the rest to the garbage collector. @returns whether anything is in flight
   */
  letGoOthers(key: string, uid: string | undefined): boolean {
    let busy = false
    for (const [otherUid, entry] of this.#entries) {
      if (entry.subject.key !== key || otherUid === uid) continue
      if (entry.inFlight === undefined) {
        this.#entries.delete(otherUid)
        continue
      }
      busy = true
      if (entry.inFlight.kind === 'create') this.letGo(otherUid, 'the Proxy is gone')
    }
    return busy
  }

  /** What ended has been acted on. A failure's count goes too. */
  settle(uid: string): void {
    if (this.#entries.get(uid)?.inFlight === undefined) this.#entries.delete(uid)
  }

  /** Ends everything in flight and resolves when all have let go. What ended meanwhile is forgotten. */
  async stop(): Promise<void> {
    const inFlight = [...this.#entries.values()].flatMap((entry) => entry.inFlight ?? [])
    for (const { abort } of inFlight) abort.abort(new Error('the operator is stopping'))
    await Promise.all(inFlight.map(({ done }) => done))
    for (const uid of [...this.#entries.keys()]) this.settle(uid)
  }

  #start(
    subject: Subject,
    what: Pick<InFlight, 'kind' | 'specHash' | 'adoption'>,
    work: (signal: AbortSignal, progress: (message: string) => void) => Promise<Ended>,
  ): void {
    const { kind, specHash } = what
    const entry = this.#entries.get(subject.uid) ?? newEntry(subject)
    if (entry.inFlight !== undefined) throw new Error(`an operation for ${subject.key} is still in flight`)
    this.#entries.set(subject.uid, entry)
    if (kind !== kindOf(entry.ended) || specHash !== hashOf(entry.ended)) entry.failures = 0
    entry.ended = undefined
    const abort = new AbortController()
    const progress = new Progress(this.#options.clock, (message) => {
      if (entry.inFlight !== undefined) entry.inFlight.progress = message
      this.#options.onChange(subject.key)
    })
    const run = async () => {
      let ended: Ended | undefined
      try {
        ended = await work(abort.signal, (message) => progress.tell(message))
      } catch (thrown) {
        ended = this.#failed(entry, what, thrown, abort.signal)
      } finally {
        progress.end()
        entry.inFlight = undefined
      }
      entry.ended = ended
      if (ended === undefined) this.#entries.delete(subject.uid)
      this.#options.onChange(subject.key)
    }
    // begun in a later turn, so that the entry is complete whatever `work` does first
    const done = Promise.resolve().then(run)
    entry.inFlight = { ...what, abort, done, progress: undefined }
  }

  #failed(
    entry: Entry,
    { kind, specHash, adoption }: Pick<InFlight, 'kind' | 'specHash' | 'adoption'>,
    thrown: unknown,
    signal: AbortSignal,
  ): Ended | undefined {
    const { key } = entry.subject
    // whoever told it to end has read why; its failure says nothing about the next attempt
    if (signal.aborted) {
      this.#options.log.debug('operation let go', { proxy: key, operation: kind })
      return undefined
    }
    const error = asProviderError(thrown)
    if (error !== thrown)
      this.#options.log.error('provider threw what is no ProviderError', { proxy: key, error: thrown })
    entry.failures++
    const delayMs =
      error.kind === 'quotaExceeded'
        ? quotaRetryMs
        : backoffDelayMs(retryBackoff, entry.failures - 1, this.#options.random)
    entry.retryAtMs = this.#options.clock.monotonic() + delayMs
    return kind === 'create' ? { kind: 'createFailed', specHash, adoption, error } : { kind: 'deleteFailed', error }
  }

  #failure(entry: Entry, error: ProviderError): OperationFailure {
    const retryInMs = Math.max(entry.retryAtMs - this.#options.clock.monotonic(), 0)
    return { error, failures: entry.failures, retryInMs }
  }

  #mutationContext(signal: AbortSignal) {
    return {
      signal,
      mayMutate: () => !signal.aborted && this.#options.mayMutate(),
      isLive: (uid: string) => this.#options.isLive(uid),
    }
  }

  async #record(subject: Subject, intent: Intent, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted()
    try {
      await this.#options.record(subject.key, subject.uid, intent)
    } catch (cause) {
      const message = `the status of the Proxy could not be written: ${errorMessage(cause)}`
      throw ProviderError.transient(message, { code: 'StatusNotWritten', target: intent.target, cause })
    }
    // told to end while the write was on its way: what was recorded is harmless, what would follow is not
    signal.throwIfAborted()
  }
}

/** Passes on the first message at once and later ones at most every five seconds, the last of them always. */
class Progress {
  readonly #clock: Clock
  readonly #show: (message: string) => void
  #timer: Timer | undefined
  #latest: string | undefined

  constructor(clock: Clock, show: (message: string) => void) {
    this.#clock = clock
    this.#show = show
  }

  tell(message: string): void {
    this.#latest = message
    if (this.#timer === undefined) this.#flush()
  }

  end(): void {
    this.#latest = undefined
    this.#timer?.cancel()
  }

  #flush(): void {
    const message = this.#latest
    this.#latest = undefined
    if (message === undefined) {
      this.#timer = undefined
      return
    }
    this.#timer = this.#clock.after(progressEveryMs, () => this.#flush())
    this.#show(message)
  }
}

function newEntry(subject: Subject): Entry {
  return { subject, inFlight: undefined, ended: undefined, failures: 0, retryAtMs: 0 }
}

function viewInFlight(inFlight: InFlight): OperationView {
  const lettingGo = inFlight.abort.signal.aborted
  if (inFlight.kind === 'delete') return { kind: 'deleting', lettingGo }
  const { specHash, adoption, progress } = inFlight
  return {
    kind: 'creating',
    specHash,
    lettingGo,
    ...(adoption ? { adoption } : {}),
    ...(progress === undefined ? {} : { progress }),
  }
}

function kindOf(ended: Ended | undefined): InFlight['kind'] | undefined {
  if (ended === undefined) return undefined
  return ended.kind === 'created' || ended.kind === 'createFailed' ? 'create' : 'delete'
}

function hashOf(ended: Ended | undefined): string {
  return ended !== undefined && 'specHash' in ended ? ended.specHash : ''
}

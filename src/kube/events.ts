// Kubernetes Events about objects: recorded at once, deduplicated, sent in the background; never a reason to wait or to fail.
import { randomBytes } from 'node:crypto'
import { backoffDelayMs, type BackoffPolicy, type Random } from '../lib/backoff.ts'
import { sleep, type Clock } from '../lib/clock.ts'
import { errorMessage } from '../lib/errors.ts'
import type { Logger } from '../observe/logger.ts'
import type { KubeClient } from './client.ts'
import { EventCorrelator, type EventSeries } from './event-series.ts'
import { KubeError, isAlreadyExists, isNotFound } from './errors.ts'
import type { ObjectRef, ResourceType } from './object.ts'

/** What an Event is about. */
export interface EventSubject {
  readonly apiVersion: string
  readonly kind: string
  readonly namespace?: string | undefined
  readonly name: string
  readonly uid: string
}

export interface EventNote {
  readonly type: 'Normal' | 'Warning'
  /** CamelCase, one of a small set: it is what people filter by. */
  readonly reason: string
  /** A sentence for people, without secrets. Longer than 1024 characters it is cut. */
  readonly message: string
}

export interface EventRecorderOptions {
  readonly client: Pick<KubeClient, 'create' | 'patch'>
  readonly clock: Clock
  readonly random: Random
  readonly logger: Logger
  /** Name of the operator, for `source.component` and `reportingComponent`. */
  readonly component: string
  /** Name of this process: the Pod's or the host's. */
  readonly instance: string
  /** Most Events that wait to be sent, default 1000; further ones are dropped and counted in the log. */
  readonly maxPending?: number
}

/**
 * The core group's Events, not events.k8s.io: the API server stores both as one, and `kubectl describe` and older tools
 * show count and last time of the core form, which a series of the other does not fill.
 */
export const eventType: ResourceType = { group: '', version: 'v1', plural: 'events', kind: 'Event', namespaced: true }

const backoff: BackoffPolicy = { baseMs: 500, maxMs: 30_000, jitter: 0.5 }

export class EventRecorder {
  readonly #options: EventRecorderOptions
  readonly #maxPending: number
  readonly #correlator: EventCorrelator
  /** Series with something to send, in order; one that waits already is only brought up to date. */
  readonly #pending = new Set<EventSeries>()
  readonly #giveUp = new AbortController()
  #sending: Promise<void> | undefined
  #stopped = false
  #dropped = 0

  constructor(options: EventRecorderOptions) {
    this.#options = options
    this.#maxPending = options.maxPending ?? 1000
    this.#correlator = new EventCorrelator(options.clock)
  }

  /** Never throws and never waits. */
  record(subject: EventSubject, note: EventNote): void {
    if (this.#stopped) return
    const series = this.#correlator.add(subject, note)
    if (!this.#pending.has(series) && this.#pending.size >= this.#maxPending) {
      if (this.#dropped++ === 0) this.#options.logger.warn('too many Events are waiting to be sent; dropping some')
      return
    }
    this.#pending.add(series)
    this.#sending ??= this.#drain()
  }

  /** Sends what waits, for `budgetMs` milliseconds at most, and takes no more. Never rejects. */
  async stop(budgetMs: number): Promise<void> {
    this.#stopped = true
    const timer = this.#options.clock.after(budgetMs, () => this.#giveUp.abort(new Error('the budget is used up')))
    await this.#sending
    timer.cancel()
    if (this.#pending.size > 0) {
      this.#options.logger.warn('Events were not sent before the end', { events: this.#pending.size })
    }
  }

  async #drain(): Promise<void> {
    // The first turn ends here, so that `record` never runs a request, and a burst is one Event.
    await Promise.resolve()
    const signal = this.#giveUp.signal
    let failures = 0
    for (let [series] = this.#pending; series !== undefined && !signal.aborted; [series] = this.#pending) {
      const count = series.count
      try {
        await this.#send(series, signal)
        failures = 0
        // What was recorded while the request ran waits for another one.
        if (series.count === count) this.#pending.delete(series)
      } catch (error) {
        if (this.#stoppedWaiting()) break
        if (isHopeless(error)) {
          this.#pending.delete(series)
          this.#options.logger.warn(`an Event was refused: ${errorMessage(error)}`, { reason: series.note.reason })
          continue
        }
        if (failures === 0) this.#options.logger.warn(`Events cannot be sent, trying again: ${errorMessage(error)}`)
        await sleep(this.#options.clock, backoffDelayMs(backoff, failures++, this.#options.random), signal).catch(
          () => undefined,
        )
      }
    }
    if (this.#dropped > 0) this.#options.logger.warn('Events were dropped', { events: this.#dropped })
    this.#dropped = 0
    // In the same turn as the last look at what waits: whatever is recorded from here on starts a new round.
    this.#sending = undefined
  }

  #stoppedWaiting(): boolean {
    return this.#giveUp.signal.aborted
  }

  async #send(series: EventSeries, signal: AbortSignal): Promise<void> {
    const { client } = this.#options
    const lastTimestamp = new Date(series.lastMs).toISOString()
    if (series.sentAs !== undefined) {
      const body = { count: series.count, lastTimestamp, message: series.note.message }
      try {
        await client.patch(eventType, series.sentAs, { kind: 'merge', body }, { signal })
        return
      } catch (error) {
        // The server keeps Events for an hour only.
        if (!isNotFound(error)) throw error
        series.sentAs = undefined
      }
    }
    series.draft ??= addressOf(series.subject)
    try {
      await client.create(eventType, { ...this.#describe(series), metadata: series.draft }, signal)
    } catch (error) {
      // An earlier attempt got through although its answer did not.
      if (!isAlreadyExists(error)) throw error
    }
    series.sentAs = series.draft
    series.draft = undefined
  }

  #describe(series: EventSeries) {
    const { component, instance } = this.#options
    return {
      involvedObject: series.subject,
      type: series.note.type,
      reason: series.note.reason,
      message: series.note.message,
      count: series.count,
      firstTimestamp: new Date(series.firstMs).toISOString(),
      lastTimestamp: new Date(series.lastMs).toISOString(),
      source: { component, host: instance },
      reportingComponent: component,
      reportingInstance: instance,
    }
  }
}

/** Events about cluster-scoped objects live in the namespace `default`, which the server demands. */
function addressOf(subject: EventSubject): ObjectRef {
  const prefix = subject.name.slice(0, 230).replace(/[^a-z0-9]+$/, '')
  return { namespace: subject.namespace ?? 'default', name: `${prefix}.${randomBytes(8).toString('hex')}` }
}

/** The server understood and will refuse again: a namespace that is gone or going, a field it does not take. */
function isHopeless(error: unknown): boolean {
  return (
    error instanceof KubeError &&
    error.status >= 400 &&
    error.status < 500 &&
    error.code !== 'KUBE_UNAUTHORIZED' &&
    error.code !== 'KUBE_THROTTLED'
  )
}

// Checks every configured provider all the time and keeps its ProviderHealth object; it repairs nothing.
import { installationLabel } from '../api/group.ts'
import type { ProviderHealth } from '../api/provider-health.ts'
import { isAlreadyExists, isConflict, isNotFound } from '../kube/errors.ts'
import { sleep, type Clock } from '../lib/clock.ts'
import { deadline, raceSignal } from '../lib/deadline.ts'
import { errorMessage, toError } from '../lib/errors.ts'
import type { Logger } from '../observe/logger.ts'
import type { Metrics } from '../observe/metrics.ts'
import { withSpan } from '../observe/tracing.ts'
import type { Provider, ProviderSet, TargetHealth } from '../provider/contract.ts'
import { healthStatus, isWorthWriting } from './health-status.ts'
import { mergePatch } from './merge-patch.ts'
import type { EventSink, ProviderHealthApi, TargetReadiness } from './ports.ts'

export interface ProviderHealthOptions {
  readonly api: ProviderHealthApi
  readonly providers: ProviderSet
  readonly events: EventSink
  readonly clock: Clock
  readonly log: Logger
  readonly metrics: Pick<Metrics, 'providerTargetUp' | 'providerCheckDuration'>
  /** Id of this installation, a DNS label. */
  readonly installation: string
  /** Time from one round to the next, milliseconds. */
  readonly intervalMs: number
  /** Budget of one provider's round, milliseconds. */
  readonly timeoutMs: number
  /** A target was found ready, whether or not it was before: latches on it may end. */
  readonly onTargetReady: (provider: string, target: string) => void
}

/** How long a check may take to end after its budget, milliseconds: it has its targets' partial results to hand over. */
const graceMs = 2000

interface Checked {
  readonly provider: Provider
  readonly abort: AbortController
  readonly done: Promise<void>
}

/** Runs on the leader only. One loop per provider, so that a slow one delays no other. */
export class ProviderHealthMonitor implements TargetReadiness {
  readonly #options: ProviderHealthOptions
  readonly #checked = new Map<string, Checked>()
  readonly #lastReadyMs = new Map<string, number>()
  #sweeping: Promise<void> = Promise.resolve()
  #running: AbortController | undefined

  constructor(options: ProviderHealthOptions) {
    this.#options = options
  }

  lastReadyMs(provider: string, target: string): number | undefined {
    return this.#lastReadyMs.get(readinessKey(provider, target))
  }

  /** Begins checking what is configured, at once. */
  start(): void {
    this.#running ??= new AbortController()
    this.refresh()
  }

  /** To be called when the config changed: new providers are checked at once, objects of removed ones go. */
  refresh(): void {
    const running = this.#running
    if (running === undefined) return
    const configured = new Map(this.#options.providers.list().map(({ provider }) => [provider.name, provider]))
    for (const [name, checked] of this.#checked) {
      if (configured.get(name) !== checked.provider) this.#end(name, checked)
    }
    for (const provider of configured.values()) if (!this.#checked.has(provider.name)) this.#begin(provider)
    this.#sweeping = this.#sweeping.then(() => this.#sweep(running.signal))
  }

  /** Ends all checks and resolves when they have. Its series go: a standby publishes none. */
  async stop(): Promise<void> {
    this.#running?.abort(new Error('the operator is stopping'))
    this.#running = undefined
    const loops = [...this.#checked.values()].map(({ done }) => done)
    for (const [name, checked] of this.#checked) this.#end(name, checked)
    await Promise.all([...loops, this.#sweeping])
  }

  #begin(provider: Provider): void {
    const abort = new AbortController()
    this.#checked.set(provider.name, { provider, abort, done: this.#loop(provider, abort.signal) })
  }

  #end(name: string, { provider, abort }: Checked): void {
    abort.abort(new Error(`provider ${name} is no longer checked`))
    this.#checked.delete(name)
    for (const target of provider.targets) {
      this.#lastReadyMs.delete(readinessKey(name, target))
      this.#options.metrics.providerTargetUp.remove({ provider: name, target })
    }
  }

  async #loop(provider: Provider, signal: AbortSignal): Promise<void> {
    const { clock, intervalMs, log } = this.#options
    const ended = () => signal.aborted
    while (!ended()) {
      const startedMs = clock.monotonic()
      try {
        await withSpan('providerhealth.check', { attributes: { provider: provider.name } }, () =>
          this.#round(provider, signal),
        )
      } catch (thrown) {
        if (ended()) return
        // the API server is away, or refused: the next round writes what is true then
        log.warn(`the health of a provider could not be published: ${errorMessage(thrown)}`, {
          provider: provider.name,
        })
      }
      const leftMs = intervalMs - (clock.monotonic() - startedMs)
      await sleep(clock, Math.max(leftMs, 0), signal).catch(() => undefined)
    }
  }

  async #round(provider: Provider, signal: AbortSignal): Promise<void> {
    const { clock, metrics } = this.#options
    const startedMs = clock.monotonic()
    const targets = await this.#check(provider, signal)
    signal.throwIfAborted()
    metrics.providerCheckDuration.observe({ provider: provider.name }, (clock.monotonic() - startedMs) / 1000)
    for (const { name, ready } of targets) {
      metrics.providerTargetUp.set({ provider: provider.name, target: name }, ready ? 1 : 0)
      if (!ready) continue
      this.#lastReadyMs.set(readinessKey(provider.name, name), clock.now())
      this.#options.onTargetReady(provider.name, name)
    }
    await this.#publish(provider, targets, signal)
  }

  /** Never rejects but by the signal: a check that does not end is a result too. */
  async #check(provider: Provider, signal: AbortSignal): Promise<readonly TargetHealth[]> {
    const { clock, log, timeoutMs } = this.#options
    const what = `health check of provider ${provider.name}`
    using budget = deadline(clock, what, timeoutMs, signal)
    using end = deadline(clock, what, timeoutMs + graceMs, signal)
    try {
      return await raceSignal(provider.check({ signal: budget.signal }), end.signal)
    } catch (thrown) {
      signal.throwIfAborted()
      log.error('a health check ended without results', { provider: provider.name, error: toError(thrown) })
      const timedOut = end.signal.aborted
      const message = timedOut ? `the check did not end within ${timeoutMs} ms` : errorMessage(thrown)
      const reason = timedOut ? 'Timeout' : 'CheckFailed'
      return provider.targets.map((name) => ({
        name,
        address: '',
        ready: false,
        reason,
        message,
        latencyMs: timeoutMs,
        details: {},
      }))
    }
  }

  async #publish(provider: Provider, targets: readonly TargetHealth[], signal: AbortSignal): Promise<void> {
    const object = await this.#ensure(provider.name, signal)
    if (object === undefined) return
    const before = object.status ?? {}
    const after = healthStatus(before, provider.type, targets, this.#options.clock.now())
    if (!isWorthWriting(object.status, after)) return
    this.#tell(object, before.ready, after.ready === true, after.conditions?.[0]?.message ?? '')
    const patch = mergePatch(before, after)
    if (patch === undefined) return
    try {
      await this.#options.api.patchStatus(object, patch, signal)
    } catch (error) {
      // somebody wrote or deleted it in between: the next round writes
      if (!isConflict(error) && !isNotFound(error)) throw error
    }
  }

  /** The provider's object, made when there is none; undefined when it is another installation's. */
  async #ensure(name: string, signal: AbortSignal): Promise<ProviderHealth | undefined> {
    const { api, installation } = this.#options
    const object = await this.#find(name, signal)
    if (object === undefined) {
      try {
        return await api.create(name, { [installationLabel]: installation }, signal)
      } catch (error) {
        if (!isAlreadyExists(error)) throw error
        return undefined
      }
    }
    const owner = object.metadata.labels?.[installationLabel]
    if (owner === installation) return object
    if (owner !== undefined) {
      this.#reportForeign(object, owner)
      return undefined
    }
    // made by hand or by an earlier implementation: it belongs to nobody yet
    return await api.setLabels(object, { [installationLabel]: installation }, signal)
  }

  async #find(name: string, signal: AbortSignal): Promise<ProviderHealth | undefined> {
    try {
      return await this.#options.api.get(name, signal)
    } catch (error) {
      if (isNotFound(error)) return undefined
      throw error
    }
  }

  /** Removes the objects of providers that are configured no more, but for those that still hold what must be done. */
  async #sweep(signal: AbortSignal): Promise<void> {
    const { api, installation, log, providers } = this.#options
    try {
      const objects = await api.list({ [installationLabel]: installation }, signal)
      for (const object of objects) {
        const { name } = object.metadata
        const retained = object.status?.retained?.length ?? 0
        if (providers.get(name) !== undefined || retained > 0) continue
        await api.remove(object, signal)
        log.info('removed the health of a provider that is configured no more', { provider: name })
      }
    } catch (error) {
      if (signal.aborted) return
      log.warn(`objects of removed providers could not be cleared away: ${errorMessage(error)}`)
    }
  }

  #tell(object: ProviderHealth, before: boolean | undefined, after: boolean, message: string): void {
    if (before === after) return
    if (before === undefined && after) return
    const note = after
      ? { type: 'Normal' as const, reason: 'ProviderReady', message }
      : { type: 'Warning' as const, reason: 'ProviderNotReady', message }
    this.#record(object, note)
    this.#options.log.info(message, { provider: object.metadata.name, reason: note.reason })
  }

  #reportForeign(object: ProviderHealth, owner: string): void {
    const message = `provider ${object.metadata.name} is also configured in installation ${this.#options.installation}; this object belongs to ${owner} and is left alone: give one of the entries another name`
    this.#record(object, { type: 'Warning', reason: 'OtherInstallation', message })
    this.#options.log.warn(message, { provider: object.metadata.name })
  }

  #record({ apiVersion, kind, metadata }: ProviderHealth, note: Parameters<EventSink['record']>[1]): void {
    this.#options.events.record({ apiVersion, kind, name: metadata.name, uid: metadata.uid }, note)
  }
}

function readinessKey(provider: string, target: string): string {
  return `${provider}/${target}`
}

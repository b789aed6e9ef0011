// Tells who listens that an instance changed, from the events of each host's shared connection. It reads nothing and keeps no state of instances.
import { sleep, type Clock } from '../../lib/clock.ts'
import { backoffDelayMs, type BackoffPolicy, type Random } from '../../lib/backoff.ts'
import { errorMessage } from '../../lib/errors.ts'
import type { Logger } from '../../observe/logger.ts'
import { LibvirtError } from '../../wire/libvirt/errors.ts'
import type { InstanceListener } from '../contract.ts'
import { formatProviderID } from '../names.ts'
import type { Domain, HostApi } from './host-api.ts'
import type { SharedLineEvents } from './hosts.ts'
import type { KnownInstances } from './known.ts'

export interface WatchDeps {
  readonly known: KnownInstances
  readonly clock: Clock
  readonly random: Random
  readonly log: Logger
  /** Dials the host's shared connection unless it is open. */
  readonly dial: (host: string, signal: AbortSignal) => Promise<unknown>
}

/** Pause before a lost connection is dialled again, so that its events go on. */
const redial: BackoffPolicy = { baseMs: 1000, maxMs: 30_000, jitter: 0.5 }

/**
 * Whoever asks for a connection has it with its events registered. What happened while there was none is not told by the
 * daemon: so each new connection tells of every instance that is known on its host.
 */
export class InstanceWatch implements SharedLineEvents {
  readonly #deps: WatchDeps
  readonly #listeners = new Set<InstanceListener>()
  readonly #redialling = new Set<string>()
  readonly #closing = new AbortController()

  constructor(deps: WatchDeps) {
    this.#deps = deps
  }

  /** @returns ends it */
  watch(listener: InstanceListener): () => void {
    // A wrapper of its own, so that one listener given twice needs ending twice.
    const entry: InstanceListener = (change) => listener(change)
    this.#listeners.add(entry)
    return () => this.#listeners.delete(entry)
  }

  async opened(host: string, api: HostApi, signal: AbortSignal): Promise<void> {
    const { log, known } = this.#deps
    try {
      const events = await api.watchDomains((domain) => this.#changed(host, domain), { signal })
      if (!events) log.debug('libvirt host tells no events', { host })
    } catch (thrown) {
      // The daemon's refusal leaves a connection that works; its instances are polled.
      if (!(thrown instanceof LibvirtError)) throw thrown
      log.warn('libvirt host refuses to tell events', { host, error: errorMessage(thrown) })
    }
    for (const { providerID } of known.on(host)) this.#tell(providerID)
  }

  lost(host: string): void {
    if (this.#redialling.has(host) || this.#listeners.size === 0) return
    this.#redialling.add(host)
    void this.#redial(host).finally(() => this.#redialling.delete(host))
  }

  close(): void {
    this.#closing.abort(new Error('the provider was closed'))
    this.#listeners.clear()
  }

  /** An instance that no get has met yet has the name it was made under. */
  #changed(host: string, domain: Domain): void {
    const known = this.#deps.known.get(host, domain.uuid)
    this.#tell(known?.providerID ?? formatProviderID({ host, domain: domain.name }))
  }

  #tell(providerID: string): void {
    for (const listener of this.#listeners) listener({ providerID })
  }

  /** Until it is open again, by whoever's dial, or until nobody listens any more. */
  async #redial(host: string): Promise<void> {
    const { clock, random, log, dial } = this.#deps
    const { signal } = this.#closing
    for (let attempt = 0; ; attempt++) {
      try {
        await sleep(clock, backoffDelayMs(redial, attempt, random), signal)
        if (this.#listeners.size === 0) return
        await dial(host, signal)
        return
      } catch (thrown) {
        if (signal.aborted) return
        log.debug('libvirt host cannot be watched', { host, error: errorMessage(thrown) })
      }
    }
  }
}

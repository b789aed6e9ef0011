// What other Proxies mean for one: who has an address, whose turn it is to be replaced. It changes none of them.
import { isManaged, type Proxy } from '../api/proxy.ts'
import { keyOf } from '../kube/object.ts'
import type { Clock } from '../lib/clock.ts'
import type { ProxyReader } from './ports.ts'
import { takesTurn } from './replacement.ts'
import type { Observation } from './world.ts'

export interface NeighboursOptions {
  readonly store: ProxyReader
  readonly clock: Clock
  /** The newest version known of an object: what was written is known there before the watch tells it. */
  readonly newest: (key: string) => Proxy | undefined
  /** Called with the key of a Proxy that is to let an address go. */
  readonly onTrespass: (key: string) => void
}

export class Neighbours {
  readonly #options: NeighboursOptions
  /** By provider, the Proxy whose replacement is just being written down. */
  readonly #turns = new Map<string, string>()

  constructor(options: NeighboursOptions) {
    this.#options = options
  }

  /** Of the addresses that the instance reports or the status names those that another Proxy has, with its key. */
  taken(proxy: Proxy, observation: Observation): Readonly<Record<string, string>> {
    const reported = observation.kind === 'seen' ? observation.instance.ip : undefined
    const addresses = [reported, proxy.status?.ip].filter((ip) => ip !== undefined)
    if (addresses.length === 0 || !isManaged(proxy.spec)) return {}
    const all = this.#options.store.list()
    for (const key of trespassers(proxy, all)) this.#options.onTrespass(key)
    return takenAddresses(proxy, addresses, all)
  }

  /** Key of another Proxy of the same provider whose unhealthy instance is being replaced. */
  replacing(proxy: Proxy): string | undefined {
    const { provider, healthCheck } = proxy.spec
    if (provider === undefined || healthCheck.replaceAfter === undefined) return undefined
    const turn = this.#turns.get(provider)
    if (turn !== undefined && turn !== keyOf(proxy.metadata)) return turn
    const { clock, newest, store } = this.#options
    const all = store.list().map((other) => newest(keyOf(other.metadata)) ?? other)
    return replacingOther(proxy, all, clock.now())
  }

  /**
   * One of a provider at a time. From here on others see that this one takes the turn; once it is written, by its status.
   * @param write writes that the unhealthy instance is being replaced
   * @returns what it returned; undefined when another was first
   */
  async inTurn<T>(proxy: Proxy, write: () => Promise<T | undefined>): Promise<T | undefined> {
    const { metadata, spec, status } = proxy
    const provider = spec.provider ?? ''
    // one that was begun goes on: its status says so
    if (status?.replacement?.deleted === false) return await write()
    if (this.replacing(proxy) !== undefined) return undefined
    this.#turns.set(provider, keyOf(metadata))
    try {
      return await write()
    } finally {
      this.#turns.delete(provider)
    }
  }
}

/**
 * Of these addresses the ones that another Proxy has, with its key. Who has an address keeps it; of two Managed ones that both
 * have it (written at the same time) the older keeps it.
 * @param addresses what the instance reports and what the status names
 */
function takenAddresses(proxy: Proxy, addresses: readonly string[], others: Iterable<Proxy>): Record<string, string> {
  const taken: Record<string, string> = {}
  for (const other of others) {
    const ip = other.status?.ip
    if (ip === undefined || !addresses.includes(ip) || !isOther(proxy, other)) continue
    if (proxy.status?.ip !== ip || yieldsTo(proxy, other)) taken[ip] = keyOf(other.metadata)
  }
  return taken
}

/** Keys of the Proxies that have our address too and are to let it go: they may not know yet. */
function trespassers(proxy: Proxy, others: Iterable<Proxy>): readonly string[] {
  const ip = proxy.status?.ip
  if (ip === undefined) return []
  const same = [...others].filter((other) => other.status?.ip === ip && isOther(proxy, other))
  return same.filter((other) => yieldsTo(other, proxy)).map(({ metadata }) => keyOf(metadata))
}

/** Key of another Proxy of the same provider whose unhealthy instance is being replaced. */
function replacingOther(proxy: Proxy, others: Iterable<Proxy>, nowMs: number): string | undefined {
  for (const other of others) {
    if (other.spec.provider !== proxy.spec.provider || other.metadata.uid === proxy.metadata.uid) continue
    if (takesTurn(other, nowMs)) return keyOf(other.metadata)
  }
  return undefined
}

/** One on its way out gives its address back. */
function isOther(proxy: Proxy, other: Proxy): boolean {
  return other.metadata.uid !== proxy.metadata.uid && other.metadata.deletionTimestamp === undefined
}

/** An External one says where it is, and is believed; it takes no address from an instance that has it. */
function yieldsTo(proxy: Proxy, other: Proxy): boolean {
  if (proxy.spec.mode === 'External' || other.spec.mode === 'External') return false
  return seniority(proxy) > seniority(other)
}

/** Sorts older ones first; the same for every observer. */
function seniority({ metadata }: Proxy): string {
  return `${metadata.creationTimestamp ?? ''} ${metadata.uid}`
}

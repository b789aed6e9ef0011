// What time it is on a libvirt host, by the file times of its pools: libvirt has no call that tells. Only for comparing with other file times.
import type { Random } from '../../lib/backoff.ts'
import type { Clock } from '../../lib/clock.ts'
import { ifThere } from './errors.ts'
import type { HostApi, MutationGuard, StoragePool } from './host-api.ts'
import { modifiedMs, rawVolumeXml } from './volume-xml.ts'

export interface HostTimeScope {
  readonly api: HostApi
  readonly pool: StoragePool
  /** Name of the host in the config. */
  readonly host: string
  /** Begins the name of the probe, so that it is cleared away with what it is about. */
  readonly base: string
  readonly guard: MutationGuard
}

/** Name under which a probe of the host's time stands for a moment. */
export function isTimeProbe(name: string, base: string): boolean {
  return name.startsWith(`${base}.time.`)
}

/** A host's clock may be set: what was read of it is good for so long, milliseconds. */
const knownForMs = 10 * 60_000

export class HostTime {
  readonly #clock: Clock
  readonly #random: Random
  /** Host time minus our monotonic time, and when that was read; by host and pool. */
  readonly #offsets = new Map<string, { readonly offsetMs: number; readonly readMs: number }>()

  constructor(clock: Clock, random: Random) {
    this.#clock = clock
    this.#random = random
  }

  /**
   * Milliseconds since the epoch by the host's clock; behind it by one call's time at most, never ahead.
   * @param reading `known` is content with what was read earlier: the clock may have been set since
   */
  async nowMs(scope: HostTimeScope, reading: 'known' | 'now'): Promise<number> {
    const key = `${scope.host} ${scope.pool.uuid}`
    const known = this.#offsets.get(key)
    const isGood = known !== undefined && this.#clock.monotonic() - known.readMs < knownForMs
    const offsetMs = reading === 'known' && isGood ? known.offsetMs : await this.#probe(scope)
    if (offsetMs !== known?.offsetMs) this.#offsets.set(key, { offsetMs, readMs: this.#clock.monotonic() })
    return this.#clock.monotonic() + offsetMs
  }

  /** A volume is made, its time read, and taken away. */
  async #probe({ api, pool, base, guard }: HostTimeScope): Promise<number> {
    const tag = Math.floor(this.#random() * 2 ** 32).toString(16)
    const name = `${base}.time.${tag}`
    const volume = await api.createVolume(pool, rawVolumeXml({ name, capacityBytes: 0 }), guard)
    const monotonicMs = this.#clock.monotonic()
    try {
      const modified = modifiedMs(await api.volumeXml(volume, { signal: guard.signal }))
      if (modified === undefined) throw new Error(`the host tells no time of volume ${name}`)
      return modified - monotonicMs
    } finally {
      await ifThere(api.deleteVolume(volume, guard))
    }
  }
}

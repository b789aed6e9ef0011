// Gives guests loopback addresses of their own, as a DHCP server would: one per MAC. Linux lets every 127/8 address be bound.
import type { Random } from '../../../../src/lib/backoff.ts'

/** Never 127.0.0.x, where the machine's own services are. */
export class GuestAddresses {
  readonly #leases = new Map<string, string>()
  readonly #random: Random

  constructor(random: Random) {
    this.#random = random
  }

  lease(mac: string): string {
    const known = this.#leases.get(mac)
    return known ?? this.#give(mac)
  }

  /** Another address for the same MAC: somebody else on this machine has bound the first. */
  renew(mac: string): string {
    this.#leases.delete(mac)
    return this.#give(mac)
  }

  #give(mac: string): string {
    const taken = new Set(this.#leases.values())
    for (;;) {
      const address = `127.0.${1 + this.#pick(254)}.${1 + this.#pick(254)}`
      if (taken.has(address)) continue
      this.#leases.set(mac, address)
      return address
    }
  }

  #pick(count: number): number {
    return Math.floor(this.#random() * count)
  }
}

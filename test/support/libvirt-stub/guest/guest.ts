// What runs inside one started domain: after its boot it looks for a seed, gets an address, and is a forward proxy. No hypervisor here.
import type { Clock, Timer } from '../../../../src/lib/clock.ts'
import { toError } from '../../../../src/lib/errors.ts'
import { startForwardProxy, type ForwardProxy } from './forward-proxy.ts'
import type { GuestAddresses } from './addresses.ts'
import { readSeed, type ReadAt, type Seed } from './seed.ts'

export interface GuestOptions {
  readonly clock: Clock
  readonly addresses: GuestAddresses
  /** MACs of the NICs; the first one gets the address. */
  readonly macs: readonly string[]
  /** The disks and CDs, in order. */
  readonly disks: readonly ReadAt[]
  readonly proxyPort: number
  /** Start until the agent answers, milliseconds. */
  readonly bootDelayMs: number
  /** Agent until the NIC has its address, milliseconds. */
  readonly addressDelayMs: number
  /** The agent is there. */
  readonly onAgent: () => void
}

export type GuestPhase = 'booting' | 'agent' | 'addressed' | 'stopped'

export class Guest {
  readonly #options: GuestOptions
  readonly #stopping = new AbortController()
  #timer: Timer
  #phase: GuestPhase = 'booting'
  #seed: Seed | undefined
  #address: string | undefined
  #proxy: ForwardProxy | undefined
  #failure: Error | undefined
  /** Never rejects; settles when the address is there and the proxy (if any) listens. */
  #work: Promise<void> = Promise.resolve()

  constructor(options: GuestOptions) {
    this.#options = options
    this.#timer = options.clock.after(options.bootDelayMs, () => this.#boot())
  }

  get phase(): GuestPhase {
    return this.#phase
  }

  /** The seed that the boot found. */
  get seed(): Seed | undefined {
    return this.#seed
  }

  get address(): string | undefined {
    return this.#address
  }

  /** Why this machine could not give it a network. */
  get failure(): Error | undefined {
    return this.#failure
  }

  get proxy(): ForwardProxy | undefined {
    return this.#proxy
  }

  async stop(): Promise<void> {
    this.#phase = 'stopped'
    this.#stopping.abort()
    this.#timer.cancel()
    await this.#work
    await this.#proxy?.close()
    this.#proxy = undefined
  }

  #boot(): void {
    for (const read of this.#options.disks) {
      this.#seed = readSeed(read)
      if (this.#seed !== undefined) break
    }
    this.#phase = 'agent'
    this.#options.onAgent()
    this.#timer = this.#options.clock.after(this.#options.addressDelayMs, () => {
      this.#work = this.#network().catch((error: unknown) => {
        this.#failure = toError(error)
      })
    })
  }

  /** The proxy is what the user-data installs: without user-data there is an address and nothing behind it. */
  async #network(): Promise<void> {
    const [mac] = this.#options.macs
    if (mac === undefined) return
    const wantsProxy = this.#seed !== undefined && this.#seed.userData.length > 0
    let address = this.#options.addresses.lease(mac)
    while (wantsProxy && this.#proxy === undefined && !this.#stopping.signal.aborted) {
      try {
        this.#proxy = await startForwardProxy(address, this.#options.proxyPort)
      } catch (error) {
        if (!(error instanceof Error) || !('code' in error) || error.code !== 'EADDRINUSE') throw error
        address = this.#options.addresses.renew(mac)
      }
    }
    if (this.#stopping.signal.aborted) return
    this.#address = address
    this.#phase = 'addressed'
  }
}

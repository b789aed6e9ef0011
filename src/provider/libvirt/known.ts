// What was learnt of our instances and does not change while they live, so that no round has to ask for it again. Not their state.

export interface KnownInstance {
  readonly providerID: string
  /** From the mark; another value is another instance under the same UUID. */
  readonly createdAt: string | undefined
  /** Lower case. */
  readonly macs: readonly string[]
}

/** By host and domain UUID. */
export class KnownInstances {
  readonly #byKey = new Map<string, KnownInstance>()
  readonly #addresses = new Map<string, string>()
  readonly #stranded = new Map<string, Set<string>>()

  get(host: string, uuid: string): KnownInstance | undefined {
    return this.#byKey.get(key(host, uuid))
  }

  set(host: string, uuid: string, instance: KnownInstance): void {
    this.#byKey.set(key(host, uuid), instance)
  }

  on(host: string): readonly KnownInstance[] {
    return [...this.#byKey].flatMap(([entry, instance]) => (entry.startsWith(key(host, '')) ? [instance] : []))
  }

  /** The last address that was read; undefined once it has none any more. */
  addressed(host: string, uuid: string, ip: string | undefined): void {
    if (ip === undefined) this.#addresses.delete(key(host, uuid))
    else this.#addresses.set(key(host, uuid), ip)
  }

  /** Whether another instance, on whichever host, has that address. */
  isTaken(host: string, uuid: string, ip: string): boolean {
    return [...this.#addresses].some(([holder, address]) => address === ip && holder !== key(host, uuid))
  }

  /** An instance on a host that is not configured any more. */
  strand(host: string, providerID: string): void {
    this.#stranded.set(host, (this.#stranded.get(host) ?? new Set()).add(providerID))
  }

  /** How many of them were asked for, by host. */
  get stranded(): ReadonlyMap<string, number> {
    return new Map([...this.#stranded].map(([host, instances]) => [host, instances.size]))
  }

  /** It was let go of. */
  unstrand(host: string, providerID: string): void {
    const instances = this.#stranded.get(host)
    instances?.delete(providerID)
    if (instances?.size === 0) this.#stranded.delete(host)
  }

  forget(host: string, uuid: string): void {
    this.#byKey.delete(key(host, uuid))
    this.#addresses.delete(key(host, uuid))
  }
}

function key(host: string, uuid: string): string {
  return `${host} ${uuid}`
}

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

  get(host: string, uuid: string): KnownInstance | undefined {
    return this.#byKey.get(key(host, uuid))
  }

  set(host: string, uuid: string, instance: KnownInstance): void {
    this.#byKey.set(key(host, uuid), instance)
  }

  on(host: string): readonly KnownInstance[] {
    return [...this.#byKey].flatMap(([entry, instance]) => (entry.startsWith(key(host, '')) ? [instance] : []))
  }

  forget(host: string, uuid: string): void {
    this.#byKey.delete(key(host, uuid))
  }
}

function key(host: string, uuid: string): string {
  return `${host} ${uuid}`
}

// Objects under one growing revision, with a history that can be compacted: what etcd is to a real API server.
import { storageKey, type Stored } from './json.ts'

/** One write. `old` is what was there before it. */
export interface Revision {
  readonly revision: number
  readonly kindId: string
  readonly type: 'ADDED' | 'MODIFIED' | 'DELETED'
  readonly object: Stored
  readonly old: Stored | undefined
}

export class Storage {
  #revision = 1000
  /** Everything up to this revision is forgotten. */
  #compacted = 1000
  #history: Revision[] = []
  readonly #objects = new Map<string, Map<string, Stored>>()
  readonly #lastOfKind = new Map<string, number>()
  readonly #listeners = new Set<(revision: Revision) => void>()

  get revision(): number {
    return this.#revision
  }

  /** The last write of a kind. */
  revisionOf(kindId: string): number {
    return this.#lastOfKind.get(kindId) ?? 0
  }

  get compacted(): number {
    return this.#compacted
  }

  get(kindId: string, namespace: string | undefined, name: string): Stored | undefined {
    return this.#objects.get(kindId)?.get(storageKey(namespace, name))
  }

  /** In the order of their keys, as etcd has it. */
  list(kindId: string, namespace?: string): Stored[] {
    const all = [...(this.#objects.get(kindId)?.entries() ?? [])].sort(([a], [b]) => (a < b ? -1 : 1))
    return all.map(([, object]) => object).filter((object) => !namespace || object.metadata.namespace === namespace)
  }

  /** Stores the object under the next revision, which becomes its resourceVersion. */
  write(kindId: string, object: Stored): Stored {
    const { namespace, name } = object.metadata
    const old = this.get(kindId, namespace, name)
    const stored = this.#stamp(object)
    const objects = this.#objects.get(kindId) ?? new Map<string, Stored>()
    this.#objects.set(kindId, objects)
    objects.set(storageKey(namespace, name), stored)
    this.#record({ revision: this.#revision, kindId, type: old ? 'MODIFIED' : 'ADDED', object: stored, old })
    return stored
  }

  /** Removes the object under the next revision, which is the resourceVersion of the last state told. */
  remove(kindId: string, object: Stored): Stored {
    const { namespace, name } = object.metadata
    const old = this.get(kindId, namespace, name)
    const last = this.#stamp(object)
    this.#objects.get(kindId)?.delete(storageKey(namespace, name))
    this.#record({ revision: this.#revision, kindId, type: 'DELETED', object: last, old })
    return last
  }

  /** What was written after `revision`; undefined when that is no longer known. */
  since(kindId: string, revision: number): readonly Revision[] | undefined {
    if (revision < this.#compacted) return undefined
    return this.#history.filter((entry) => entry.kindId === kindId && entry.revision > revision)
  }

  /** Forgets the history. The revision moves on, so that a client that saw everything is behind as well. */
  compact(): void {
    this.#revision++
    this.#compacted = this.#revision
    this.#history = []
  }

  onWrite(listener: (revision: Revision) => void): void {
    this.#listeners.add(listener)
  }

  #stamp(object: Stored): Stored {
    this.#revision++
    return { ...object, metadata: { ...object.metadata, resourceVersion: String(this.#revision) } }
  }

  #record(revision: Revision): void {
    this.#lastOfKind.set(revision.kindId, revision.revision)
    this.#history.push(revision)
    for (const listener of this.#listeners) listener(revision)
  }
}

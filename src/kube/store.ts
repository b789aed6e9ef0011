// The objects of one kind as last seen, by key; written by a reflector, read by everybody, never by asking the API server.
import { keyOf, type ObjectRef, type Resource } from './object.ts'

export type Change<T> =
  | { readonly kind: 'added'; readonly object: T }
  | { readonly kind: 'modified'; readonly object: T; readonly old: T }
  | { readonly kind: 'deleted'; readonly object: T }

export type ChangeListener<T> = (change: Change<T>) => void

/** What readers get. Objects are deeply frozen: whoever wants to change one takes a `structuredClone`. */
export interface StoreReader<T> {
  /** @param key `namespace/name`, or `name` for cluster-scoped kinds; or the address itself */
  get(key: string | ObjectRef): T | undefined
  list(): readonly T[]
  readonly size: number
  /** Calls `listener` after every change, in order. The returned function ends that. */
  onChange(listener: ChangeListener<T>): () => void
}

export interface StoreOptions {
  /** Told what a listener threw; the other listeners are still called. */
  readonly onListenerError: (error: unknown) => void
}

/**
 * The writing half belongs to one reflector. An object that has another UID than the one stored under its key is a
 * deletion followed by an addition, whatever the event called it.
 */
export class Store<T extends Resource> implements StoreReader<T> {
  readonly #objects = new Map<string, T>()
  readonly #listeners = new Set<ChangeListener<T>>()
  readonly #onListenerError: (error: unknown) => void

  constructor(options: StoreOptions) {
    this.#onListenerError = options.onListenerError
  }

  get(key: string | ObjectRef): T | undefined {
    return this.#objects.get(typeof key === 'string' ? key : keyOf(key))
  }

  list(): readonly T[] {
    return [...this.#objects.values()]
  }

  get size(): number {
    return this.#objects.size
  }

  onChange(listener: ChangeListener<T>): () => void {
    this.#listeners.add(listener)
    return () => {
      this.#listeners.delete(listener)
    }
  }

  /** Nothing changes, and nobody is told, when the stored object has the same UID and resourceVersion. */
  put(object: T): void {
    const key = keyOf(object.metadata)
    const old = this.#objects.get(key)
    if (old?.metadata.uid === object.metadata.uid) {
      if (old.metadata.resourceVersion === object.metadata.resourceVersion) return
      this.#objects.set(key, deepFreeze(object))
      this.#tell({ kind: 'modified', object, old })
      return
    }
    if (old !== undefined) this.remove(old)
    this.#objects.set(key, deepFreeze(object))
    this.#tell({ kind: 'added', object })
  }

  /** @param object the last state of it; a newer incarnation under the same key stays */
  remove(object: T): void {
    const key = keyOf(object.metadata)
    const old = this.#objects.get(key)
    if (old?.metadata.uid !== object.metadata.uid) return
    this.#objects.delete(key)
    this.#tell({ kind: 'deleted', object: deepFreeze(object) })
  }

  /** Makes the store what a list says. @returns the objects that were stored and are no longer there */
  replaceAll(objects: readonly T[]): readonly T[] {
    const listed = new Set(objects.map((object) => object.metadata.uid))
    const gone = this.list().filter((object) => !listed.has(object.metadata.uid))
    for (const object of gone) this.remove(object)
    for (const object of objects) this.put(object)
    return gone
  }

  #tell(change: Change<T>): void {
    for (const listener of [...this.#listeners]) {
      try {
        listener(change)
      } catch (error) {
        this.#onListenerError(error)
      }
    }
  }
}

function deepFreeze<T>(value: T): T {
  if (typeof value !== 'object' || value === null || Object.isFrozen(value)) return value
  Object.freeze(value)
  for (const member of Object.values(value)) deepFreeze(member)
  return value
}

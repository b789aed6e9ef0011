// A value that must not be printed; not encryption: whoever holds it can reveal it.
import { inspect } from 'node:util'

const redacted = '[redacted]'

/** Wraps a secret so that logging, JSON, string templates and inspection show `[redacted]`. */
export class Secret<T> {
  readonly #value: T

  constructor(value: T) {
    this.#value = value
  }

  /** The value itself. Call it only where it is used, never to keep or print it. */
  reveal(): T {
    return this.#value
  }

  toString(): string {
    return redacted
  }

  toJSON(): string {
    return redacted
  }

  [inspect.custom](): string {
    return redacted
  }
}

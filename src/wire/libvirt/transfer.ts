// The one signal that ends a transfer, whoever wants it ended: caller, budget, stall, daemon or connection.
import { abortReason, type Clock, type Timer } from '../../lib/clock.ts'
import { raceSignal } from '../../lib/deadline.ts'
import { LibvirtStreamError } from './errors.ts'

export interface TransferOptions {
  /** Gives the transfer up; it then throws the signal's reason. */
  readonly signal?: AbortSignal
  /** Budget of the whole transfer, waiting for a place included, milliseconds. */
  readonly timeoutMs: number
}

/** Collects every reason to stop; the first one counts. Dispose it when the transfer has ended. */
export class TransferStop implements Disposable {
  readonly #controller = new AbortController()
  readonly #clock: Clock
  readonly #parent: AbortSignal | undefined
  readonly #timer: Timer

  constructor(clock: Clock, what: string, options: TransferOptions) {
    this.#clock = clock
    this.#parent = options.signal
    this.#timer = clock.after(options.timeoutMs, () =>
      this.stop(new LibvirtStreamError('TIMEOUT', `${what} did not finish within ${options.timeoutMs} ms`)),
    )
    if (options.signal?.aborted === true) this.#onParent()
    options.signal?.addEventListener('abort', this.#onParent, { once: true })
  }

  get signal(): AbortSignal {
    return this.#controller.signal
  }

  stop(reason: Error): void {
    this.#controller.abort(reason)
  }

  /** Settles like `step`, or rejects with the reason to stop. */
  async race<T>(step: Promise<T>): Promise<T> {
    return await raceSignal(step, this.signal)
  }

  /** As {@link race}, and a step that takes longer than `stallMs` is a reason to stop of its own. */
  async raceStall<T>(step: Promise<T>, stallMs: number, reason: () => Error): Promise<T> {
    const timer = this.#clock.after(stallMs, () => this.stop(reason()))
    try {
      return await this.race(step)
    } finally {
      timer.cancel()
    }
  }

  [Symbol.dispose](): void {
    this.#timer.cancel()
    this.#parent?.removeEventListener('abort', this.#onParent)
  }

  readonly #onParent = () => {
    if (this.#parent !== undefined) this.stop(abortReason(this.#parent))
  }
}

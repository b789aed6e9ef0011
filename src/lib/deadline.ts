// A budget as an AbortSignal with a cleanup; not a retry policy.
import { abortReason, type Clock } from './clock.ts'

/** The budget of one step ran out. */
export class DeadlineError extends Error {
  override readonly name = 'DeadlineError'
  readonly code = 'DEADLINE_EXCEEDED'
  readonly budgetMs: number

  constructor(what: string, budgetMs: number) {
    super(`${what} did not finish within ${formatBudget(budgetMs)}`)
    this.budgetMs = budgetMs
  }
}

/** A signal that aborts with the parent, or with a {@link DeadlineError} when the budget runs out. Dispose it when the step ended. */
export interface Deadline extends Disposable {
  readonly signal: AbortSignal
}

/**
 * @param what names the step in the error, for example `TCP connect to host:22`
 * @param budgetMs milliseconds from now
 */
export function deadline(clock: Clock, what: string, budgetMs: number, parent?: AbortSignal): Deadline {
  const controller = new AbortController()
  const onParent = () => {
    if (parent !== undefined) controller.abort(abortReason(parent))
  }
  if (parent?.aborted === true) onParent()
  parent?.addEventListener('abort', onParent, { once: true })
  const timer = clock.after(budgetMs, () => controller.abort(new DeadlineError(what, budgetMs)))
  return {
    signal: controller.signal,
    [Symbol.dispose]() {
      timer.cancel()
      parent?.removeEventListener('abort', onParent)
    },
  }
}

/**
 * Settles like `promise`, or rejects with the signal's reason as soon as it aborts. The work behind `promise` goes on:
 * only for work that notices the signal by itself, or whose end nobody needs.
 */
export async function raceSignal<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  if (signal.aborted) {
    promise.catch(() => undefined)
    throw abortReason(signal)
  }
  return await new Promise<T>((resolve, reject) => {
    const onAbort = () => reject(abortReason(signal))
    signal.addEventListener('abort', onAbort, { once: true })
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', onAbort))
  })
}

/** Rounded, so that what is left of a budget reads like one: a message that differs each time is another message. */
function formatBudget(ms: number): string {
  if (ms >= 60_000 && ms % 60_000 === 0) return `${ms / 60_000} min`
  if (ms >= 5000) return `${Math.round(ms / 1000)} s`
  return ms >= 1000 ? `${Math.round(ms / 100) / 10} s` : `${Math.round(ms)} ms`
}

// Workers that take keys from a queue and turn each outcome into a queue operation; what a key needs is the handler's to know.
import type { Clock } from '../lib/clock.ts'
import { errorMessage, toError } from '../lib/errors.ts'
import { exhaustive } from '../lib/exhaustive.ts'
import type { Logger } from '../observe/logger.ts'
import type { WorkQueue } from './queue.ts'

/**
 * What a handler found: nothing more to do until somebody adds the key; look again after `ms` milliseconds; try again
 * with growing delays although nothing failed. The fourth outcome is a thrown error, which is retried like `retry`.
 */
export type Outcome =
  { readonly kind: 'done' } | { readonly kind: 'requeueAfter'; readonly ms: number } | { readonly kind: 'retry' }

export type Handler = (key: string, signal: AbortSignal) => Promise<Outcome>

/** Result as controller-runtime's dashboards know it. */
export type ResultName = 'success' | 'requeue_after' | 'requeue' | 'error'

export interface WorkerOptions {
  /** Ends the workers: no further key is taken, running handlers get it too. */
  readonly signal: AbortSignal
  readonly clock: Clock
  readonly logger: Logger
  /** For metrics. A handler that ended because of the signal is not reported. */
  readonly onResult?: (result: ResultName, durationMs: number) => void
}

/**
 * Resolves when all workers have stopped: after the signal, or after the queue was shut down and drained. Never rejects.
 * A key whose handler was cut by the signal waits in the queue for the next workers.
 */
export async function runWorkers(
  queue: WorkQueue,
  concurrency: number,
  handler: Handler,
  options: WorkerOptions,
): Promise<void> {
  await Promise.all(Array.from({ length: concurrency }, () => worker(queue, handler, options)))
}

async function worker(queue: WorkQueue, handler: Handler, options: WorkerOptions): Promise<void> {
  for (;;) {
    let key: string | undefined
    try {
      key = await queue.take(options.signal)
    } catch (error) {
      if (!options.signal.aborted) options.logger.error('a worker stopped', { error: toError(error) })
      return
    }
    if (key === undefined) return
    await work(queue, key, handler, options)
  }
}

/** The one place where outcomes become queue operations. */
async function work(queue: WorkQueue, key: string, handler: Handler, options: WorkerOptions): Promise<void> {
  const startMs = options.clock.monotonic()
  let result: ResultName | undefined
  try {
    const outcome = await handler(key, options.signal)
    result = apply(queue, key, outcome)
  } catch (error) {
    if (options.signal.aborted) {
      queue.add(key)
    } else {
      result = 'error'
      queue.addRateLimited(key)
      options.logger.error(`reconciling failed: ${errorMessage(error)}`, {
        key,
        failures: queue.failures(key),
        error: toError(error),
      })
    }
  } finally {
    queue.done(key)
  }
  if (result !== undefined) options.onResult?.(result, options.clock.monotonic() - startMs)
}

function apply(queue: WorkQueue, key: string, outcome: Outcome): ResultName {
  switch (outcome.kind) {
    case 'done':
      queue.forget(key)
      return 'success'
    case 'requeueAfter':
      queue.forget(key)
      queue.addAfter(key, outcome.ms)
      return 'requeue_after'
    case 'retry':
      queue.addRateLimited(key)
      return 'requeue'
    default:
      return exhaustive(outcome)
  }
}

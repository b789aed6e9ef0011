// Workers: outcomes to queue operations, one key at a time, and their end.
import { describe, expect, it } from 'vitest'
import { WorkQueue } from '../../../src/kube/queue.ts'
import { runWorkers, type Handler, type Outcome, type ResultName } from '../../../src/kube/workers.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { recordingLogger } from '../../support/recording-logger.ts'

function start(handler: Handler, concurrency = 2) {
  const clock = new ManualClock()
  const logger = recordingLogger()
  const stop = new AbortController()
  const results: ResultName[] = []
  const backoff = { baseMs: 1000, maxMs: 8000, jitter: 0 }
  const queue = new WorkQueue({ clock, random: () => 0, backoff })
  const ended = runWorkers(queue, concurrency, handler, {
    signal: stop.signal,
    clock,
    logger,
    onResult: (result) => results.push(result),
  })
  return { clock, logger, stop, results, queue, ended }
}

const done: Outcome = { kind: 'done' }

describe('the workers', () => {
  it('turn each outcome into its queue operation', async () => {
    const outcomes: (() => Promise<Outcome>)[] = [
      () => Promise.resolve({ kind: 'retry' }),
      () => Promise.reject(new Error('no answer')),
      () => Promise.resolve({ kind: 'requeueAfter', ms: 30_000 }),
      () => Promise.reject(new Error('no answer')),
      () => Promise.resolve(done),
    ]
    const startedAt: number[] = []
    const { clock, logger, results, queue, ended, stop } = start(() => {
      startedAt.push(clock.monotonic())
      return outcomes.shift()?.() ?? Promise.reject(new Error('called too often'))
    })
    queue.add('default/a')
    await clock.advance(100_000)
    // Retries after 1 s and 2 s; then as asked; then a first retry again, as the key was fine in between.
    expect(startedAt).toEqual([0, 1000, 3000, 33_000, 34_000])
    expect(results).toEqual(['requeue', 'error', 'requeue_after', 'error', 'success'])
    expect(queue.failures('default/a')).toBe(0)
    expect(logger.lines).toMatchObject([
      { level: 'error', message: 'reconciling failed: no answer', fields: { key: 'default/a', failures: 2 } },
      { level: 'error', fields: { failures: 1 } },
    ])
    stop.abort(new Error('the end'))
    await ended
  })

  it('never work on one key twice at a time, and on several keys at once', async () => {
    const running = new Map<string, number>()
    let most = 0
    let calls = 0
    const release: (() => void)[] = []
    const { clock, queue, stop, ended } = start(async (key) => {
      calls++
      running.set(key, (running.get(key) ?? 0) + 1)
      most = Math.max(most, running.get(key) ?? 0)
      await new Promise<void>((resolve) => release.push(resolve))
      running.set(key, (running.get(key) ?? 0) - 1)
      return done
    }, 4)
    for (const key of ['a', 'a', 'b', 'c']) queue.add(key)
    await clock.advance(0)
    expect(calls).toBe(3)
    queue.add('a')
    await clock.advance(0)
    expect(calls).toBe(3)
    while (release.length > 0) {
      release.shift()?.()
      await clock.advance(0)
    }
    expect(calls).toBe(4)
    expect(most).toBe(1)
    stop.abort(new Error('the end'))
    await ended
  })

  it('stop with the signal; what it cut waits for the next workers and is no failure', async () => {
    const { clock, logger, queue, results, stop, ended } = start(
      (_key, signal) =>
        new Promise((_resolve, reject) => {
          signal.addEventListener('abort', () => reject(new Error('cut')))
        }),
    )
    queue.add('a')
    await clock.advance(0)
    stop.abort(new Error('the lease is lost'))
    await ended
    expect(queue.depth).toBe(1)
    expect(queue.failures('a')).toBe(0)
    expect(results).toEqual([])
    expect(logger.lines).toEqual([])
    const again: string[] = []
    const next = new AbortController()
    const options = { signal: next.signal, clock, logger }
    const restarted = runWorkers(queue, 1, (key) => (again.push(key), Promise.resolve(done)), options)
    await clock.advance(0)
    expect(again).toEqual(['a'])
    next.abort(new Error('the end'))
    await restarted
  })

  it('end when the queue was shut down and is empty', async () => {
    const seen: string[] = []
    const { queue, ended } = start((key) => (seen.push(key), Promise.resolve(done)), 1)
    for (const key of ['a', 'b', 'c']) queue.add(key)
    await queue.shutDown()
    await ended
    expect(seen).toEqual(['a', 'b', 'c'])
  })
})

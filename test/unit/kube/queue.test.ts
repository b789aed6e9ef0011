// The work queue under a clock that moves only when told to.
import { describe, expect, it } from 'vitest'
import { WorkQueue, type QueueMetrics } from '../../../src/kube/queue.ts'
import { ManualClock } from '../../support/manual-clock.ts'

const never = new AbortController().signal

function make(metrics?: QueueMetrics) {
  const clock = new ManualClock()
  const backoff = { baseMs: 1000, maxMs: 8000, jitter: 0 }
  const queue = new WorkQueue({ clock, random: () => 0, backoff, ...(metrics !== undefined && { metrics }) })
  /** Every key that waits now. */
  const drain = async () => {
    const keys: string[] = []
    while (queue.depth > 0) {
      const key = await queue.take(never)
      if (key === undefined) break
      keys.push(key)
      queue.done(key)
    }
    return keys
  }
  return { clock, queue, drain }
}

describe('the work queue', () => {
  it('hands out keys in order and each once, however often it was added', async () => {
    const { queue, drain } = make()
    for (const key of ['a', 'b', 'a', 'c', 'b', 'a']) queue.add(key)
    expect(queue.depth).toBe(3)
    expect(await drain()).toEqual(['a', 'b', 'c'])
  })

  it('has one worker per key: a key added while it is worked on waits until that is done, once', async () => {
    const { queue, drain } = make()
    queue.add('a')
    expect(await queue.take(never)).toBe('a')
    queue.add('a')
    queue.add('a')
    expect(queue.depth).toBe(0)
    expect(queue.active).toBe(1)
    queue.done('a')
    expect(queue.active).toBe(0)
    expect(await drain()).toEqual(['a'])
  })

  it('gives a key to whoever waits longest', async () => {
    const { queue } = make()
    const first = queue.take(never)
    const second = queue.take(never)
    queue.add('a')
    queue.add('b')
    expect(await first).toBe('a')
    expect(await second).toBe('b')
  })

  it('gives no key to a worker that left', async () => {
    const { queue } = make()
    const leave = new AbortController()
    const left = queue.take(leave.signal)
    leave.abort(new Error('left'))
    await expect(left).rejects.toThrow('left')
    queue.add('a')
    expect(queue.depth).toBe(1)
    await expect(queue.take(leave.signal)).rejects.toThrow('left')
    expect(await queue.take(never)).toBe('a')
  })

  it('adds after a delay; of two delays the earlier counts', async () => {
    const { clock, queue, drain } = make()
    queue.addAfter('a', 500)
    queue.addAfter('a', 100)
    queue.addAfter('a', 300)
    queue.addAfter('b', 200)
    await clock.advance(99)
    expect(queue.depth).toBe(0)
    await clock.advance(1)
    expect(await drain()).toEqual(['a'])
    await clock.advance(1000)
    expect(await drain()).toEqual(['b'])
    queue.addAfter('c', 0)
    expect(await drain()).toEqual(['c'])
  })

  it('drops the schedule of a key that is taken before it is due', async () => {
    const { clock, queue, drain } = make()
    queue.addAfter('a', 1000)
    queue.add('a')
    expect(await drain()).toEqual(['a'])
    await clock.advance(5000)
    expect(queue.depth).toBe(0)
    expect(clock.pendingCount).toBe(0)
  })

  it('delays retries longer and longer until the key is fine', async () => {
    const { clock, queue } = make()
    const delays: (number | undefined)[] = []
    for (let failure = 0; failure < 6; failure++) {
      queue.addRateLimited('a')
      delays.push(clock.nextDelayMs)
      await clock.advance(10_000)
      queue.done((await queue.take(never)) ?? '')
    }
    expect(delays).toEqual([1000, 2000, 4000, 8000, 8000, 8000])
    expect(queue.failures('a')).toBe(6)
    queue.forget('a')
    queue.addRateLimited('a')
    expect(clock.nextDelayMs).toBe(1000)
  })

  it('drains on shutdown: what waits and runs is finished, what is scheduled is not begun', async () => {
    const { clock, queue } = make()
    queue.add('running')
    await queue.take(never)
    queue.add('waiting')
    queue.addAfter('scheduled', 10)
    let drained = false
    const end = queue.shutDown().then(() => (drained = true))
    queue.add('late')
    queue.addRateLimited('late')
    await clock.advance(1000)
    expect(drained).toBe(false)
    expect(await queue.take(never)).toBe('waiting')
    queue.done('running')
    await clock.advance(0)
    expect(drained).toBe(false)
    queue.done('waiting')
    await end
    expect(await queue.take(never)).toBeUndefined()
  })

  it('ends the wait of idle workers on shutdown, and its own wait with the signal', async () => {
    const { queue } = make()
    const idle = queue.take(never)
    await queue.shutDown()
    expect(await idle).toBeUndefined()
    const { queue: busy } = make()
    busy.add('stuck')
    await busy.take(never)
    await expect(busy.shutDown(AbortSignal.abort(new Error('too long')))).rejects.toThrow('too long')
  })

  it('tells its metrics depth, adds, waits, work and retries', async () => {
    const seen: string[] = []
    const { clock, queue } = make({
      depth: (keys) => seen.push(`depth ${keys}`),
      added: () => seen.push('added'),
      started: (ms) => seen.push(`started after ${ms}`),
      finished: (ms) => seen.push(`finished after ${ms}`),
      retried: () => seen.push('retried'),
    })
    expect(seen).toEqual(['depth 0'])
    queue.add('a')
    await clock.advance(30)
    await queue.take(never)
    await clock.advance(70)
    queue.addRateLimited('a')
    queue.done('a')
    expect(seen.slice(1)).toEqual(['added', 'depth 1', 'depth 0', 'started after 30', 'retried', 'finished after 70'])
  })
})

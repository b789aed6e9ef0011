// The leaves everything stands on: waiting, budgets, backoff, locks and secrets.
import { inspect } from 'node:util'
import { describe, expect, it } from 'vitest'
import { backoffDelayMs } from '../../../src/lib/backoff.ts'
import { sleep } from '../../../src/lib/clock.ts'
import { DeadlineError, deadline, raceSignal } from '../../../src/lib/deadline.ts'
import { KeyedMutex } from '../../../src/lib/keyed-mutex.ts'
import { Secret } from '../../../src/lib/secret.ts'
import { Semaphore } from '../../../src/lib/semaphore.ts'
import { ManualClock } from '../../support/manual-clock.ts'

describe('sleep and deadline', () => {
  it('sleeps as long as told, or until the signal', async () => {
    const clock = new ManualClock()
    const stop = new AbortController()
    const ended: string[] = []
    void sleep(clock, 1000).then(() => ended.push('slept'))
    const cut = sleep(clock, 5000, stop.signal)
    await clock.advance(999)
    expect(ended).toEqual([])
    await clock.advance(1)
    expect(ended).toEqual(['slept'])
    stop.abort(new Error('stop'))
    await expect(cut).rejects.toThrow('stop')
    expect(clock.pendingCount).toBe(0)
  })

  it('aborts with what ran out, and leaves no timer when disposed', async () => {
    const clock = new ManualClock()
    {
      using budget = deadline(clock, 'dial', 10_000)
      await clock.advance(10_000)
      expect(budget.signal.reason).toMatchObject({
        code: 'DEADLINE_EXCEEDED',
        message: 'dial did not finish within 10 s',
      })
    }
    {
      using _budget = deadline(clock, 'dial', 10_000)
    }
    expect(clock.pendingCount).toBe(0)
  })

  it.each([
    [9985.393, '10 s'],
    [1449.9, '1.4 s'],
    [250.4, '250 ms'],
    [300_000, '5 min'],
  ])('says a budget of %d ms as %s, so that what is left of one reads alike each time', (budgetMs, text) => {
    expect(new DeadlineError('dial', budgetMs).message).toBe(`dial did not finish within ${text}`)
  })

  it('races a promise against a signal', async () => {
    const stop = new AbortController()
    const raced = raceSignal(new Promise(() => undefined), stop.signal)
    stop.abort(new Error('enough'))
    await expect(raced).rejects.toThrow('enough')
    await expect(raceSignal(Promise.resolve(1), new AbortController().signal)).resolves.toBe(1)
  })
})

describe('backoff', () => {
  it('doubles to the maximum, and jitter only shortens', () => {
    const policy = { baseMs: 1000, maxMs: 300_000, jitter: 0.2 }
    const delays = [0, 1, 2, 8, 9, 100, 5000].map((attempt) => backoffDelayMs(policy, attempt, () => 0))
    expect(delays).toEqual([1000, 2000, 4000, 256_000, 300_000, 300_000, 300_000])
    expect(backoffDelayMs(policy, 0, () => 0.999)).toBeGreaterThan(800)
  })
})

describe('semaphore and keyed mutex', () => {
  it('serves waiters in order, skips those that gave up, and takes a permit back once', async () => {
    const semaphore = new Semaphore(1)
    const release = await semaphore.acquire()
    const order: string[] = []
    const stop = new AbortController()
    const second = semaphore.acquire(stop.signal)
    const third = semaphore.acquire().then((give) => {
      order.push('third')
      return give
    })
    stop.abort(new Error('gave up'))
    await expect(second).rejects.toThrow('gave up')
    release()
    release()
    const releaseThird = await third
    const fourth = semaphore.acquire().then(() => order.push('fourth'))
    await Promise.resolve()
    expect(order).toEqual(['third'])
    releaseThird()
    await fourth
    expect(order).toEqual(['third', 'fourth'])
  })

  it('excludes by key, and goes on after a failure', async () => {
    const mutex = new KeyedMutex()
    let inside = 0
    let most = 0
    const work = async () => {
      most = Math.max(most, ++inside)
      await new Promise((resolve) => setImmediate(resolve))
      inside--
    }
    await Promise.all([mutex.run('a', work), mutex.run('a', work), mutex.run('a', work)])
    expect(most).toBe(1)
    await expect(mutex.run('a', () => Promise.reject(new Error('failed')))).rejects.toThrow('failed')
    await Promise.all([mutex.run('a', work), mutex.run('b', work)])
    expect(most).toBe(2)
  })
})

describe('secret', () => {
  it('never prints', () => {
    const secret = new Secret('hunter2')
    const shown = [String(secret), JSON.stringify({ secret }), inspect({ deep: { secret } }), secret.toString()]
    expect(shown.join()).not.toContain('hunter2')
    expect(secret.reveal()).toBe('hunter2')
  })
})

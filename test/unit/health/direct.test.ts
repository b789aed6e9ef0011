// Direct checks: one request for all who ask, what failures mean, what ends with a stop, and how much is remembered.
import { describe, expect, it } from 'vitest'
import { DirectChecks } from '../../../src/health/direct.ts'
import { ManualClock } from '../../support/manual-clock.ts'

const url = 'http://check.test/'

function setUp(answer: (url: URL, signal: AbortSignal) => Promise<{ status: number }>) {
  const clock = new ManualClock()
  const asked: string[] = []
  const checks = new DirectChecks({
    clock,
    fetch: (target, signal) => {
      asked.push(target.href)
      return answer(target, signal)
    },
  })
  return { clock, asked, checks }
}

/** Answers only when its signal aborts. */
function hanging(_url: URL, signal: AbortSignal): Promise<{ status: number }> {
  return new Promise((_resolve, reject) => {
    const end = () => reject(signal.reason instanceof Error ? signal.reason : new Error('aborted'))
    if (signal.aborted) end()
    signal.addEventListener('abort', end, { once: true })
  })
}

describe('direct checks', () => {
  it('ask once for everybody within two seconds', async () => {
    const { clock, asked, checks } = setUp(() => Promise.resolve({ status: 200 }))
    await Promise.all([checks.check(url, 1000), checks.check(url, 1000)])
    await clock.advance(1999)
    await checks.check(url, 1000)
    expect(asked).toEqual([url])
    await clock.advance(1)
    await checks.check(url, 1000)
    expect(asked).toEqual([url, url])
  })

  it('blame the target only when it has answered before', async () => {
    let status = 500
    const { clock, checks } = setUp(() => Promise.resolve({ status }))
    expect(await checks.check(url, 1000)).toEqual({ kind: 'noEvidence' })
    await clock.advance(5000)
    status = 204
    expect(await checks.check(url, 1000)).toEqual({ kind: 'reachable' })
    await clock.advance(5000)
    status = 503
    expect(await checks.check(url, 1000)).toEqual({
      kind: 'unreachable',
      message: 'it answers 503 without the proxy too',
    })
  })

  it('end with a stop, so that no request holds up the end of the process', async () => {
    const { checks, clock } = setUp(hanging)
    const inFlight = checks.check(url, 300_000)
    checks.stop()
    expect(await inFlight).toEqual({ kind: 'noEvidence' })
    expect(clock.monotonic()).toBe(0)
    expect(await checks.check('http://another.test/', 300_000)).toEqual({ kind: 'noEvidence' })
  })

  it('remember the last thousand URLs, and of those what they answered', async () => {
    let status = 200
    const { clock, checks } = setUp(() => Promise.resolve({ status }))
    await checks.check('http://old.test/', 1000)
    await checks.check('http://used.test/', 1000)
    for (let i = 0; i < 999; i++) {
      if (i === 500) await checks.check('http://used.test/', 1000)
      await checks.check(`http://${i}.test/`, 1000)
    }
    status = 500
    await clock.advance(5000)
    expect((await checks.check('http://used.test/', 1000)).kind).toBe('unreachable')
    expect((await checks.check('http://old.test/', 1000)).kind).toBe('noEvidence')
  })
})

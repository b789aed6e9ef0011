// Thresholds, start-up and the target's own outages, as sequences of results.
import { describe, expect, it } from 'vitest'
import { initialHealth, nextHealth, verdictOf, type ProbeResult } from '../../../src/health/hysteresis.ts'

const thresholds = { failureThreshold: 3, successThreshold: 2, startupMs: 30_000 }
const ok: ProbeResult = { kind: 'success', latencyMs: 12, egressIP: '203.0.113.7' }
const bad: ProbeResult = { kind: 'failure', reason: 'ProxyUnreachable', message: 'refused' }
const down: ProbeResult = { kind: 'targetDown', message: 'the page is down' }
const late = 60_000

function verdictsAfter(results: readonly ProbeResult[], ageMs = late): string[] {
  let state = initialHealth
  return results.map((result) => {
    state = nextHealth(state, result, thresholds, ageMs)
    return verdictOf(state).kind
  })
}

describe('hysteresis', () => {
  it.each<[string, readonly ProbeResult[], readonly string[]]>([
    ['needs successThreshold successes in a row', [ok, bad, ok, ok], ['pending', 'pending', 'pending', 'healthy']],
    [
      'needs failureThreshold failures in a row',
      [ok, ok, bad, bad, ok, bad, bad, bad],
      ['pending', 'healthy', 'healthy', 'healthy', 'healthy', 'healthy', 'healthy', 'unhealthy'],
    ],
    [
      'comes back after successThreshold',
      [bad, bad, bad, ok, ok],
      ['pending', 'pending', 'unhealthy', 'unhealthy', 'healthy'],
    ],
    [
      'blames nobody while the target is down',
      [ok, ok, down, down, down, down],
      ['pending', 'healthy', 'unknown', 'unknown', 'unknown', 'unknown'],
    ],
    [
      'goes back to the last verdict when the target returns',
      [ok, ok, down, bad, ok],
      ['pending', 'healthy', 'unknown', 'healthy', 'healthy'],
    ],
    [
      'does not count an outage of the target between failures',
      [ok, ok, bad, bad, down, bad],
      ['pending', 'healthy', 'healthy', 'healthy', 'unknown', 'unhealthy'],
    ],
  ])('%s', (_name, results, expected) => {
    expect(verdictsAfter(results)).toEqual(expected)
  })

  it('gives a proxy that never worked time to start', () => {
    expect(verdictsAfter([bad, bad, bad, bad, bad], 1000)).toEqual(Array(5).fill('pending'))
  })

  it('keeps what the last probe told', () => {
    let state = initialHealth
    for (const result of [ok, ok]) state = nextHealth(state, result, thresholds, late)
    expect(verdictOf(state)).toEqual({ kind: 'healthy', latencyMs: 12, egressIP: '203.0.113.7' })
    state = nextHealth(state, bad, { ...thresholds, failureThreshold: 1 }, late)
    expect(verdictOf(state)).toEqual({ kind: 'unhealthy', reason: 'ProxyUnreachable', message: 'refused' })
  })
})

// What a round of checks makes of a ProviderHealth's status, and which rounds are written.
import { describe, expect, it } from 'vitest'
import type { TargetHealth } from '../../../src/provider/contract.ts'
import { healthStatus, isWorthWriting } from '../../../src/reconcile/health-status.ts'

const startMs = Date.UTC(2026, 0, 1)
const target = (name: string, change: Partial<TargetHealth> = {}): TargetHealth => ({
  name,
  address: `${name}:22`,
  ready: true,
  reason: 'Reachable',
  message: 'reachable',
  latencyMs: 12.6,
  details: { pool: 'default', user: 'root' },
  ...change,
})
const first = healthStatus({}, 'kvm2', [target('a'), target('b')], startMs)
const next = (targets: readonly TargetHealth[], afterMs: number) =>
  healthStatus(first, 'kvm2', targets, startMs + afterMs)

describe('the status', () => {
  it('counts targets, names the first that fails, and keeps the time of transitions', () => {
    expect(first).toMatchObject({
      type: 'kvm2',
      ready: true,
      readyTargets: '2/2',
      checkedAt: '2026-01-01T00:00:00.000Z',
    })
    expect(first.targets?.[0]?.latencyMillis).toBe(13)
    const down = next([target('a'), target('b', { ready: false, reason: 'Timeout', message: 'no answer' })], 60_000)
    expect(down).toMatchObject({ ready: false, readyTargets: '1/2' })
    expect(down.targets?.map(({ lastTransitionTime }) => lastTransitionTime)).toEqual([
      '2026-01-01T00:00:00.000Z',
      '2026-01-01T00:01:00.000Z',
    ])
    expect(down.conditions).toMatchObject([{ status: 'False', reason: 'Timeout', message: 'b: no answer' }])
  })

  it('keeps what is retained', () => {
    const retained = [{ uid: 'u', instance: 'i', since: '2026-01-01T00:00:00Z' }]
    expect(healthStatus({ retained }, 'kvm2', [], startMs)).toMatchObject({ retained })
  })
})

describe('a round is written', () => {
  it.each([
    ['the first time', undefined, first, true],
    ['not for times and latencies', first, next([target('a', { latencyMs: 900 }), target('b')], 60_000), false],
    [
      'not for the order of details',
      first,
      next([target('a', { details: { user: 'root', pool: 'default' } }), target('b')], 1),
      false,
    ],
    ['for times and latencies after five minutes', first, next([target('a'), target('b')], 300_000), true],
    ['for a detail', first, next([target('a', { details: { pool: 'other' } }), target('b')], 1), true],
    ['for a reason', first, next([target('a', { reason: 'Slow' }), target('b')], 1), true],
    ['for an address', first, next([target('a', { address: 'elsewhere' }), target('b')], 1), true],
    ['for a target that fails', first, next([target('a', { ready: false }), target('b')], 1), true],
    ['for a target that left', first, next([target('a')], 1), true],
  ])('%s', (_what, before, after, expected) => {
    expect(isWorthWriting(before, after)).toBe(expected)
  })
})

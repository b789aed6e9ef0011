// The schedule: when probes are made, what a transition reports, and that nothing outlives `forget`.
import { describe, expect, it } from 'vitest'
import type { ProbeTarget } from '../../../src/api/probe.ts'
import { DirectChecks } from '../../../src/health/direct.ts'
import { HealthEngine } from '../../../src/health/engine.ts'
import { Secret } from '../../../src/lib/secret.ts'
import { silentLogger } from '../../../src/observe/logger.ts'
import { createMetrics } from '../../../src/observe/metrics.ts'
import type { ProxyFetchResult } from '../../../src/wire/http-proxy/client.ts'
import { ManualClock } from '../../support/manual-clock.ts'

const target: ProbeTarget = {
  uid: 'u1',
  host: '192.0.2.1',
  port: 3128,
  settings: {
    url: 'http://check.test/',
    intervalMs: 30_000,
    timeoutMs: 10_000,
    failureThreshold: 3,
    successThreshold: 1,
  },
}
const healthy: ProxyFetchResult = { kind: 'answered', status: 200, body: '203.0.113.7\n', latencyMs: 5 }
const refused: ProxyFetchResult = { kind: 'unreachable', message: 'connect ECONNREFUSED' }

function setUp(answer: () => ProxyFetchResult | Promise<ProxyFetchResult>) {
  const clock = new ManualClock()
  const transitions: string[] = []
  const probes: number[] = []
  const engine = new HealthEngine({
    clock,
    random: () => 0.5,
    log: silentLogger,
    metrics: createMetrics(),
    maxConcurrentProbes: 8,
    direct: new DirectChecks({ clock, fetch: () => Promise.resolve({ status: 200 }) }),
    fetch: () => {
      probes.push(clock.monotonic())
      return Promise.resolve(answer())
    },
    onTransition: (key) => transitions.push(`${key}=${engine.verdict(key).kind}`),
  })
  return { clock, engine, transitions, probes }
}

describe('health engine', () => {
  it('probes at once, then every interval, and reports a transition once', async () => {
    const { clock, engine, transitions, probes } = setUp(() => healthy)
    engine.watch('ns/a', target)
    await clock.advance(0)
    expect(engine.verdict('ns/a')).toEqual({ kind: 'healthy', latencyMs: 5, egressIP: '203.0.113.7' })
    await clock.advance(95_000)
    expect(probes).toEqual([0, 30_000, 60_000, 90_000])
    expect(transitions).toEqual(['ns/a=healthy'])
  })

  it('finds a proxy that is still starting within a second of its coming up', async () => {
    let up = false
    const { clock, engine, transitions, probes } = setUp(() => (up ? healthy : refused))
    engine.watch('ns/a', target)
    await clock.advance(20_000)
    expect(engine.verdict('ns/a').kind).toBe('pending')
    expect(Math.max(...probes.slice(1).map((at, index) => at - (probes[index] ?? 0)))).toBeLessThanOrEqual(1000)
    up = true
    await clock.advance(1000)
    expect(transitions).toEqual(['ns/a=healthy'])
  })

  it('says what is wrong with one that never comes up, and slows down', async () => {
    const { clock, engine, transitions, probes } = setUp(() => refused)
    engine.watch('ns/a', target)
    await clock.advance(32_000)
    expect(engine.verdict('ns/a')).toEqual({
      kind: 'unhealthy',
      reason: 'ProxyUnreachable',
      message: 'connect ECONNREFUSED',
    })
    const before = probes.length
    await clock.advance(120_000)
    expect(probes.length - before).toBeLessThanOrEqual(5)
    expect(transitions).toEqual(['ns/a=unhealthy'])
  })

  it('is idempotent for an equal target and begins anew for a changed one', async () => {
    const { clock, engine, probes } = setUp(() => healthy)
    const credentials = () => ({ username: 'u', password: new Secret('p') })
    engine.watch('ns/a', { ...target, credentials: credentials() })
    await clock.advance(0)
    engine.watch('ns/a', { ...target, credentials: credentials() })
    await clock.advance(0)
    expect(probes).toHaveLength(1)
    engine.watch('ns/a', { ...target, credentials: { username: 'u', password: new Secret('other') } })
    expect(engine.verdict('ns/a').kind).toBe('pending')
    await clock.advance(0)
    expect(probes).toHaveLength(2)
  })

  it('drops a result that arrives after its target was forgotten, and leaves no timer', async () => {
    let release: (result: ProxyFetchResult) => void = () => undefined
    const { clock, engine, transitions } = setUp(() => new Promise((resolve) => (release = resolve)))
    engine.watch('ns/a', target)
    await clock.advance(0)
    engine.forget('ns/a')
    release(healthy)
    await clock.advance(60_000)
    expect(transitions).toEqual([])
    expect(clock.pendingCount).toBe(0)
    expect(engine.verdict('ns/a').kind).toBe('pending')
  })
})

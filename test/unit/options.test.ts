// The flags of `run`: defaults, aliases, and every mistake at once.
import { describe, expect, it } from 'vitest'
import { parseRunOptions, runHelp } from '../../src/options.ts'

describe('run options', () => {
  it('has the documented defaults', () => {
    expect(parseRunOptions([])).toEqual({
      kind: 'valid',
      options: {
        providersConfig: '/etc/proxy-operator/providers.yaml',
        kubeconfig: undefined,
        installationId: undefined,
        providerCheckIntervalMs: 60_000,
        providerCheckTimeoutMs: 15_000,
        maxConcurrentReconciles: 64,
        metrics: { host: undefined, port: 8080 },
        healthProbe: { host: undefined, port: 8081 },
        discovery: { host: '127.0.0.1', port: 8090 },
        healthCheckUrl: undefined,
        allowLoopbackInstances: false,
        logLevel: 'info',
      },
    })
  })

  it.each([
    ['--zap-log-level=debug', 'debug'],
    ['--zap-log-level=2', 'trace'],
    ['--log-level=1', 'debug'],
  ])('%s means %s', (flag, logLevel) => {
    expect(parseRunOptions([flag])).toMatchObject({ options: { logLevel } })
  })

  it('opens the discovery API to the network only when told to', () => {
    expect(parseRunOptions(['--discovery-insecure'])).toMatchObject({ options: { discovery: { host: undefined } } })
    expect(parseRunOptions(['--discovery-bind-address=0.0.0.0:1'])).toMatchObject({
      kind: 'invalid',
      problems: [expect.stringContaining('--discovery-insecure') as string],
    })
    expect(parseRunOptions(['--discovery-bind-address', '[::1]:0'])).toMatchObject({
      options: { discovery: { host: '::1', port: 0 } },
    })
  })

  it('switches a server off with 0', () => {
    expect(parseRunOptions(['--metrics-bind-address=0'])).toMatchObject({ options: { metrics: undefined } })
  })

  it('reports all mistakes at once, each with its flag', () => {
    const parsed = parseRunOptions([
      '--provider-check-interval=soon',
      '--max-concurrent-reconciles=0',
      '--nope=1',
      'extra',
      '--health-check-url=ftp://x',
      '--installation-id=A_B',
      '--log-level=loud',
      '--metrics-bind-address=:99999',
    ])
    expect(parsed.kind).toBe('invalid')
    const text = parsed.kind === 'invalid' ? parsed.problems.join('\n') : ''
    for (const named of [
      '--provider-check-interval',
      '--max-concurrent-reconciles',
      '--nope',
      'extra',
      '--health-check-url',
      '--installation-id',
      '--log-level',
      '--metrics-bind-address',
    ]) {
      expect(text).toContain(named)
    }
  })

  it('takes loopback addresses of instances only when told to', () => {
    expect(parseRunOptions(['--allow-loopback-instances'])).toMatchObject({ options: { allowLoopbackInstances: true } })
  })

  it('says so when a flag without a value is given one', () => {
    expect(parseRunOptions(['--discovery-insecure=false'])).toEqual({
      kind: 'invalid',
      problems: ['--discovery-insecure takes no value'],
    })
  })

  it('lists every flag in the help', () => {
    expect(parseRunOptions(['--help']).kind).toBe('help')
    expect(runHelp()).toContain('--provider-check-interval')
    expect(runHelp()).toContain('--allow-loopback-instances')
  })
})

// What every call of a provider gets: a span, a metric, a log line, and an error of the contract.
import { trace, type Attributes, type Span, type Tracer } from '@opentelemetry/api'
import { afterEach, describe, expect, it } from 'vitest'
import { systemClock } from '../../../src/lib/clock.ts'
import type { Logger } from '../../../src/observe/logger.ts'
import { createMetrics } from '../../../src/observe/metrics.ts'
import type { Provider } from '../../../src/provider/contract.ts'
import { decorateProvider } from '../../../src/provider/decorate.ts'
import { ProviderError } from '../../../src/provider/errors.ts'

const signal = new AbortController().signal

interface Recorded {
  readonly name: string
  readonly attributes: Attributes
  ended: boolean
  error: string | undefined
}

/** Notes the spans that are begun, and no more of OpenTelemetry. */
function recordSpans(): Recorded[] {
  const spans: Recorded[] = []
  const tracer = {
    startActiveSpan(name: string, options: { attributes: Attributes }, work: (span: Span) => unknown) {
      const recorded: Recorded = { name, attributes: { ...options.attributes }, ended: false, error: undefined }
      spans.push(recorded)
      const span = {
        setAttribute: (key: string, value: string) => Object.assign(recorded.attributes, { [key]: value }),
        setStatus: ({ message }: { message?: string }) => (recorded.error = message),
        end: () => (recorded.ended = true),
      }
      return work(span as unknown as Span)
    },
  }
  trace.setGlobalTracerProvider({ getTracer: () => tracer as unknown as Tracer })
  return spans
}

afterEach(() => trace.disable())

function decorated(get: Provider['get']) {
  const lines: { level: string; message: string; fields: object }[] = []
  const line =
    (level: string) =>
    (message: string, fields: object = {}) =>
      void lines.push({ level, message, fields })
  const log: Logger = {
    error: line('error'),
    warn: line('warn'),
    info: line('info'),
    debug: line('debug'),
    trace: line('trace'),
    child: () => log,
    enabled: () => true,
  }
  const metrics = createMetrics()
  const provider: Provider = {
    name: 'home',
    type: 'kvm2',
    targets: ['a'],
    create: () => Promise.reject(new Error('unused')),
    get,
    delete: () => Promise.resolve({ abandoned: [] }),
    observe: () => Promise.resolve(new Map()),
    list: () => Promise.resolve([]),
    check: () => Promise.resolve([]),
    leftovers: () => Promise.resolve([]),
    remove: () => Promise.resolve(),
    close: () => Promise.resolve(),
  }
  return { lines, metrics, provider: decorateProvider(provider, { clock: systemClock, log, metrics }) }
}

async function results(metrics: ReturnType<typeof createMetrics>) {
  const { values } = await metrics.providerOperationDuration.get()
  return values.flatMap(({ metricName, labels, value }) =>
    metricName?.endsWith('_count') === true ? [{ ...labels, value }] : [],
  )
}

describe('decorateProvider', () => {
  it('passes name, type, targets and results through', async () => {
    const { provider } = decorated(() => Promise.resolve({ state: 'running', ip: '10.0.0.1' }))
    expect([provider.name, provider.type, provider.targets]).toEqual(['home', 'kvm2', ['a']])
    expect('watch' in provider).toBe(false)
    expect(await provider.get('id', { signal })).toEqual({ state: 'running', ip: '10.0.0.1' })
  })

  it('notes a success', async () => {
    const spans = recordSpans()
    const { provider, lines, metrics } = decorated(() => Promise.resolve({ state: 'running' }))
    await provider.get('hosts/a/domains/b', { signal })
    expect(spans).toMatchObject([
      {
        name: 'provider.get',
        attributes: { 'provider.name': 'home', 'provider.type': 'kvm2', 'provider.providerID': 'hosts/a/domains/b' },
        ended: true,
        error: undefined,
      },
    ])
    expect(await results(metrics)).toEqual([
      { provider: 'home', type: 'kvm2', operation: 'get', result: 'ok', value: 1 },
    ])
    expect(lines).toMatchObject([
      { level: 'debug', message: 'provider call', fields: { operation: 'get', result: 'ok', state: 'running' } },
    ])
  })

  it('notes a failure and hands it on as it is', async () => {
    const spans = recordSpans()
    const error = ProviderError.notFound('there is no such domain', { code: 'DomainNotFound' })
    const { provider, lines, metrics } = decorated(() => Promise.reject(error))
    await expect(provider.get('id', { signal })).rejects.toBe(error)
    expect(spans).toMatchObject([
      { ended: true, error: 'there is no such domain', attributes: { 'provider.error_kind': 'notFound' } },
    ])
    expect(await results(metrics)).toMatchObject([{ result: 'notFound', value: 1 }])
    expect(lines).toMatchObject([{ level: 'debug', fields: { result: 'notFound', code: 'DomainNotFound' } }])
  })

  it('makes a transient one of any other error, and says so louder', async () => {
    const { provider, lines } = decorated(() => Promise.reject(new TypeError('a bug')))
    await expect(provider.get('id', { signal })).rejects.toMatchObject({
      name: 'ProviderError',
      kind: 'transient',
      code: 'Unexpected',
      message: 'a bug',
    })
    expect(lines).toMatchObject([{ level: 'error' }])
  })
})

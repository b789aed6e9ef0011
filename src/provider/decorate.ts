// Wraps a provider once with what every call of the contract gets: a span, a metric, a log line, and only ProviderErrors out.
import type { Clock } from '../lib/clock.ts'
import { errorMessage, toError } from '../lib/errors.ts'
import type { LogFields, Logger } from '../observe/logger.ts'
import type { Metrics } from '../observe/metrics.ts'
import { withSpan } from '../observe/tracing.ts'
import type { Provider } from './contract.ts'
import { ProviderError } from './errors.ts'

export interface DecoratorDeps {
  readonly clock: Clock
  readonly log: Logger
  readonly metrics: Pick<Metrics, 'providerOperationDuration'>
}

export function decorateProvider(provider: Provider, deps: DecoratorDeps): Provider {
  const { name, type, targets } = provider
  const log = deps.log.child({ logger: 'provider', provider: name })
  const run = <T>(
    operation: string,
    subject: LogFields,
    work: () => Promise<T>,
    outcome: (result: T) => LogFields,
  ): Promise<T> => {
    const began = deps.clock.monotonic()
    const attributes = { 'provider.name': name, 'provider.type': type, ...textOnly(subject) }
    const finish = (result: string) => {
      const seconds = (deps.clock.monotonic() - began) / 1000
      deps.metrics.providerOperationDuration.observe({ provider: name, type, operation, result }, seconds)
      return { operation, ...subject, result, durationMs: Math.round(seconds * 1000) }
    }
    return withSpan(`provider.${operation}`, { attributes }, async (span) => {
      try {
        const result = await work()
        log.debug('provider call', { ...finish('ok'), ...outcome(result) })
        return result
      } catch (thrown) {
        const error = asProviderError(thrown)
        span.setAttribute('provider.error_kind', error.kind)
        const fields = { ...finish(error.kind), code: error.code, error: error.message }
        if (error === thrown) log.debug('provider call', fields)
        else log.error('provider call failed with an error of no known kind', { ...fields, error: toError(thrown) })
        throw error
      }
    })
  }
  const decorated: Provider = {
    name,
    type,
    targets,
    create: (request, context) =>
      run(
        'create',
        { instance: request.instanceName },
        () => provider.create(request, context),
        (providerID) => ({ providerID }),
      ),
    get: (providerID, context) =>
      run(
        'get',
        { providerID },
        () => provider.get(providerID, context),
        ({ state, ip }) => ({ state, ip }),
      ),
    delete: (request, context) =>
      run(
        'delete',
        { instance: request.instanceName },
        () => provider.delete(request, context),
        ({ abandoned }) => ({ abandoned: abandoned.length }),
      ),
    observe: (target, context) =>
      run(
        'observe',
        { target },
        () => provider.observe(target, context),
        (states) => ({ instances: states.size }),
      ),
    list: (context) =>
      run(
        'list',
        {},
        () => provider.list(context),
        (instances) => ({ instances: instances.length }),
      ),
    check: (context) =>
      run(
        'check',
        {},
        () => provider.check(context),
        (all) => ({
          targets: all.length,
          ready: all.filter((target) => target.ready).length,
        }),
      ),
    leftovers: (context) =>
      run(
        'leftovers',
        {},
        () => provider.leftovers(context),
        (leftovers) => ({ leftovers: leftovers.length }),
      ),
    remove: (leftover, context) =>
      run(
        'remove',
        { target: leftover.target, instance: leftover.instanceName },
        () => provider.remove(leftover, context),
        () => ({}),
      ),
    close: () => provider.close(),
  }
  if (provider.watch === undefined) return decorated
  return { ...decorated, watch: (listener) => provider.watch?.(listener) ?? (() => undefined) }
}

function asProviderError(thrown: unknown): ProviderError {
  if (thrown instanceof ProviderError) return thrown
  return ProviderError.transient(errorMessage(thrown), { code: 'Unexpected', cause: thrown })
}

function textOnly(fields: LogFields): Record<string, string> {
  return Object.fromEntries(
    Object.entries(fields).flatMap(([key, value]) => (typeof value === 'string' ? [[`provider.${key}`, value]] : [])),
  )
}

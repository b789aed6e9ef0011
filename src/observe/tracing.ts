// Spans through the OpenTelemetry API, which does nothing until an exporter is set up; not the exporter.
import { SpanKind, SpanStatusCode, trace, type Attributes, type Span } from '@opentelemetry/api'
import { errorMessage } from '../lib/errors.ts'

const tracerName = 'egress-proxies-operator'

export interface SpanOptions {
  readonly attributes?: Attributes
  readonly kind?: 'internal' | 'client'
}

/** Runs `work` inside a span that is the parent of every span begun within; a rejection sets the status to Error. */
export async function withSpan<T>(name: string, options: SpanOptions, work: (span: Span) => Promise<T>): Promise<T> {
  const kind = options.kind === 'client' ? SpanKind.CLIENT : SpanKind.INTERNAL
  return await trace
    .getTracer(tracerName)
    .startActiveSpan(name, { kind, attributes: options.attributes ?? {} }, async (span) => {
      try {
        return await work(span)
      } catch (thrown) {
        span.setStatus({ code: SpanStatusCode.ERROR, message: errorMessage(thrown) })
        throw thrown
      } finally {
        span.end()
      }
    })
}

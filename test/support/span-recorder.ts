// Keeps every span of a test in memory, with parents found through async context as an exporter's SDK finds them; it exports nothing.
import { AsyncLocalStorage } from 'node:async_hooks'
import { randomBytes } from 'node:crypto'
import {
  context,
  ROOT_CONTEXT,
  SpanKind,
  SpanStatusCode,
  trace,
  type Attributes,
  type Context,
  type ContextManager,
  type Span,
  type SpanOptions,
  type SpanStatus,
  type Tracer,
} from '@opentelemetry/api'

export interface RecordedSpan {
  readonly name: string
  readonly kind: 'client' | 'internal'
  readonly traceID: string
  readonly spanID: string
  readonly parent: RecordedSpan | undefined
  readonly attributes: Attributes
  /** Message of the Error status. */
  error: string | undefined
  ended: boolean
}

export interface SpanRecorder extends Disposable {
  /** In the order in which they began. */
  readonly spans: readonly RecordedSpan[]
}

/** Takes OpenTelemetry's global places until disposed. */
export function recordSpans(): SpanRecorder {
  const spans: RecordedSpan[] = []
  const bySpanID = new Map<string, RecordedSpan>()
  const begin = (name: string, options: SpanOptions): Span => {
    const parentID = trace.getSpan(context.active())?.spanContext().spanId
    const parent = parentID === undefined ? undefined : bySpanID.get(parentID)
    const recorded: RecordedSpan = {
      name,
      kind: options.kind === SpanKind.CLIENT ? 'client' : 'internal',
      traceID: parent?.traceID ?? randomBytes(16).toString('hex'),
      spanID: randomBytes(8).toString('hex'),
      parent,
      attributes: { ...options.attributes },
      error: undefined,
      ended: false,
    }
    spans.push(recorded)
    bySpanID.set(recorded.spanID, recorded)
    return spanOf(recorded)
  }
  const startActiveSpan = (name: string, options: SpanOptions, work: (span: Span) => unknown): unknown => {
    const span = begin(name, options)
    return context.with(trace.setSpan(context.active(), span), () => work(span))
  }
  // The API's overloads cannot be said by one arrow; the product calls this one.
  const tracer: Tracer = { startSpan: begin, startActiveSpan: startActiveSpan as Tracer['startActiveSpan'] }
  context.setGlobalContextManager(asyncContexts())
  trace.setGlobalTracerProvider({ getTracer: () => tracer })
  return {
    spans,
    [Symbol.dispose]() {
      trace.disable()
      context.disable()
    },
  }
}

function spanOf(recorded: RecordedSpan): Span {
  const span: Span = {
    spanContext: () => ({ traceId: recorded.traceID, spanId: recorded.spanID, traceFlags: 1 }),
    setAttribute(key, value) {
      recorded.attributes[key] = value
      return span
    },
    setAttributes(attributes) {
      Object.assign(recorded.attributes, attributes)
      return span
    },
    setStatus({ code, message }: SpanStatus) {
      recorded.error = code === SpanStatusCode.ERROR ? (message ?? '') : undefined
      return span
    },
    addEvent: () => span,
    addLink: () => span,
    addLinks: () => span,
    updateName: () => span,
    recordException: () => undefined,
    isRecording: () => !recorded.ended,
    end: () => void (recorded.ended = true),
  }
  return span
}

function asyncContexts(): ContextManager {
  const storage = new AsyncLocalStorage<Context>()
  const manager: ContextManager = {
    active: () => storage.getStore() ?? ROOT_CONTEXT,
    with: (active, work, thisArg, ...args) => storage.run(active, () => work.apply(thisArg, args)),
    bind: (_context, target) => target,
    enable: () => manager,
    disable: () => manager,
  }
  return manager
}

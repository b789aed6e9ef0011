// The log: one JSON line per event on standard output, at the three levels users know; not an audit trail.
import { pino, stdSerializers, type DestinationStream } from 'pino'
import { context, trace } from '@opentelemetry/api'

/** Facts of a line, by name. Secrets print as `[redacted]` ({@link import('../lib/secret.ts').Secret}); never pass their content. */
export type LogFields = Readonly<Record<string, unknown>>

/** `info` is for everybody, `debug` for following what happens (level 1), `trace` for what was sent and received (level 2). */
export interface Logger {
  error(message: string, fields?: LogFields): void
  warn(message: string, fields?: LogFields): void
  info(message: string, fields?: LogFields): void
  debug(message: string, fields?: LogFields): void
  trace(message: string, fields?: LogFields): void
  /** A logger that adds `fields` to every line. */
  child(fields: LogFields): Logger
  /** Whether lines of this level are written: lets a caller skip work whose only use is the line. */
  enabled(level: LogLevel): boolean
}

export const logLevels = ['error', 'warn', 'info', 'debug', 'trace'] as const
export type LogLevel = (typeof logLevels)[number]

export interface LoggerOptions {
  readonly level: LogLevel
  /** Where lines go; default standard output. */
  readonly destination?: DestinationStream
}

/** A logger whose lines carry `time` (ISO 8601), `level` (word), `msg`, and inside a span `traceID` and `spanID`. */
export function createLogger(options: LoggerOptions): Logger {
  const settings = {
    level: options.level,
    base: null,
    timestamp: () => `,"time":"${new Date().toISOString()}"`,
    formatters: { level: (label: string) => ({ level: label }) },
    serializers: { error: stdSerializers.err },
    mixin: () => {
      const span = trace.getSpan(context.active())?.spanContext()
      return span === undefined ? {} : { traceID: span.traceId, spanID: span.spanId }
    },
  }
  return wrap(options.destination === undefined ? pino(settings) : pino(settings, options.destination))
}

/** A logger that writes nothing. */
export const silentLogger: Logger = {
  error: () => undefined,
  warn: () => undefined,
  info: () => undefined,
  debug: () => undefined,
  trace: () => undefined,
  child: () => silentLogger,
  enabled: () => false,
}

function wrap(target: ReturnType<typeof pino>): Logger {
  return {
    error: (message, fields = {}) => target.error(fields, message),
    warn: (message, fields = {}) => target.warn(fields, message),
    info: (message, fields = {}) => target.info(fields, message),
    debug: (message, fields = {}) => target.debug(fields, message),
    trace: (message, fields = {}) => target.trace(fields, message),
    child: (fields) => wrap(target.child(fields)),
    enabled: (level) => target.isLevelEnabled(level),
  }
}

// A logger that keeps its lines for assertions; it formats nothing.
import type { LogFields, Logger, LogLevel } from '../../src/observe/logger.ts'

export interface LogLine {
  readonly level: LogLevel
  readonly message: string
  readonly fields: LogFields
}

export interface RecordingLogger extends Logger {
  /** Lines of this logger and of its children, in order. */
  readonly lines: readonly LogLine[]
}

export function recordingLogger(lines: LogLine[] = [], fixed: LogFields = {}): RecordingLogger {
  const at =
    (level: LogLevel) =>
    (message: string, fields: LogFields = {}) => {
      lines.push({ level, message, fields: { ...fixed, ...fields } })
    }
  return {
    lines,
    error: at('error'),
    warn: at('warn'),
    info: at('info'),
    debug: at('debug'),
    trace: at('trace'),
    child: (fields) => recordingLogger(lines, { ...fixed, ...fields }),
    enabled: () => true,
  }
}

// Durations as people write them in a spec, `1h30m`; the whole-number part of Go's syntax, longest unit first.

/** Hours, minutes, seconds, milliseconds, each at most once and in this order. `ms` is tried by the regex after `m` and `s` failed. */
export const durationPattern = /^([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?([0-9]{1,6}ms)?$/

const unitMs = [3_600_000, 60_000, 1000, 1] as const

/** Milliseconds in `text`, or undefined when it is not a duration. The empty string is none. */
export function parseDurationMs(text: string): number | undefined {
  const match = durationPattern.exec(text)
  if (match === null || text === '') return undefined
  return unitMs.reduce((sum, factor, index) => sum + Number.parseInt(match[index + 1] ?? '0', 10) * factor, 0)
}

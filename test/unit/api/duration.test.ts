import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { parseDurationMs } from '../../../src/api/duration.ts'

describe('parseDurationMs', () => {
  it.each([
    ['30s', 30_000],
    ['1m', 60_000],
    ['1h30m', 5_400_000],
    ['1m500ms', 60_500],
    ['5ms', 5],
    ['0s', 0],
    ['999999h', 999_999 * 3_600_000],
  ])('%s', (text, ms) => {
    expect(parseDurationMs(text)).toBe(ms)
  })

  it.each(['', '5', 's', '30s1m', '1.5h', '-1s', ' 1s', '1s\n', '1d', '1000000s', '1S', '٣s'])('refuses %j', (text) => {
    expect(parseDurationMs(text)).toBeUndefined()
  })

  it('adds its parts', () => {
    const part = fc.nat(999_999)
    fc.assert(
      fc.property(part, part, part, part, (h, m, s, ms) => {
        expect(parseDurationMs(`${h}h${m}m${s}s${ms}ms`)).toBe(((h * 60 + m) * 60 + s) * 1000 + ms)
      }),
    )
  })
})

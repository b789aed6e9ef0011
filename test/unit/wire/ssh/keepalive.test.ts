// The watch over silence: when a connection is given up, by a clock that moves on command.
import { describe, expect, it } from 'vitest'
import { watchSilence } from '../../../../src/wire/ssh/keepalive.ts'
import { ManualClock } from '../../../support/manual-clock.ts'

const periodMs = 15_000

function watched() {
  const clock = new ManualClock()
  const silentAt: number[] = []
  const watch = watchSilence(clock, periodMs, () => silentAt.push(clock.monotonic()))
  return { clock, watch, silentAt }
}

describe('watchSilence', () => {
  it('gives a host up two periods after its last byte, whenever that came, and says so once', async () => {
    for (const lastMs of [0, 1, 7000, 14_999, 15_000, 15_001, 22_000, 29_999]) {
      const { clock, watch, silentAt } = watched()
      await clock.advance(lastMs)
      watch.heard()
      await clock.advance(2 * periodMs - 1)
      expect(silentAt).toEqual([])
      await clock.advance(10 * periodMs)
      expect(silentAt).toEqual([lastMs + 2 * periodMs])
      expect(clock.pendingCount).toBe(0)
    }
  })

  it('never gives up a host that answers within the second period', async () => {
    const { clock, watch, silentAt } = watched()
    for (let round = 0; round < 100; round++) {
      await clock.advance(2 * periodMs - 1)
      watch.heard()
    }
    expect(silentAt).toEqual([])
  })

  it('keeps one timer, however much is heard', async () => {
    const { clock, watch } = watched()
    for (let byte = 0; byte < 1000; byte++) watch.heard()
    expect(clock.pendingCount).toBe(1)
    watch.stop()
    watch.stop()
    expect(clock.pendingCount).toBe(0)
    await clock.advance(10 * periodMs)
  })

  it('reads what has arrived before it judges, after the process stood still', async () => {
    const { clock, watch, silentAt } = watched()
    let late = 0
    // A clock whose timers fire an hour late, as they do when the process was stopped.
    const stopped = watchSilence(
      {
        now: () => clock.now(),
        monotonic: () => clock.monotonic() + late,
        after: (ms, fire) => clock.after(ms, fire),
      },
      periodMs,
      () => silentAt.push(-1),
    )
    watch.stop()
    late = 3_600_000
    await clock.advance(periodMs)
    // Only now the sockets are read.
    stopped.heard()
    await clock.advance(periodMs)
    expect(silentAt).toEqual([])
    await clock.advance(2 * periodMs)
    expect(silentAt).toEqual([-1])
  })
})

// Which recorded Events are one, over time.
import { describe, expect, it } from 'vitest'
import { EventCorrelator } from '../../../src/kube/event-series.ts'
import type { EventNote } from '../../../src/kube/events.ts'
import { ManualClock } from '../../support/manual-clock.ts'

const subject = { apiVersion: 'g.dev/v1', kind: 'Thing', namespace: 'default', name: 'a', uid: 'uid-1' }
const note: EventNote = { type: 'Warning', reason: 'CreateFailed', message: 'no space' }

describe('Events', () => {
  it('are one for the same object, type, reason and message, with first and last time', async () => {
    const clock = new ManualClock()
    const events = new EventCorrelator(clock)
    const first = events.add(subject, note)
    const begin = clock.now()
    await clock.advance(60_000)
    expect(events.add(subject, note)).toBe(first)
    expect(first).toMatchObject({ count: 2, firstMs: begin, lastMs: begin + 60_000, note })
    for (const other of [
      events.add({ ...subject, uid: 'uid-2' }, note),
      events.add(subject, { ...note, type: 'Normal' }),
      events.add(subject, { ...note, reason: 'Created' }),
      events.add(subject, { ...note, message: 'other' }),
    ]) {
      expect(other).not.toBe(first)
      expect(other.count).toBe(1)
    }
  })

  it('are a new one after ten minutes of silence', async () => {
    const clock = new ManualClock()
    const events = new EventCorrelator(clock)
    const first = events.add(subject, note)
    await clock.advance(599_999)
    expect(events.add(subject, note)).toBe(first)
    await clock.advance(600_000)
    expect(events.add(subject, note)).not.toBe(first)
  })

  it('share one when the messages of a reason do not end', () => {
    const events = new EventCorrelator(new ManualClock())
    const series = new Set(Array.from({ length: 25 }, (_, n) => events.add(subject, { ...note, message: `${n}` })))
    expect(series.size).toBe(11)
    const last = [...series].at(-1)
    expect(last).toMatchObject({ count: 15, note: { message: '(combined with others) 24' } })
    expect(events.add(subject, { ...note, message: '3' })).not.toBe(last)
  })

  it('are cut where the server would refuse them', () => {
    const events = new EventCorrelator(new ManualClock())
    expect(events.add(subject, { ...note, message: 'x'.repeat(5000) }).note.message).toHaveLength(1024)
  })

  it('of thousands of objects are forgotten, oldest first', () => {
    const events = new EventCorrelator(new ManualClock())
    const first = events.add(subject, note)
    for (let n = 0; n < 4096; n++) events.add({ ...subject, uid: `other-${n}` }, note)
    expect(events.add(subject, note)).not.toBe(first)
  })
})

// Which recorded Events are one and the same; nothing is sent here.
import type { Clock } from '../lib/clock.ts'
import type { EventNote, EventSubject } from './events.ts'
import type { ObjectRef } from './object.ts'

/** Events that are shown as one, with a count. Times are milliseconds since the epoch. */
export interface EventSeries {
  readonly subject: EventSubject
  note: EventNote
  count: number
  readonly firstMs: number
  lastMs: number
  /** The Event object that stands for it in the API; undefined until it was sent. */
  sentAs: ObjectRef | undefined
  /** The name it is being created under, kept over retries, so that a lost answer does not lead to a second one. */
  draft: ObjectRef | undefined
}

/** A series that was silent this long is over: the next one of its kind is a new Event. */
const seriesMs = 10 * 60_000
/** Different messages of one object and reason that get Events of their own; further ones share one. */
const maxMessages = 10
const maxSeries = 4096
const maxMessageLength = 1024

interface Family {
  readonly messages: Set<string>
  lastMs: number
}

/** Same object, type, reason and message: one series. More than ten messages in ten minutes: one series for the rest. */
export class EventCorrelator {
  readonly #clock: Clock
  /** In order of last use, so that the oldest are forgotten first. */
  readonly #series = new Map<string, EventSeries>()
  readonly #families = new Map<string, Family>()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  add(subject: EventSubject, note: EventNote): EventSeries {
    const nowMs = this.#clock.now()
    const cut = { ...note, message: note.message.slice(0, maxMessageLength) }
    const familyKey = JSON.stringify([subject.uid, note.type, note.reason])
    const family = this.#family(familyKey, nowMs)
    const combined = !family.messages.has(cut.message) && family.messages.size >= maxMessages
    if (!combined) family.messages.add(cut.message)
    const shown = combined
      ? { ...cut, message: `(combined with others) ${cut.message}`.slice(0, maxMessageLength) }
      : cut
    const key = JSON.stringify([familyKey, combined ? null : cut.message])
    const known = this.#series.get(key)
    if (known !== undefined && nowMs - known.lastMs < seriesMs) {
      known.note = shown
      known.count++
      known.lastMs = nowMs
      this.#series.delete(key)
      this.#series.set(key, known)
      return known
    }
    const series: EventSeries = {
      subject,
      note: shown,
      count: 1,
      firstMs: nowMs,
      lastMs: nowMs,
      sentAs: undefined,
      draft: undefined,
    }
    this.#series.delete(key)
    this.#series.set(key, series)
    forgetOldest(this.#series)
    return series
  }

  #family(key: string, nowMs: number): Family {
    const known = this.#families.get(key)
    const family =
      known !== undefined && nowMs - known.lastMs < seriesMs ? known : { messages: new Set<string>(), lastMs: nowMs }
    family.lastMs = nowMs
    this.#families.delete(key)
    this.#families.set(key, family)
    forgetOldest(this.#families)
    return family
  }
}

function forgetOldest(entries: Map<string, unknown>): void {
  if (entries.size <= maxSeries) return
  const [oldest] = entries.keys()
  if (oldest !== undefined) entries.delete(oldest)
}

// Reads what instances look like: quickly until they have an address, then one round per target; it changes nothing.
import { backoffDelayMs, type BackoffPolicy, type Random } from '../lib/backoff.ts'
import type { Clock, Timer } from '../lib/clock.ts'
import { errorMessage } from '../lib/errors.ts'
import { Semaphore } from '../lib/semaphore.ts'
import type { Logger } from '../observe/logger.ts'
import type { Instance, InstanceState, Provider } from '../provider/contract.ts'
import { ProviderError } from '../provider/errors.ts'
import { asProviderError } from './provider-error.ts'
import type { Observation } from './world.ts'

/** Pause between two reads of an instance without address, milliseconds, and for how long. */
const addressPollMs = 250
const addressPollForMs = 60_000
/** The same where the provider tells of changes: soon after one, and then only in case one was not told. */
const toldPoll: BackoffPolicy = { baseMs: 250, maxMs: 5000, jitter: 0 }
/** After that, and after failed reads. */
const slowPoll: BackoffPolicy = { baseMs: 1000, maxMs: 30_000, jitter: 0.5 }
/** Pause between two rounds of a target, milliseconds. */
const roundEveryMs = 30_000
/** A round reads what was last read this long ago, milliseconds: it shows what no state tells. */
const readMaxAgeMs = 3_600_000
/** Reads of one target at the same time. */
const readsAtOnce = 8

export interface ObserverOptions {
  readonly clock: Clock
  readonly random: Random
  readonly log: Logger
  /** Called with the key when an observation says something new. */
  readonly onChange: (key: string) => void
}

/** What to observe, and for whom. */
export interface Observed {
  readonly key: string
  readonly uid: string
  readonly provider: Provider
  readonly providerID: string
  /** Where it was made, as far as is known: its states come from that target's round. */
  readonly target?: string
}

interface Session extends Observed {
  readonly abort: AbortController
  readonly round: Round
  observation: Observation
  suspect: boolean
  /** Since when, monotonic, every read found it running with the same address. */
  steadySinceMs: number | undefined
  /** When it was last read, monotonic. */
  readMs: number
  /** When the provider last told of a change, monotonic; at first, when the session began. */
  toldMs: number
  /** Reads that found no address since then. */
  readsSinceTold: number
  /** Reads that failed or found no address, since the quick ones were over. */
  slowReads: number
  reading: boolean
  /** Something happened during a read: read once more. */
  again: boolean
  timer: Timer | undefined
}

interface Round {
  readonly provider: Provider
  readonly target: string | undefined
  readonly sessions: Set<Session>
  readonly reads: Semaphore
  readonly abort: AbortController
  timer: Timer | undefined
}

/** What one provider is asked, and what it tells by itself. */
interface Feed {
  /** By target. */
  readonly rounds: Map<string, Round>
  /** By providerID: two objects may name one instance. */
  readonly sessions: Map<string, Set<Session>>
  /** Undefined where the provider tells nothing. */
  readonly unwatch: (() => void) | undefined
}

/** One session per object, begun by {@link watch} and ended by {@link forget}; a mutation in between needs a new one. */
export class InstanceObserver {
  readonly #options: ObserverOptions
  readonly #sessions = new Map<string, Session>()
  readonly #feeds = new Map<Provider, Feed>()

  constructor(options: ObserverOptions) {
    this.#options = options
  }

  /** Begins reading, at once. The same instance of the same provider goes on as it was. */
  watch(observed: Observed): void {
    const current = this.#sessions.get(observed.uid)
    if (current?.provider === observed.provider && current.providerID === observed.providerID) return
    this.forget(observed.uid)
    const nowMs = this.#options.clock.monotonic()
    const session: Session = {
      ...observed,
      abort: new AbortController(),
      round: this.#roundOf(observed),
      observation: { kind: 'unread' },
      suspect: false,
      steadySinceMs: undefined,
      readMs: nowMs,
      toldMs: nowMs,
      readsSinceTold: 0,
      slowReads: 0,
      reading: false,
      again: false,
      timer: undefined,
    }
    session.round.sessions.add(session)
    this.#join(session)
    this.#sessions.set(observed.uid, session)
    this.#read(session)
  }

  /** Ends reading. What was read is dropped: whatever is decided next must not rest on it. */
  forget(uid: string): void {
    const session = this.#sessions.get(uid)
    if (session === undefined) return
    this.#sessions.delete(uid)
    session.timer?.cancel()
    session.abort.abort(new Error('the instance is no longer observed'))
    const { round } = session
    round.sessions.delete(session)
    if (round.sessions.size === 0) this.#endRound(round)
    this.#leave(session)
  }

  observation(uid: string): Observation {
    return this.#sessions.get(uid)?.observation ?? { kind: 'unread' }
  }

  /** Milliseconds since which every read found the instance running, and with the same address. */
  steadyForMs(uid: string): number {
    const sinceMs = this.#sessions.get(uid)?.steadySinceMs
    return sinceMs === undefined ? 0 : this.#options.clock.monotonic() - sinceMs
  }

  /** A suspect instance, one whose probes fail, is read with every round: it may have another address. */
  suspect(uid: string, suspect: boolean): void {
    const session = this.#sessions.get(uid)
    if (session === undefined || session.suspect === suspect) return
    session.suspect = suspect
    if (suspect) this.#read(session)
  }

  /** Ends all sessions of objects other than `uid` under that key. */
  forgetOthers(key: string, uid: string | undefined): void {
    for (const session of [...this.#sessions.values()]) {
      if (session.key === key && session.uid !== uid) this.forget(session.uid)
    }
  }

  stop(): void {
    for (const uid of [...this.#sessions.keys()]) this.forget(uid)
  }

  #read(session: Session): void {
    if (session.reading) {
      session.again = true
      return
    }
    session.timer?.cancel()
    session.reading = true
    void this.#readOnce(session).then((observation) => {
      session.reading = false
      if (session.abort.signal.aborted) return
      const before = session.observation
      session.observation = observation
      session.readMs = this.#options.clock.monotonic()
      session.steadySinceMs = isSteady(before, observation) ? (session.steadySinceMs ?? session.readMs) : undefined
      if (session.again) {
        session.again = false
        this.#read(session)
      } else {
        this.#scheduleRead(session)
      }
      if (tellsNews(before, observation)) this.#options.onChange(session.key)
    })
  }

  async #readOnce(session: Session): Promise<Observation> {
    const { provider, providerID, uid, round } = session
    const { signal } = session.abort
    try {
      const instance = await round.reads.run(() => provider.get(providerID, { signal }), signal)
      if (instance.uid !== undefined && instance.uid !== uid) throw notOurs(session, instance.uid)
      return { kind: 'seen', instance }
    } catch (thrown) {
      const error = asProviderError(thrown)
      if (!signal.aborted) {
        this.#options.log.debug('instance could not be read', { proxy: session.key, providerID, error: error.message })
      }
      return error.kind === 'notFound' ? { kind: 'gone' } : { kind: 'failed', error }
    }
  }

  /** Rounds find out about what has an address; everything else is asked for again here. */
  #scheduleRead(session: Session): void {
    const delayMs = this.#pauseMs(session)
    if (delayMs !== undefined) session.timer = this.#options.clock.after(delayMs, () => this.#read(session))
  }

  #pauseMs(session: Session): number | undefined {
    const { observation } = session
    switch (observation.kind) {
      case 'gone':
        return undefined
      case 'seen': {
        const { instance } = observation
        const starting =
          instance.state === 'provisioning' || (instance.state === 'running' && instance.ip === undefined)
        if (!starting) {
          session.slowReads = 0
          return undefined
        }
        if (this.#options.clock.monotonic() - session.toldMs < addressPollForMs) {
          const tells = this.#feedOf(session.provider).unwatch !== undefined
          return tells ? backoffDelayMs(toldPoll, session.readsSinceTold++, this.#options.random) : addressPollMs
        }
        return backoffDelayMs(slowPoll, session.slowReads++, this.#options.random)
      }
      case 'failed':
      case 'unread':
        return backoffDelayMs(slowPoll, session.slowReads++, this.#options.random)
    }
  }

  #feedOf(provider: Provider): Feed {
    const current = this.#feeds.get(provider)
    if (current !== undefined) return current
    const sessions = new Map<string, Set<Session>>()
    const unwatch = provider.watch?.(({ providerID }) => {
      for (const session of sessions.get(providerID) ?? []) {
        session.toldMs = this.#options.clock.monotonic()
        session.readsSinceTold = 0
        session.slowReads = 0
        this.#read(session)
      }
    })
    const feed: Feed = { rounds: new Map(), sessions, unwatch }
    this.#feeds.set(provider, feed)
    return feed
  }

  #join(session: Session): void {
    const { sessions } = this.#feedOf(session.provider)
    const same = sessions.get(session.providerID) ?? new Set()
    sessions.set(session.providerID, same.add(session))
  }

  #leave(session: Session): void {
    const feed = this.#feedOf(session.provider)
    const same = feed.sessions.get(session.providerID)
    same?.delete(session)
    if (same?.size === 0) feed.sessions.delete(session.providerID)
    if (feed.sessions.size > 0) return
    feed.unwatch?.()
    this.#feeds.delete(session.provider)
  }

  #roundOf(observed: Observed): Round {
    const { provider, target } = observed
    const { rounds } = this.#feedOf(provider)
    const key = target ?? ''
    const current = rounds.get(key)
    if (current !== undefined) return current
    const round: Round = {
      provider,
      target,
      sessions: new Set(),
      reads: new Semaphore(readsAtOnce),
      abort: new AbortController(),
      timer: undefined,
    }
    rounds.set(key, round)
    this.#scheduleRound(round)
    return round
  }

  #endRound(round: Round): void {
    round.timer?.cancel()
    round.abort.abort(new Error('nothing is observed on the target any more'))
    this.#feeds.get(round.provider)?.rounds.delete(round.target ?? '')
  }

  #scheduleRound(round: Round): void {
    round.timer = this.#options.clock.after(roundEveryMs, () => {
      void this.#observe(round).then(() => {
        if (!round.abort.signal.aborted) this.#scheduleRound(round)
      })
    })
  }

  async #observe(round: Round): Promise<void> {
    const { provider, target } = round
    const { signal } = round.abort
    let states: ReadonlyMap<string, InstanceState> = new Map()
    if (target !== undefined) {
      try {
        states = await provider.observe(target, { signal })
      } catch (thrown) {
        this.#options.log.debug('target could not be observed', { target, error: errorMessage(thrown) })
        // a read of each instance would only fail likewise; but what is said of a suspect one must not be old
        for (const session of round.sessions) if (session.suspect) this.#read(session)
        return
      }
    }
    const readBeforeMs = this.#options.clock.monotonic() - readMaxAgeMs
    for (const session of round.sessions) {
      if (session.readMs <= readBeforeMs || isUnusual(session, states)) this.#read(session)
    }
  }
}

/** Whether a round leaves open how the instance is: only then it is read. */
function isUnusual(session: Session, states: ReadonlyMap<string, InstanceState>): boolean {
  const { observation } = session
  if (session.suspect || observation.kind !== 'seen') return true
  return states.get(session.providerID) !== observation.instance.state
}

function isSteady(before: Observation, now: Observation): boolean {
  if (now.kind !== 'seen' || now.instance.state !== 'running') return false
  return before.kind !== 'seen' || before.instance.ip === now.instance.ip
}

function tellsNews(before: Observation, after: Observation): boolean {
  if (before.kind === 'seen' && after.kind === 'seen') return !sameInstance(before.instance, after.instance)
  if (before.kind === 'failed' && after.kind === 'failed') return before.error.code !== after.error.code
  return before.kind !== after.kind
}

function sameInstance(a: Instance, b: Instance): boolean {
  return (
    a.state === b.state &&
    a.ip === b.ip &&
    a.specHash === b.specHash &&
    a.outdated === b.outdated &&
    a.unadopted === b.unadopted
  )
}

function notOurs(session: Session, uid: string): ProviderError {
  const message = `instance ${session.providerID} belongs to another Proxy now (UID ${uid})`
  return ProviderError.permanent('environment', message, { code: 'InstanceNotOurs' })
}

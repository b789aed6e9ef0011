// The claims on images that this process holds, by host address, pool and volume: creates share one, a download has it alone. How a claim
// stands on a host is in image-claim.ts.
import { sleep, type Clock } from '../../lib/clock.ts'
import { raceSignal } from '../../lib/deadline.ts'
import type { Attempt, Claim, PoolListing } from './image-claim.ts'

type State =
  | SharedClaim
  /** A download, or one that waits to begin. */
  | { readonly kind: 'exclusive'; readonly ended: Promise<void> }
  /** Other operators' turn. */
  | { readonly kind: 'pause'; readonly ended: Promise<void> }

interface SharedClaim {
  readonly kind: 'shared'
  readonly attempt: Promise<Attempt>
  readonly openedAtMs: number
  readonly ended: Promise<void>
  readonly end: () => void
  sharers: number
  /** Nobody may join any more: somebody waits to have it alone. */
  closed: boolean
}

/** A claim as one of its sharers sees it. */
export interface Held {
  readonly claim: Claim
  /** Listed under the claim for this sharer; absent for one that joined, for whom it is too old. */
  readonly volumes?: PoolListing
}

export type Shared<T> = { readonly kind: 'done'; readonly value: T } | { readonly kind: 'busy' }

export interface ClaimActions {
  acquire(): Promise<Attempt>
  release(claim: Claim): Promise<void>
}

export interface ShareTiming {
  /** How long others may join those who share a claim, milliseconds: then other operators get a turn. */
  readonly shareMs: number
  /** How long this process leaves it to them, milliseconds: longer than the pause between two of their looks. */
  readonly pauseMs: number
}

export const defaultShareTiming: ShareTiming = { shareMs: 5000, pauseMs: 1500 }

export class ImageClaims {
  /** Tokens of the claims that stand on hosts for this process. */
  readonly tokens = new Set<string>()
  readonly #clock: Clock
  readonly #timing: ShareTiming
  readonly #states = new Map<string, State>()

  constructor(clock: Clock, timing = defaultShareTiming) {
    this.#clock = clock
    this.#timing = timing
  }

  /** Runs `work` under the claim, together with others that share it; busy when it is not to be had at once. */
  async share<T>(key: string, actions: ClaimActions, work: (held: Held) => Promise<T>): Promise<Shared<T>> {
    const state = this.#states.get(key)
    const now = this.#clock.monotonic()
    const mayJoin =
      state?.kind === 'shared' && !state.closed && now - state.openedAtMs < this.#timing.shareMs ? state : undefined
    if (state !== undefined && mayJoin === undefined) return { kind: 'busy' }
    const shared = mayJoin ?? this.#open(key, now, actions)
    shared.sharers++
    try {
      // What went wrong is told to the one who tried; the others try for themselves later.
      const attempt = await (mayJoin === undefined ? shared.attempt : shared.attempt.catch(() => undefined))
      if (attempt?.kind !== 'held') return { kind: 'busy' }
      const { claim, volumes } = attempt
      return { kind: 'done', value: await work(mayJoin === undefined ? { claim, volumes } : { claim }) }
    } finally {
      shared.sharers--
      if (shared.sharers === 0) await this.#end(key, shared, actions)
    }
  }

  /** Runs `work` alone in this process, once all who share have left. What it claims on the host is its own to say. */
  async alone<T>(key: string, signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    for (let state = this.#states.get(key); state !== undefined; state = this.#states.get(key)) {
      if (state.kind === 'shared') state.closed = true
      await raceSignal(state.ended, signal)
    }
    const { promise, resolve } = Promise.withResolvers<undefined>()
    this.#states.set(key, { kind: 'exclusive', ended: promise })
    try {
      return await work()
    } finally {
      this.#states.delete(key)
      resolve(undefined)
    }
  }

  /** Resolves when nobody in this process holds it. */
  async free(key: string, signal: AbortSignal): Promise<void> {
    for (let state = this.#states.get(key); state !== undefined; state = this.#states.get(key)) {
      await raceSignal(state.ended, signal)
    }
  }

  #open(key: string, now: number, actions: ClaimActions): SharedClaim {
    const { promise, resolve } = Promise.withResolvers<undefined>()
    const shared: SharedClaim = {
      kind: 'shared',
      attempt: actions.acquire(),
      openedAtMs: now,
      ended: promise,
      end: () => resolve(undefined),
      sharers: 0,
      closed: false,
    }
    this.#states.set(key, shared)
    return shared
  }

  /** The last one out gives it back; whoever comes meanwhile finds it busy. */
  async #end(key: string, shared: SharedClaim, actions: ClaimActions): Promise<void> {
    shared.closed = true
    const attempt = await shared.attempt.catch(() => undefined)
    if (attempt?.kind === 'held') await actions.release(attempt.claim)
    const isLong = this.#clock.monotonic() - shared.openedAtMs >= this.#timing.shareMs
    if (isLong && attempt?.kind === 'held') this.#pause(key)
    else this.#states.delete(key)
    shared.end()
  }

  #pause(key: string): void {
    const ended = sleep(this.#clock, this.#timing.pauseMs).then(() => {
      this.#states.delete(key)
    })
    this.#states.set(key, { kind: 'pause', ended })
  }
}

// One process's claims: shared by creates, alone for a download, and left to other operators now and then. No host is here.
import { describe, expect, it } from 'vitest'
import { defaultShareTiming, ImageClaims, type ClaimActions } from '../../../../src/provider/libvirt/image-claims.ts'
import type { Attempt, Claim } from '../../../../src/provider/libvirt/image-claim.ts'
import { ManualClock } from '../../../support/manual-clock.ts'

const key = 'a 22 default base'
const never = new AbortController().signal
/** The registry hands it around and never looks into it. */
const claim = Object.freeze({}) as Claim

function world() {
  const clock = new ManualClock()
  const claims = new ImageClaims(clock)
  const happened: string[] = []
  let next: () => Promise<Attempt> = () => Promise.resolve({ kind: 'held', claim, volumes: new Map() })
  const actions: ClaimActions = {
    acquire: () => {
      happened.push('acquire')
      return next()
    },
    release: () => Promise.resolve(void happened.push('release')),
  }
  const gates: (() => void)[] = []
  /** Shares until told to leave. */
  const sharer = () => {
    const gate = Promise.withResolvers<undefined>()
    gates.push(() => gate.resolve(undefined))
    return claims.share(key, actions, async (held) => {
      happened.push(held.volumes === undefined ? 'joined' : 'opened')
      await gate.promise
    })
  }
  const settle = () => clock.advance(0)
  return {
    clock,
    claims,
    happened,
    actions,
    gates,
    sharer,
    settle,
    answer: (how: () => Promise<Attempt>) => (next = how),
  }
}

describe('a shared claim', () => {
  it('is acquired once, and released by the last one out', async () => {
    const { happened, gates, sharer, settle } = world()
    const all = [sharer(), sharer(), sharer()]
    await settle()
    expect(happened).toEqual(['acquire', 'opened', 'joined', 'joined'])
    gates[0]?.()
    gates[1]?.()
    await settle()
    expect(happened).not.toContain('release')
    gates[2]?.()
    expect((await Promise.all(all)).map(({ kind }) => kind)).toEqual(['done', 'done', 'done'])
    expect(happened.at(-1)).toBe('release')
  })

  it('that is not to be had makes all busy, and nobody gives back what there is not', async () => {
    const { happened, sharer, answer } = world()
    answer(() => Promise.resolve({ kind: 'busy', holder: {} }))
    expect((await Promise.all([sharer(), sharer()])).map(({ kind }) => kind)).toEqual(['busy', 'busy'])
    expect(happened).toEqual(['acquire'])
  })

  it('whose acquisition fails tells only the one who tried', async () => {
    const { happened, sharer, answer, settle, gates } = world()
    answer(() => Promise.reject(new Error('cut')))
    const [first, second] = await Promise.allSettled([sharer(), sharer()])
    expect([first, second]).toMatchObject([{ status: 'rejected' }, { status: 'fulfilled', value: { kind: 'busy' } }])
    answer(() => Promise.resolve({ kind: 'held', claim, volumes: new Map() }))
    const again = sharer()
    await settle()
    gates[2]?.()
    expect((await again).kind).toBe('done')
    expect(happened).toEqual(['acquire', 'acquire', 'opened', 'release'])
  })

  it('is released when its work fails', async () => {
    const { claims, actions, happened } = world()
    await expect(claims.share(key, actions, () => Promise.reject(new Error('broken')))).rejects.toThrow('broken')
    expect(happened).toEqual(['acquire', 'release'])
  })

  it('takes in nobody after five seconds, and leaves other operators a turn then', async () => {
    const { clock, claims, happened, gates, sharer, settle } = world()
    const first = sharer()
    await clock.advance(defaultShareTiming.shareMs - 1)
    const second = sharer()
    await settle()
    await clock.advance(1)
    expect((await sharer()).kind).toBe('busy')
    gates[0]?.()
    gates[1]?.()
    await Promise.all([first, second])
    expect(happened.at(-1)).toBe('release')
    expect((await sharer()).kind).toBe('busy')
    let isFree = false
    const free = claims.free(key, never).then(() => (isFree = true))
    await clock.advance(defaultShareTiming.pauseMs - 1)
    expect(isFree).toBe(false)
    await clock.advance(1)
    await free
    const third = sharer()
    await settle()
    gates.at(-1)?.()
    expect((await third).kind).toBe('done')
  })
})

describe('one that is held alone', () => {
  it('waits for those who share, lets nobody in meanwhile, and keeps creates out', async () => {
    const { claims, happened, gates, sharer, settle } = world()
    const shared = sharer()
    await settle()
    const working = Promise.withResolvers<undefined>()
    const alone = claims.alone(key, never, async () => {
      happened.push('alone')
      await working.promise
    })
    await settle()
    expect((await sharer()).kind).toBe('busy')
    expect(happened).not.toContain('alone')
    gates[0]?.()
    await shared
    await settle()
    expect(happened.slice(-2)).toEqual(['release', 'alone'])
    expect((await sharer()).kind).toBe('busy')
    working.resolve(undefined)
    await alone
    await claims.free(key, never)
    const after = sharer()
    await settle()
    gates.at(-1)?.()
    expect((await after).kind).toBe('done')
  })

  it('has them one after the other, and lets one go that waits', async () => {
    const { claims } = world()
    const order: string[] = []
    const gate = Promise.withResolvers<undefined>()
    const one = claims.alone(key, never, async () => {
      order.push('one begins')
      await gate.promise
      order.push('one ends')
    })
    const leaving = new AbortController()
    const two = claims.alone(key, leaving.signal, () => Promise.resolve(order.push('two')))
    const three = claims.alone(key, never, () => Promise.resolve(order.push('three')))
    leaving.abort(new Error('left'))
    await expect(two).rejects.toThrow('left')
    gate.resolve(undefined)
    await Promise.all([one, three])
    expect(order).toEqual(['one begins', 'one ends', 'three'])
  })

  it('is nobody else’s business under another key', async () => {
    const { claims } = world()
    const gate = Promise.withResolvers<undefined>()
    const one = claims.alone(key, never, () => gate.promise)
    expect(await claims.alone('another', never, () => Promise.resolve(7))).toBe(7)
    gate.resolve(undefined)
    await one
  })
})

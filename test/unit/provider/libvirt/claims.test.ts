// Claims on images, by operators that know of each other only by what stands on the host: who gets one, who waits, who takes over.
import { describe, expect, it } from 'vitest'
import { silentLogger } from '../../../../src/observe/logger.ts'
import { defaultBudgets } from '../../../../src/provider/libvirt/budgets.ts'
import { HostTime } from '../../../../src/provider/libvirt/host-time.ts'
import { claimHolder, tryClaim, type Claim, type ClaimDeps } from '../../../../src/provider/libvirt/image-claim.ts'
import type { HostApi } from '../../../../src/provider/libvirt/host-api.ts'
import { ManualClock } from '../../../support/manual-clock.ts'
import { FakeHost } from './fake-host.ts'

const base = 'base-debian.qcow2'
const minute = 60_000
/** The host's clock is far from ours: ages count by its own. */
const hostAheadMs = 5 * 60 * minute

function world() {
  const clock = new ManualClock()
  const host = new FakeHost()
  host.nowMs = () => clock.monotonic() + hostAheadMs
  return { clock, host, claims: () => [...host.volumes.keys()].filter((name) => name.startsWith(`${base}.`)).sort() }
}

/** One process of an operator. */
function process(host: FakeHost, clock: ManualClock, installation: string, change: (api: HostApi) => HostApi = same) {
  const random = Math.random
  const deps: ClaimDeps = {
    ...{ clock, random, log: silentLogger, budgets: defaultBudgets, installation },
    tokens: new Set(),
    hostTime: new HostTime(clock, random),
  }
  const api = change(host.session().api)
  const guard = { signal: new AbortController().signal, mayMutate: () => true }
  const pool = { name: 'default', uuid: '00000000-0000-0000-0000-000000000001' }
  const scope = { api, pool, host: 'a', base, guard }
  return {
    deps,
    scope,
    try: (how: 'blind' | 'look' = 'blind') => tryClaim(deps, scope, 'download', how),
    async take(how: 'blind' | 'look' = 'blind'): Promise<Claim> {
      const attempt = await tryClaim(deps, scope, 'download', how)
      if (attempt.kind !== 'held') throw new Error('the claim is not to be had')
      return attempt.claim
    },
    holder: () => claimHolder(deps, scope),
  }
}

function same(api: HostApi): HostApi {
  return api
}

describe('a claim', () => {
  it.each(['blind', 'look'] as const)('is held by one, and free again when it was given back (%s)', async (how) => {
    const { host, clock, claims } = world()
    const one = process(host, clock, 'one')
    const two = process(host, clock, 'two')
    const claim = await one.take(how)
    expect(claims()).toEqual([`${base}.claim.1`])
    expect(await two.try(how)).toEqual({ kind: 'busy', holder: { purpose: 'download' } })
    expect(await two.holder()).toEqual({ purpose: 'download' })
    await claim.release(one.scope)
    expect(claims()).toEqual([])
    expect(await two.holder()).toBeUndefined()
    await two.take(how)
  })

  it('is got by exactly one of many that try at once', async () => {
    const { host, clock, claims } = world()
    const attempts = await Promise.all(
      Array.from({ length: 10 }, (_, index) =>
        process(host, clock, `i${index}`).try(index % 2 === 0 ? 'blind' : 'look'),
      ),
    )
    expect(attempts.filter(({ kind }) => kind === 'held').length).toBe(1)
    expect(claims()).toEqual([`${base}.claim.1`])
  })

  it('is taken over 15 minutes after it was last touched, by the clock of the host, under the next number', async () => {
    const { host, clock, claims } = world()
    const one = process(host, clock, 'one')
    const two = process(host, clock, 'two')
    const claim = await one.take()
    await clock.advance(14 * minute)
    await claim.sign(one.scope)
    await clock.advance(15 * minute)
    expect(await two.try()).toMatchObject({ kind: 'busy' })
    await clock.advance(1)
    const next = await two.take()
    expect(claims()).toEqual([`${base}.claim.1`, `${base}.claim.2`])
    await expect(claim.check(one.scope)).rejects.toMatchObject({ kind: 'transient', code: 'ClaimLost' })
    expect(() => claim.requireFresh(one.scope)).toThrow('may have taken over')
    await next.check(two.scope)
    await next.release(two.scope)
    expect(claims()).toEqual([])
  })

  it('is not taken over by a third while the second has it, whatever the first left', async () => {
    const { host, clock } = world()
    await process(host, clock, 'one').take()
    await clock.advance(16 * minute)
    const attempts = await Promise.all(['two', 'three', 'four'].map((name) => process(host, clock, name).try()))
    expect(attempts.filter(({ kind }) => kind === 'held').length).toBe(1)
    expect(await process(host, clock, 'five').try()).toMatchObject({ kind: 'busy' })
  })

  it('does not trust what it knew of the time of a host whose clock was set', async () => {
    const { host, clock } = world()
    await process(host, clock, 'one').take()
    const two = process(host, clock, 'two')
    expect(await two.try()).toMatchObject({ kind: 'busy' })
    // Back by an hour: the holder touches it then, and by the old reckoning it would be very late.
    host.nowMs = () => clock.monotonic() + hostAheadMs - 60 * minute
    const volume = host.volumes.get(`${base}.claim.1`)
    if (volume !== undefined) volume.modifiedMs = host.nowMs()
    expect(await two.try()).toMatchObject({ kind: 'busy' })
  })

  it('of a process of the same installation that is gone is taken over at once', async () => {
    const { host, clock, claims } = world()
    await process(host, clock, 'one').take()
    const successor = process(host, clock, 'one')
    expect(await successor.holder()).toBeUndefined()
    const claim = await successor.take()
    expect(claims()).toEqual([`${base}.claim.1`, `${base}.claim.2`])
    await claim.release(successor.scope)
    expect(claims()).toEqual([])
  })

  it('of this very process is respected, under whatever name it reaches the host', async () => {
    const { host, clock } = world()
    const one = process(host, clock, 'one')
    await one.take()
    expect(await one.try()).toMatchObject({ kind: 'busy' })
    await clock.advance(60 * minute)
    expect(await one.try()).toMatchObject({ kind: 'busy' })
  })

  it('that its holder never signed is taken over after two seconds', async () => {
    const { host, clock, claims } = world()
    host.addVolume(`${base}.claim.1`, Buffer.alloc(0))
    const one = process(host, clock, 'one')
    expect(await one.try()).toEqual({ kind: 'busy', holder: {} })
    await clock.advance(2001)
    const claim = await one.take()
    await claim.release(one.scope)
    expect(claims()).toEqual([])
  })

  it('is got by one of the two when a slow holder signs while somebody takes over', async () => {
    for (const moment of ['before it is created', 'after it is created'] as const) {
      const { host, clock } = world()
      const signed = Promise.withResolvers<undefined>()
      const slow = process(host, clock, 'slow', (api) => ({
        ...api,
        writeVolume: async (...call) => {
          await signed.promise
          await api.writeVolume(...call)
        },
      }))
      const slowly = slow.try()
      await clock.advance(2001)
      const quick = process(host, clock, 'quick', (api) => ({
        ...api,
        createVolume: async (pool, xml, guard) => {
          const isClaim = xml.includes('.claim.2')
          if (isClaim && moment === 'before it is created') {
            signed.resolve(undefined)
            await slowly
          }
          const volume = await api.createVolume(pool, xml, guard)
          if (isClaim) {
            signed.resolve(undefined)
            await slowly
          }
          return volume
        },
      }))
      const held = [await quick.try('look'), await slowly].filter(({ kind }) => kind === 'held')
      expect(held.length, moment).toBeLessThanOrEqual(1)
    }
  })

  it('counts on from what is left when the first number is not', async () => {
    const { host, clock, claims } = world()
    const one = process(host, clock, 'one')
    await one.take()
    const taken = await process(host, clock, 'one').take()
    expect(taken).toBeDefined()
    host.volumes.delete(`${base}.claim.1`)
    const successor = process(host, clock, 'one')
    const claim = await successor.take('blind')
    expect(claims()).toEqual([`${base}.claim.2`, `${base}.claim.3`])
    await claim.release(successor.scope)
    expect(claims()).toEqual([])
  })

  it('that is late is given back only as long as it is still ours', async () => {
    const { host, clock, claims } = world()
    const one = process(host, clock, 'one')
    const two = process(host, clock, 'two')
    const late = await one.take()
    await clock.advance(16 * minute)
    const second = await two.take()
    await second.release(two.scope)
    const third = await two.take()
    // Under the number that the late one had.
    expect(claims()).toEqual([`${base}.claim.1`])
    await expect(late.check(one.scope)).rejects.toMatchObject({ code: 'ClaimLost' })
    await late.release(one.scope)
    expect(claims()).toEqual([`${base}.claim.1`])
    await third.release(two.scope)
    expect(claims()).toEqual([])
  })

  it('stays when its holder may change nothing any more, unless it was told to let go', async () => {
    const { host, clock, claims } = world()
    const one = process(host, clock, 'one')
    const claim = await one.take()
    const mayMutate = () => false
    await claim.release({ ...one.scope, guard: { signal: new AbortController().signal, mayMutate } })
    expect(claims()).toEqual([`${base}.claim.1`])
    const again = await one.take()
    await again.release({ ...one.scope, guard: { signal: AbortSignal.abort(), mayMutate } })
    expect(claims()).toEqual([])
  })

  it('leaves no trace of the question for the time', async () => {
    const { host, clock } = world()
    await process(host, clock, 'one').take()
    await process(host, clock, 'two').try()
    expect(host.changes).toContain(
      'delete .time.' + (host.changes.find((what) => what.startsWith('create .time.'))?.slice(13) ?? ''),
    )
    expect([...host.volumes.keys()]).toEqual([`${base}.claim.1`])
  })

  it('that is no claim is none', async () => {
    const { host, clock } = world()
    for (const name of ['claim.x', 'claim.01', 'claim.0', 'claim.1.bak', 'claim.'])
      host.addVolume(`${base}.${name}`, Buffer.alloc(0))
    host.addVolume('base-debian.qcow2x.claim.1', Buffer.alloc(0))
    await process(host, clock, 'one').take('look')
  })
})

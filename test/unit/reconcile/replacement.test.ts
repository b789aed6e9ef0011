// Unhealthy instances through the handler: when they are replaced, one at a time, over restarts and failures.
import { afterEach, describe, expect, it } from 'vitest'
import type { Verdict } from '../../../src/api/probe.ts'
import { ProviderError } from '../../../src/provider/errors.ts'
import { deleteSteps } from '../../support/fake-provider.ts'
import { baseSpec, ReconcileHarness } from '../../support/reconcile-harness.ts'

const minute = 60_000
const sick: Verdict = { kind: 'unhealthy', reason: 'ProxyUnreachable', message: 'refused' }
const well: Verdict = { kind: 'healthy', latencyMs: 1 }
const spec = { ...baseSpec, healthCheck: { replaceAfter: '30m' } }

let harness = new ReconcileHarness()

/** Names of Proxies that are Ready. */
async function begin(...names: string[]): Promise<ReconcileHarness> {
  harness = new ReconcileHarness()
  harness.start()
  for (const name of names) harness.proxies.apply(name, spec)
  await harness.settle()
  for (const name of names) expect(harness.phase(name)).toBe('Ready')
  return harness
}

afterEach(() => {
  harness.kill()
})

function say(h: ReconcileHarness, name: string, verdict: Verdict): void {
  h.probes.say(`default/${name}`, verdict)
}

/** What is on the hypervisor for that Proxy; another object means another instance. */
function instanceOf(h: ReconcileHarness, name: string) {
  const { uid } = h.proxies.read(`default/${name}`).metadata
  return [...h.hypervisor.instances.values()].find((instance) => instance.uid === uid)
}

const replaced = (h: ReconcileHarness, name: string) =>
  h.reasons(name).filter((reason) => reason === 'ReplacingUnhealthy').length

describe('an unhealthy instance', () => {
  it('is replaced after its time, and an Event says why', async () => {
    const h = await begin('a')
    const before = instanceOf(h, 'a')
    say(h, 'a', sick)
    await h.advance(30 * minute - 1)
    expect(instanceOf(h, 'a')).toBe(before)
    await h.advance(1)
    const after = instanceOf(h, 'a')
    expect(after).toMatchObject({ state: 'running' })
    expect(after).not.toBe(before)
    expect(h.hypervisor.instances.size).toBe(1)
    expect(h.phase('a')).toBe('Ready')
    expect(h.proxies.status('a').replacement).toBeUndefined()
    const event = h.events.find(({ reason }) => reason === 'ReplacingUnhealthy')
    expect(event).toMatchObject({ type: 'Warning' })
    expect(event?.message).toMatch(
      /^replacing instance proxy-\w+, which was unhealthy for 30m \(ProxyUnreachable: refused\)$/,
    )
  })

  it('is never replaced when the spec does not say so', async () => {
    const h = await begin()
    h.proxies.apply('a', baseSpec)
    await h.settle()
    const before = instanceOf(h, 'a')
    say(h, 'a', sick)
    await h.advance(30 * 24 * 60 * minute)
    expect(instanceOf(h, 'a')).toBe(before)
    h.proxies.apply('a', spec)
    await h.settle()
    expect(instanceOf(h, 'a')).not.toBe(before)
  })

  it('that recovers begins anew', async () => {
    const h = await begin('a')
    const before = instanceOf(h, 'a')
    say(h, 'a', sick)
    await h.advance(29 * minute)
    say(h, 'a', well)
    await h.settle()
    say(h, 'a', sick)
    await h.advance(29 * minute)
    expect(instanceOf(h, 'a')).toBe(before)
    await h.advance(minute)
    expect(instanceOf(h, 'a')).not.toBe(before)
  })

  it('is not blamed for a target of the check that is down', async () => {
    const h = await begin('a')
    const before = instanceOf(h, 'a')
    say(h, 'a', { kind: 'unknown', reason: 'TargetUnreachable', message: 'target is down' })
    await h.advance(600 * minute)
    say(h, 'a', sick)
    await h.advance(29 * minute)
    say(h, 'a', { kind: 'unknown', reason: 'TargetUnreachable', message: 'target is down' })
    await h.advance(600 * minute)
    expect(instanceOf(h, 'a')).toBe(before)
    expect(replaced(h, 'a')).toBe(0)
  })

  it('is not replaced while its host cannot be asked', async () => {
    const h = await begin('a')
    const before = instanceOf(h, 'a')
    const away = ProviderError.transient('host away', { code: 'Unreachable' })
    h.hypervisor.fail('get', away, 100_000)
    h.hypervisor.fail('observe', away, 100_000)
    say(h, 'a', sick)
    await h.advance(120 * minute)
    expect(instanceOf(h, 'a')).toBe(before)
    expect(h.proxies.status('a')).toMatchObject({ phase: 'Running', ip: '192.0.2.10' })
    h.hypervisor.heal()
    // its probes have their time first: it may work again
    await h.advance(minute)
    expect(instanceOf(h, 'a')).toBe(before)
    await h.advance(3 * minute)
    expect(instanceOf(h, 'a')).not.toBe(before)
    expect(h.phase('a')).toBe('Ready')
  })

  it('that was paused is not blamed for it', async () => {
    const h = await begin('a')
    const before = instanceOf(h, 'a')
    h.hypervisor.only().state = 'paused'
    say(h, 'a', sick)
    await h.advance(60 * minute)
    h.hypervisor.only().state = 'running'
    await h.advance(minute)
    say(h, 'a', well)
    await h.advance(60 * minute)
    expect(instanceOf(h, 'a')).toBe(before)
    expect(h.phase('a')).toBe('Ready')
  })

  it('that works again while it is suspended is replaced no more', async () => {
    const h = await begin('a')
    const before = instanceOf(h, 'a')
    h.hypervisor.fail('deleteBegin', ProviderError.transient('host away', { code: 'Unreachable' }), 100_000)
    say(h, 'a', sick)
    await h.advance(31 * minute)
    expect(h.proxies.status('a').replacement).toMatchObject({ deleted: false })
    h.proxies.apply('a', { ...spec, suspend: true })
    await h.settle()
    h.hypervisor.heal()
    say(h, 'a', well)
    await h.advance(minute)
    expect(h.phase('a')).toBe('Ready')
    h.proxies.apply('a', spec)
    await h.advance(60 * minute)
    expect(instanceOf(h, 'a')).toBe(before)
    expect(h.proxies.status('a').replacement).toBeUndefined()
  })

  it('whose host went away after it was read is not replaced either', async () => {
    const h = await begin('a')
    const before = instanceOf(h, 'a')
    say(h, 'a', sick)
    await h.advance(20 * minute)
    const away = ProviderError.transient('host away', { code: 'Unreachable' })
    for (const step of ['get', 'observe', 'deleteBegin'] as const) h.hypervisor.fail(step, away, 100_000)
    await h.advance(120 * minute)
    expect(instanceOf(h, 'a')).toBe(before)
    expect(h.hypervisor.steps.map(({ step }) => step)).not.toContain('deleteBegin')
    expect(h.proxies.status('a')).toMatchObject({ phase: 'Running', ip: '192.0.2.10' })
  })

  it('is replaced again only after its time when the next one does not work either', async () => {
    const h = await begin('a')
    h.probes.answer = sick
    say(h, 'a', sick)
    await h.advance(30 * minute)
    expect(replaced(h, 'a')).toBe(1)
    await h.advance(30 * minute - 1000)
    expect(replaced(h, 'a')).toBe(1)
    await h.advance(2000)
    expect(replaced(h, 'a')).toBe(2)
    expect(h.hypervisor.instances.size).toBe(1)
  })
})

describe('a restart of the operator', () => {
  it('does not begin the time anew, and waits until the probes say it again', async () => {
    const h = await begin('a')
    const before = instanceOf(h, 'a')
    h.probes.answer = { kind: 'pending' }
    say(h, 'a', sick)
    await h.advance(25 * minute)
    await h.restart()
    await h.advance(10 * minute)
    expect(h.condition('a', 'Healthy')).toMatchObject({ status: 'False' })
    expect(instanceOf(h, 'a')).toBe(before)
    say(h, 'a', sick)
    await h.settle()
    expect(instanceOf(h, 'a')).not.toBe(before)
  })

  it('in that the proxy has recovered replaces nothing', async () => {
    const h = await begin('a')
    const before = instanceOf(h, 'a')
    say(h, 'a', sick)
    await h.advance(25 * minute)
    h.kill()
    await h.clock.advance(60 * minute)
    h.start()
    await h.settle()
    expect(h.phase('a')).toBe('Ready')
    await h.advance(60 * minute)
    expect(instanceOf(h, 'a')).toBe(before)
  })

  it.each(deleteSteps)('in a replacement at %s carries it on: nothing is left of the unhealthy one', async (step) => {
    const h = await begin('a')
    const before = instanceOf(h, 'a')
    const hold = h.hypervisor.hold(step)
    say(h, 'a', sick)
    await h.advance(30 * minute)
    await hold.reached
    const removals = () => h.hypervisor.steps.filter((taken) => taken.step === 'removeVolume').length
    const removed = removals()
    h.kill()
    h.start()
    await h.settle()
    expect(removals()).toBe(removed + 1)
    expect(instanceOf(h, 'a')).not.toBe(before)
    expect(h.hypervisor.instances.size).toBe(1)
    expect(h.phase('a')).toBe('Ready')
    expect(h.proxies.status('a').replacement).toBeUndefined()
    expect(h.hypervisor.mostMutationsInFlight).toBe(1)
  })

  it.each(['before', 'after'] as const)(
    '%s any request in a replacement leaves one instance, a new one',
    async (when) => {
      let last = false
      for (let request = 1; !last; request++) {
        const h = await begin('a')
        const before = instanceOf(h, 'a')
        const operator = { crashed: false }
        const crash = () => {
          operator.crashed = true
          h.kill()
        }
        say(h, 'a', sick)
        await h.advance(29 * minute)
        h.proxies.crashPoint = { request: h.proxies.requests + request, when, crash }
        await h.clock.advance(minute)
        await h.settle()
        last = !operator.crashed
        h.proxies.crashPoint = undefined
        if (operator.crashed) {
          h.probes.answer = { kind: 'pending' }
          h.start()
          await h.settle()
          if (instanceOf(h, 'a') === before) say(h, 'a', sick)
          await h.advance(2 * minute)
          say(h, 'a', well)
          await h.settle()
        }
        expect(instanceOf(h, 'a')).not.toBe(before)
        expect(h.hypervisor.instances.size).toBe(1)
        expect(h.phase('a')).toBe('Ready')
        expect(h.proxies.status('a').replacement).toBeUndefined()
        expect(request).toBeLessThan(50)
        h.kill()
        if (last) {
          expect(request).toBeGreaterThan(4)
          h.start()
        }
      }
    },
  )
})

describe('instances that swapped their addresses', () => {
  it('are followed, and neither is offered at the address of the other', async () => {
    const h = await begin()
    for (const name of ['a', 'b']) h.proxies.apply(name, baseSpec)
    await h.settle()
    const addresses = ['a', 'b'].map((name) => h.proxies.status(name).ip)
    const [a, b] = ['a', 'b'].map((name) => instanceOf(h, name))
    if (a === undefined || b === undefined) throw new Error('two instances were made')
    ;[a.ip, b.ip] = [b.ip, a.ip]
    for (const name of ['a', 'b']) say(h, name, sick)
    await h.advance(2 * minute)
    expect(['a', 'b'].map((name) => h.proxies.status(name).ip)).toEqual(addresses.toReversed())
  })
})

describe('replacements of one provider', () => {
  it('are made one at a time, each until the next one works', async () => {
    const h = await begin('a', 'b', 'c')
    const before = ['a', 'b', 'c'].map((name) => instanceOf(h, name))
    h.probes.answer = { kind: 'pending' }
    for (const name of ['a', 'b', 'c']) say(h, name, sick)
    await h.advance(30 * minute)
    const isReplaced = () => ['a', 'b', 'c'].filter((name, i) => instanceOf(h, name) !== before[i])
    const [first = ''] = isReplaced()
    expect(isReplaced()).toHaveLength(1)
    await h.advance(10 * minute)
    expect(isReplaced()).toEqual([first])
    say(h, first, well)
    await h.advance(10_000)
    expect(isReplaced()).toHaveLength(2)
    const second = isReplaced().find((name) => name !== first) ?? ''
    await h.restart()
    for (const name of ['a', 'b', 'c']) if (!isReplaced().includes(name)) say(h, name, sick)
    await h.advance(5 * minute)
    expect(isReplaced()).toHaveLength(2)
    say(h, second, well)
    await h.advance(10_000)
    expect(isReplaced()).toHaveLength(3)
    expect(h.hypervisor.instances.size).toBe(3)
  })

  it('do not roll through all of them when the time is short', async () => {
    const h = await begin()
    const short = { ...baseSpec, healthCheck: { replaceAfter: '1m' } }
    for (const name of ['a', 'b', 'c']) h.proxies.apply(name, short)
    await h.settle()
    const hold = h.hypervisor.hold('start', { stubborn: true })
    for (const name of ['a', 'b', 'c']) say(h, name, sick)
    await h.advance(20 * minute)
    expect(['a', 'b', 'c'].filter((name) => replaced(h, name) > 0)).toHaveLength(1)
    hold.release()
    await h.settle()
  })

  it('give way when one cannot be made at all', async () => {
    const h = await begin('a', 'b')
    h.hypervisor.fail('begin', ProviderError.permanent('spec', 'no such image', { code: 'ImageNotFound' }))
    for (const name of ['a', 'b']) say(h, name, sick)
    await h.advance(30 * minute + 11_000)
    expect(['a', 'b'].map((name) => h.phase(name)).sort()).toEqual(['Failed', 'Ready'])
    expect(replaced(h, 'a') + replaced(h, 'b')).toBe(2)
  })

  it('give way when one does not end', async () => {
    const h = await begin('a', 'b')
    const before = instanceOf(h, 'b')
    const hold = h.hypervisor.hold('destroy', { stubborn: true })
    say(h, 'a', sick)
    await h.advance(minute)
    say(h, 'b', sick)
    await h.advance(29 * minute)
    expect(replaced(h, 'a')).toBeGreaterThan(0)
    await h.advance(25 * minute)
    expect(instanceOf(h, 'b')).toBe(before)
    await h.advance(6 * minute)
    expect(instanceOf(h, 'b')).not.toBe(before)
    hold.release()
    await h.advance(30 * minute)
    expect(h.hypervisor.instances.size).toBe(2)
    expect(h.phase('a')).toBe('Ready')
  })

  it('do not wait for one of another provider, one that is suspended, or one that is being deleted', async () => {
    for (const clear of ['suspend', 'delete', 'provider'] as const) {
      const h = await begin('a', 'b')
      const before = instanceOf(h, 'b')
      const hold = h.hypervisor.hold('destroy', { stubborn: true })
      say(h, 'a', sick)
      await h.advance(30 * minute)
      await hold.reached
      if (clear === 'suspend') h.proxies.apply('a', { ...spec, suspend: true })
      if (clear === 'delete') h.proxies.delete('a')
      if (clear === 'provider') {
        const other = h.configured.get('fake')
        if (other !== undefined) h.configured.set('other', other)
        h.proxies.delete('b')
        h.proxies.apply('c', { ...spec, provider: 'other' })
        await h.settle()
      }
      const name = clear === 'provider' ? 'c' : 'b'
      const there = clear === 'provider' ? instanceOf(h, 'c') : before
      say(h, name, sick)
      await h.advance(31 * minute)
      expect(instanceOf(h, name)).not.toBe(there)
      hold.release()
      await h.settle()
      h.kill()
    }
    harness.start()
  })
})

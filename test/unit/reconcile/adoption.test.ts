// Instances with the mark of another type through the handler: they are given ours while they go on working.
import { afterEach, describe, expect, it } from 'vitest'
import { ProviderError } from '../../../src/provider/errors.ts'
import { baseSpec, ReconcileHarness } from '../../support/reconcile-harness.ts'

const minute = 60_000
let harness = new ReconcileHarness()

/** A Proxy that is Ready on an instance that another type made, and an operator that has not seen it yet. */
async function inherit(): Promise<ReconcileHarness> {
  harness = new ReconcileHarness()
  harness.start()
  harness.proxies.apply('a', baseSpec)
  await harness.settle()
  expect(harness.phase('a')).toBe('Ready')
  harness.kill()
  harness.hypervisor.only().unadopted = true
  harness.hypervisor.steps.length = 0
  return harness
}

const creates = (h: ReconcileHarness) => h.hypervisor.steps.filter(({ step }) => step === 'begin').length

afterEach(() => {
  harness.kill()
})

describe('an instance that another type made', () => {
  it('is given our mark once, and the Proxy never stops being Ready', async () => {
    const h = await inherit()
    const instance = h.hypervisor.only()
    const hold = h.hypervisor.hold('define')
    h.start()
    await hold.reached
    expect(h.phase('a')).toBe('Ready')
    expect(h.proxies.status('a').endpoint).toBeDefined()
    hold.release()
    await h.settle()
    await h.advance(10 * minute)
    expect(h.hypervisor.only()).toBe(instance)
    expect(instance.unadopted).toBe(false)
    expect(creates(h)).toBe(1)
    expect(h.phase('a')).toBe('Ready')
    expect(h.reasons('a')).toContain('Adopting')
  })

  it.each([
    ProviderError.permanent('environment', 'no permission', { code: 'Forbidden' }),
    ProviderError.transient('host away', { code: 'Unreachable' }),
    ProviderError.quotaExceeded('pool is full', { code: 'QuotaExceeded' }),
  ])('goes on working when that fails ($kind), and it is tried again with pauses', async (error) => {
    const h = await inherit()
    h.hypervisor.fail('begin', error, 3)
    h.start()
    await h.settle()
    expect(creates(h)).toBe(1)
    expect(h.phase('a')).toBe('Ready')
    expect(h.proxies.status('a').latch).toBeUndefined()
    await h.advance(minute / 60)
    expect(creates(h)).toBeLessThan(3)
    await h.advance(30 * minute)
    expect(h.events.find(({ reason }) => reason === 'AdoptionFailed')?.message).toContain(error.message)
    expect(creates(h)).toBe(4)
    expect(h.hypervisor.only().unadopted).toBe(false)
    expect(h.phase('a')).toBe('Ready')
  })

  it('is started when it was stopped after that failed', async () => {
    const h = await inherit()
    h.hypervisor.fail('begin', ProviderError.permanent('spec', 'no such image', { code: 'ImageNotFound' }))
    h.start()
    await h.settle()
    h.hypervisor.only().state = 'stopped'
    h.proxies.apply('a', { ...baseSpec, suspend: true })
    await h.advance(minute)
    h.proxies.apply('a', baseSpec)
    await h.advance(10 * minute)
    expect(h.hypervisor.only()).toMatchObject({ state: 'running', unadopted: false })
    expect(h.phase('a')).toBe('Ready')
  })

  it('of another name is not made a second time', async () => {
    const h = await inherit()
    const proxy = h.proxies.read('default/a')
    h.proxies.objects.set('default/a', { ...proxy, status: { ...proxy.status, instanceName: 'proxy-of-old' } })
    h.start()
    await h.advance(10 * minute)
    expect(creates(h)).toBe(0)
    expect(h.phase('a')).toBe('Ready')
  })

  it('is left as it is while the Proxy is suspended', async () => {
    const h = await inherit()
    h.proxies.apply('a', { ...baseSpec, suspend: true })
    h.start()
    await h.settle()
    await h.advance(10 * minute)
    expect(h.hypervisor.steps.map(({ step }) => step)).not.toContain('begin')
    expect(h.hypervisor.only().unadopted).toBe(true)
    h.proxies.apply('a', baseSpec)
    await h.advance(minute)
    expect(h.hypervisor.only().unadopted).toBe(false)
    expect(h.phase('a')).toBe('Ready')
  })
})

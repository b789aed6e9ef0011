// Suspension through the handler: what is on the hypervisor stays as it is, is probed, and goes on when it is over.
import { afterEach, describe, expect, it } from 'vitest'
import { ProviderError } from '../../../src/provider/errors.ts'
import { createSteps, deleteSteps } from '../../support/fake-provider.ts'
import { baseSpec, ReconcileHarness } from '../../support/reconcile-harness.ts'

let harness = new ReconcileHarness()

function begin(): ReconcileHarness {
  harness = new ReconcileHarness()
  harness.start()
  return harness
}

afterEach(() => {
  harness.kill()
})

const suspended = { ...baseSpec, suspend: true }
const larger = { ...baseSpec, placement: { ...baseSpec.placement, machineType: 'large' } }

/** Names of the steps that change something, since the beginning. */
const changes = (h: ReconcileHarness) =>
  h.hypervisor.steps.map(({ step }) => step).filter((step) => step !== 'get' && step !== 'observe')

async function ready(): Promise<ReconcileHarness> {
  const h = begin()
  h.proxies.apply('a', baseSpec)
  await h.settle()
  expect(h.phase('a')).toBe('Ready')
  return h
}

/** Whatever happens in a day and over a restart, nothing is changed. */
async function expectStill(h: ReconcileHarness, act: () => void = () => undefined): Promise<void> {
  const [contents, before] = [h.hypervisor.contents, changes(h).length]
  act()
  await h.advance(600_000)
  await h.restart()
  await h.advance(86_400_000)
  expect(changes(h).slice(before)).toEqual([])
  expect(h.hypervisor.contents).toEqual(contents)
}

describe('a suspended Proxy', () => {
  it('is not made, says so, and is made when that is over', async () => {
    const h = begin()
    h.proxies.apply('a', suspended)
    await h.settle()
    await expectStill(h)
    expect(h.phase('a')).toBe('Pending')
    const name = 'instance proxy-[0-9a-f]{20}'
    expect(h.condition('a', 'Provisioned')).toMatchObject({ status: 'False', reason: 'Suspended' })
    expect(h.condition('a', 'Provisioned')?.message).toMatch(
      new RegExp(`^${name} is not created; spec.suspend is true`),
    )
    expect(h.reasons('a')).toEqual(['Suspended'])
    h.proxies.apply('a', baseSpec)
    await h.settle()
    expect(h.phase('a')).toBe('Ready')
    expect(h.condition('a', 'Provisioned')).toMatchObject({ status: 'True', reason: 'InstanceRunning' })
    expect(h.reasons('a').slice(1, 3)).toEqual(['Resumed', 'Creating'])
  })

  it('goes on being observed and probed', async () => {
    const h = await ready()
    h.proxies.apply('a', suspended)
    await h.settle()
    expect(h.proxies.status('a')).toMatchObject({ phase: 'Ready', ip: '192.0.2.10', observedGeneration: 2 })
    expect(h.condition('a', 'Provisioned')).toMatchObject({ status: 'True', reason: 'Suspended' })
    h.hypervisor.only().ip = '192.0.2.99'
    h.probes.say('default/a', { kind: 'unhealthy', reason: 'ProxyUnreachable', message: 'refused' })
    await h.settle()
    expect(h.proxies.status('a')).toMatchObject({ phase: 'Ready', ip: '192.0.2.99' })
    h.probes.say('default/a', { kind: 'unhealthy', reason: 'ProxyUnreachable', message: 'refused' })
    await h.settle()
    expect(h.phase('a')).toBe('Running')
    expect(h.reasons('a').slice(4)).toEqual(['Suspended', 'Unhealthy', 'AddressChanged', 'Healthy', 'Unhealthy'])
    const writes = h.proxies.statusWrites
    await h.advance(3_600_000)
    expect(h.proxies.statusWrites).toBe(writes)
  })

  it('is not started, and is started when that is over', async () => {
    const h = await ready()
    h.proxies.apply('a', suspended)
    await h.settle()
    await expectStill(h, () => (h.hypervisor.only().state = 'stopped'))
    expect(h.hypervisor.only().state).toBe('stopped')
    expect(h.phase('a')).toBe('Provisioning')
    expect(h.condition('a', 'Provisioned')?.message).toContain('is stopped and not started')
    h.proxies.apply('a', baseSpec)
    await h.settle()
    expect(h.hypervisor.only().state).toBe('running')
    expect(h.phase('a')).toBe('Ready')
    expect(h.reasons('a')).toContain('Resumed')
  })

  it('is seen running again when somebody else starts it', async () => {
    const h = await ready()
    h.proxies.apply('a', suspended)
    h.hypervisor.only().state = 'stopped'
    await h.advance(30_000)
    expect(h.phase('a')).toBe('Provisioning')
    h.hypervisor.only().state = 'running'
    await h.advance(30_000)
    expect(h.phase('a')).toBe('Ready')
  })

  it('is not made again, and is when that is over', async () => {
    const h = await ready()
    h.proxies.apply('a', suspended)
    await h.settle()
    h.hypervisor.instances.clear()
    await expectStill(h)
    expect(h.condition('a', 'Provisioned')?.message).toContain('is gone and not created again')
    h.proxies.apply('a', baseSpec)
    await h.settle()
    expect(h.phase('a')).toBe('Ready')
    expect(h.hypervisor.instances.size).toBe(1)
  })

  it('is not replaced, works on meanwhile, and is replaced when that is over', async () => {
    const h = await ready()
    const { specHash } = h.hypervisor.only()
    await expectStill(h, () => h.proxies.apply('a', { ...larger, suspend: true }))
    expect(h.proxies.status('a')).toMatchObject({ phase: 'Ready', specHash, ip: '192.0.2.10' })
    expect(h.condition('a', 'Provisioned')?.message).toContain('is not replaced')
    h.proxies.apply('a', larger)
    await h.settle()
    expect(h.hypervisor.only().specHash).not.toBe(specHash)
    expect(h.phase('a')).toBe('Ready')
    expect(h.reasons('a')).toContain('Replacing')
  })

  it('is not deleted, and is when that is over', async () => {
    const h = await ready()
    h.proxies.apply('a', suspended)
    await h.settle()
    await expectStill(h, () => h.proxies.delete('a'))
    expect(h.phase('a')).toBe('Deleting')
    expect(h.condition('a', 'Provisioned')).toMatchObject({ status: 'False', reason: 'Suspended' })
    expect(h.condition('a', 'Provisioned')?.message).toContain('is not deleted')
    expect(h.reasons('a').filter((reason) => reason === 'Suspended')).toHaveLength(2)
    h.proxies.apply('a', baseSpec)
    await h.settle()
    expect(h.hypervisor.contents).toEqual([])
    expect(h.proxies.objects.size).toBe(0)
  })

  it('is deleted at once when nothing was ever made', async () => {
    const h = begin()
    h.proxies.apply('a', suspended)
    await h.settle()
    h.proxies.delete('a')
    await h.settle()
    expect(h.proxies.objects.size).toBe(0)
    expect(changes(h)).toEqual([])
  })

  it('does not try again what failed, and does when that is over', async () => {
    const h = begin()
    h.hypervisor.fail('start', ProviderError.transient('no luck', { code: 'StartFailed' }))
    h.proxies.apply('a', baseSpec)
    await h.settle()
    h.proxies.apply('a', suspended)
    await expectStill(h)
    expect(h.phase('a')).toBe('Provisioning')
    h.proxies.apply('a', baseSpec)
    await h.settle()
    expect(h.phase('a')).toBe('Ready')
    expect(h.condition('a', 'Provisioned')).toMatchObject({ status: 'True' })
  })

  it('that is resumed tells what it does at once, also after a failure', async () => {
    const h = begin()
    h.hypervisor.fail('start', ProviderError.transient('no luck', { code: 'StartFailed' }))
    h.proxies.apply('a', baseSpec)
    await h.settle()
    h.proxies.apply('a', suspended)
    await h.advance(600_000)
    const hold = h.hypervisor.hold('start')
    h.proxies.apply('a', baseSpec)
    await hold.reached
    expect(h.condition('a', 'Provisioned')).toMatchObject({ status: 'False', reason: 'Creating' })
    hold.release()
  })

  it('that failed for good stays Failed, and its latch ends as ever', async () => {
    const h = begin()
    h.hypervisor.fail('volume', ProviderError.permanent('spec', 'no such image', { code: 'ImageNotFound' }))
    h.proxies.apply('a', baseSpec)
    await h.settle()
    h.proxies.apply('a', suspended)
    await expectStill(h)
    expect(h.phase('a')).toBe('Failed')
    expect(h.condition('a', 'Provisioned')?.message).toContain('no such image')
    h.proxies.apply('a', suspended, { 'egressproxies.dev/retry': '1' })
    await expectStill(h)
    expect(h.phase('a')).toBe('Failed')
    h.proxies.apply('a', baseSpec, { 'egressproxies.dev/retry': '1' })
    await h.settle()
    expect(h.phase('a')).toBe('Ready')
  })

  it('is not replaced for being unhealthy, and is when that is over and it still is', async () => {
    const h = begin()
    const healthCheck = { replaceAfter: '10m' }
    h.proxies.apply('a', { ...suspended, healthCheck })
    h.proxies.apply('a', { ...baseSpec, healthCheck })
    await h.settle()
    const before = h.hypervisor.only()
    h.proxies.apply('a', { ...suspended, healthCheck })
    h.probes.answer = { kind: 'unhealthy', reason: 'ProxyUnreachable', message: 'refused' }
    h.probes.say('default/a', h.probes.answer)
    await h.settle()
    await expectStill(h)
    expect(h.hypervisor.only()).toBe(before)
    expect(h.condition('a', 'Provisioned')?.message).toContain('is not replaced')
    h.probes.answer = { kind: 'healthy', latencyMs: 1 }
    h.proxies.apply('a', { ...baseSpec, healthCheck })
    await h.settle()
    expect(h.hypervisor.only()).not.toBe(before)
    expect(h.reasons('a')).toContain('ReplacingUnhealthy')
  })
})

describe('suspending', () => {
  it.each(createSteps)('during a create at %s ends it there, and it is carried on later', async (step) => {
    const h = begin()
    const hold = h.hypervisor.hold(step)
    h.proxies.apply('a', baseSpec)
    await hold.reached
    const taken = changes(h).length
    h.proxies.apply('a', suspended)
    await h.settle()
    expect(h.hypervisor.mutationsInFlight).toBe(0)
    expect(changes(h).slice(taken)).toEqual([])
    expect(h.reasons('a')).toContain('CreateAborted')
    await expectStill(h)
    expect(h.condition('a', 'Provisioned')).toMatchObject({ reason: 'Suspended' })
    h.proxies.apply('a', baseSpec)
    await h.settle()
    expect(h.phase('a')).toBe('Ready')
    expect(h.hypervisor.instances.size).toBe(1)
    expect(h.hypervisor.mostMutationsInFlight).toBe(1)
  })

  it('waits for a call that is on the wire, and writes down what it made', async () => {
    const h = begin()
    const hold = h.hypervisor.hold('return')
    h.proxies.apply('a', baseSpec)
    await hold.reached
    hold.release()
    h.proxies.apply('a', suspended)
    await h.settle()
    expect(h.phase('a')).toBe('Ready')
    expect(h.proxies.status('a').providerID).toBe(h.hypervisor.only().providerID)
    expect(h.condition('a', 'Provisioned')).toMatchObject({ status: 'True', reason: 'Suspended' })
  })

  it.each(deleteSteps)('during a deletion at %s ends it there, and it is carried on later', async (step) => {
    const h = await ready()
    const hold = h.hypervisor.hold(step)
    h.proxies.delete('a')
    await hold.reached
    const taken = changes(h).length
    h.proxies.apply('a', suspended)
    await h.settle()
    expect(changes(h).slice(taken)).toEqual([])
    expect(h.reasons('a')).toContain('DeleteAborted')
    await expectStill(h)
    expect(h.proxies.objects.size).toBe(1)
    h.proxies.apply('a', baseSpec)
    await h.settle()
    expect(h.hypervisor.contents).toEqual([])
    expect(h.proxies.objects.size).toBe(0)
    expect(h.hypervisor.mostMutationsInFlight).toBe(1)
  })

  it.each(deleteSteps)('during a replacement at %s ends it there, and it is carried on later', async (step) => {
    const h = await ready()
    const { specHash } = h.hypervisor.only()
    const hold = h.hypervisor.hold(step)
    h.proxies.apply('a', larger)
    await hold.reached
    h.proxies.apply('a', { ...larger, suspend: true })
    await h.settle()
    await expectStill(h)
    h.proxies.apply('a', larger)
    await h.settle()
    expect(h.phase('a')).toBe('Ready')
    expect(h.hypervisor.only().specHash).not.toBe(specHash)
    expect(h.hypervisor.mostMutationsInFlight).toBe(1)
  })

  it.each(createSteps)('while nobody is there, after a kill in a create at %s', async (step) => {
    const h = begin()
    const hold = h.hypervisor.hold(step)
    h.proxies.apply('a', baseSpec)
    await hold.reached
    h.kill()
    h.proxies.apply('a', suspended)
    h.start()
    await h.settle()
    await expectStill(h)
    const isRecorded = h.proxies.status('a').intents !== undefined
    expect(isRecorded).toBe(step !== 'begin' && step !== 'record')
    await expectStill(h, () => h.proxies.delete('a'))
    expect(h.proxies.objects.size).toBe(isRecorded ? 1 : 0)
    if (isRecorded) h.proxies.apply('a', baseSpec)
    await h.settle()
    expect(h.hypervisor.contents).toEqual([])
    expect(h.proxies.objects.size).toBe(0)
  })

  it('and resuming before the operation has let go leaves one instance', async () => {
    const h = begin()
    const hold = h.hypervisor.hold('define', { stubborn: true })
    h.proxies.apply('a', baseSpec)
    await hold.reached
    h.proxies.apply('a', suspended)
    await h.settle()
    expect(h.hypervisor.mutationsInFlight).toBe(1)
    h.proxies.apply('a', baseSpec)
    await h.settle()
    hold.release()
    await h.settle()
    expect(h.phase('a')).toBe('Ready')
    expect(h.hypervisor.mostMutationsInFlight).toBe(1)
    expect(h.hypervisor.instances.size).toBe(1)
  })
})

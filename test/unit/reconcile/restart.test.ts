// The operator killed at every step and at every request, and started again: one instance, then none.
import fc from 'fast-check'
import { afterEach, describe, expect, it } from 'vitest'
import { KubeError } from '../../../src/kube/errors.ts'
import { ProviderError } from '../../../src/provider/errors.ts'
import { createSteps, deleteSteps, type Step } from '../../support/fake-provider.ts'
import { baseSpec, ReconcileHarness } from '../../support/reconcile-harness.ts'

const larger = { ...baseSpec, placement: { ...baseSpec.placement, machineType: 'large' } }
let running: ReconcileHarness | undefined

function begin(): ReconcileHarness {
  const h = new ReconcileHarness()
  h.start()
  running = h
  return h
}

afterEach(() => {
  running?.kill()
  running = undefined
})

function expectOne(h: ReconcileHarness): void {
  const instance = h.hypervisor.only()
  expect(instance.uid).toBe(h.proxies.read('default/a').metadata.uid)
  expect(h.hypervisor.contents).toEqual([
    `${instance.target}/${instance.name}`,
    `hosts/${instance.target}/domains/${instance.name}`,
  ])
  expect(h.proxies.status('a')).toMatchObject({
    phase: 'Ready',
    providerID: instance.providerID,
    specHash: instance.specHash,
  })
}

function expectNone(h: ReconcileHarness): void {
  expect(h.hypervisor.contents).toEqual([])
  expect(h.proxies.objects.size).toBe(0)
}

describe('SIGKILL', () => {
  it.each(createSteps)('in a create at %s', async (step) => {
    const h = begin()
    const hold = h.hypervisor.hold(step)
    h.proxies.apply('a', baseSpec)
    await hold.reached
    await h.restart()
    expectOne(h)
    h.proxies.delete('a')
    await h.settle()
    expectNone(h)
  })

  it.each(createSteps)('in a create at %s, deleted while nobody was there', async (step) => {
    const h = begin()
    const hold = h.hypervisor.hold(step)
    h.proxies.apply('a', baseSpec)
    await hold.reached
    h.kill()
    h.proxies.delete('a')
    h.start()
    await h.settle()
    expectNone(h)
  })

  it.each(createSteps)('in a create at %s, changed while nobody was there', async (step) => {
    const h = begin()
    const hold = h.hypervisor.hold(step)
    h.proxies.apply('a', baseSpec)
    await hold.reached
    h.kill()
    h.proxies.apply('a', larger)
    h.start()
    await h.settle()
    expectOne(h)
  })

  it.each(deleteSteps)('in a delete at %s', async (step) => {
    const h = begin()
    h.proxies.apply('a', baseSpec)
    await h.settle()
    const hold = h.hypervisor.hold(step)
    h.proxies.delete('a')
    await hold.reached
    await h.restart()
    expectNone(h)
  })

  it.each(deleteSteps)('in a replacement at %s', async (step) => {
    const h = begin()
    h.proxies.apply('a', baseSpec)
    await h.settle()
    const hold = h.hypervisor.hold(step)
    h.proxies.apply('a', larger)
    await hold.reached
    await h.restart()
    expectOne(h)
  })

  it.each(['before', 'after'] as const)('%s each request to the API server', async (when) => {
    let request = 0
    for (let crashes = true; crashes;) {
      request++
      const h = begin()
      let crashed = false
      const crash = () => {
        crashed = true
        h.kill()
      }
      h.proxies.crashPoint = { request, when, crash }
      const pending = () => h.proxies.crashPoint !== undefined
      const revive = async () => {
        await h.settle()
        if (!crashed) return
        crashed = false
        h.proxies.crashPoint = undefined
        h.start()
        await h.settle()
      }
      h.proxies.apply('a', baseSpec)
      await revive()
      expectOne(h)
      h.proxies.apply('a', larger)
      await revive()
      expectOne(h)
      h.proxies.delete('a')
      await revive()
      expectNone(h)
      expect(h.hypervisor.mostMutationsInFlight).toBe(1)
      // the story ended before that many requests: every one of them was a crash point once
      crashes = !pending()
      h.kill()
    }
    running = undefined
    expect(request).toBeGreaterThan(15)
  })

  it('SIGTERM lets go before it ends', async () => {
    const h = begin()
    const hold = h.hypervisor.hold('define', { stubborn: true })
    h.proxies.apply('a', baseSpec)
    await hold.reached
    const order: string[] = []
    const stopping = h.stop().then(() => order.push('stopped'))
    await h.settle()
    order.push('released')
    hold.release()
    await stopping
    expect(order).toEqual(['released', 'stopped'])
    expect(h.hypervisor.mutationsInFlight).toBe(0)
    h.start()
    await h.settle()
    expectOne(h)
  })
})

describe('a watch that lags', () => {
  it('leads to nothing being made or told twice', async () => {
    const h = begin()
    h.proxies.apply('a', baseSpec)
    h.proxies.lagging = true
    await h.settle()
    expectOne(h)
    h.proxies.deliver()
    await h.settle()
    expectOne(h)
    expect(h.hypervisor.steps.filter(({ step }) => step === 'begin')).toHaveLength(1)
    expect(h.reasons('a').filter((reason) => reason === 'Creating')).toHaveLength(1)
  })

  it('refuses an intent for an object that is being deleted', async () => {
    const h = begin()
    const hold = h.hypervisor.hold('record', { stubborn: true })
    h.proxies.apply('a', baseSpec)
    await hold.reached
    h.proxies.lagging = true
    h.proxies.delete('a')
    hold.release()
    await h.settle()
    expect(h.hypervisor.steps.map(({ step }) => step)).not.toContain('volume')
    h.proxies.deliver()
    await h.settle()
    expectNone(h)
  })

  it('refuses an intent for an object whose name belongs to another', async () => {
    const h = begin()
    const hold = h.hypervisor.hold('record', { stubborn: true })
    h.proxies.apply('a', baseSpec)
    await hold.reached
    h.proxies.lagging = true
    h.proxies.forceDelete('a')
    h.proxies.apply('a', baseSpec)
    hold.release()
    await h.settle()
    expect(h.hypervisor.steps.map(({ step }) => step)).not.toContain('volume')
    expect(h.proxies.status('a').intents).toBeUndefined()
    h.proxies.deliver()
    await h.advance(10_000)
    expectOne(h)
  })
})

describe('an API server that is away', () => {
  it('loses no create, no change and no deletion', async () => {
    const h = begin()
    const away = new KubeError('no answer', { code: 'KUBE_UNREACHABLE', status: 0, reason: 'Unreachable' })
    for (const name of ['a', 'b', 'c']) h.proxies.apply(name, baseSpec)
    await h.settle()
    const hold = h.hypervisor.hold('return', { stubborn: true })
    h.proxies.apply('d', baseSpec)
    await hold.reached
    h.proxies.delete('a')
    h.proxies.apply('b', larger)
    h.proxies.failure = away
    hold.release()
    await h.advance(30_000)
    h.proxies.failure = undefined
    await h.advance(120_000)
    expect([...h.proxies.objects.keys()].sort()).toEqual(['default/b', 'default/c', 'default/d'])
    for (const name of ['b', 'c', 'd']) expect(h.phase(name)).toBe('Ready')
    // what a create returned while nobody could write it down was kept: b twice, for its specs, and the others once
    expect(h.hypervisor.steps.filter(({ step }) => step === 'begin')).toHaveLength(5)
    expect(h.hypervisor.instances.size).toBe(3)
    expect(h.hypervisor.volumes.size).toBe(3)
  })
})

type Command =
  | { readonly kind: 'apply'; readonly size: string; readonly zone: string }
  | { readonly kind: 'delete' | 'kill' | 'stopInstance' | 'loseInstance' | 'moveInstance' }
  | { readonly kind: 'fail'; readonly step: Step; readonly error: number }
  | { readonly kind: 'hold'; readonly step: Step; readonly stubborn: boolean }
  | { readonly kind: 'release' | 'lag' | 'deliver' | 'apiAway' | 'apiBack' | 'configure' }
  | { readonly kind: 'advance'; readonly ms: number }

const errors = [
  ProviderError.transient('away', { code: 'Unreachable' }),
  ProviderError.quotaExceeded('full', { code: 'PoolFull' }),
  ProviderError.permanent('environment', 'denied', { code: 'Unauthorized', target: 'host-a' }),
  ProviderError.permanent('spec', 'wrong', { code: 'ImageNotFound' }),
] as const
const steps = fc.constantFrom<Step[]>(...createSteps, ...deleteSteps, 'get', 'observe')
const commands = fc.array(
  fc.oneof(
    fc.record({
      kind: fc.constant('apply' as const),
      size: fc.constantFrom('small', 'large'),
      zone: fc.constantFrom('host-a', 'host-b'),
    }),
    fc.record({
      kind: fc.constantFrom(
        ...(['delete', 'kill', 'stopInstance', 'loseInstance', 'moveInstance', 'release'] as const),
        ...(['lag', 'deliver', 'apiAway', 'apiBack', 'configure'] as const),
      ),
    }),
    fc.record({ kind: fc.constant('fail' as const), step: steps, error: fc.nat(errors.length - 1) }),
    fc.record({ kind: fc.constant('hold' as const), step: steps, stubborn: fc.boolean() }),
    fc.record({ kind: fc.constant('advance' as const), ms: fc.constantFrom(0, 250, 5000, 60_000, 700_000) }),
  ),
  { maxLength: 25 },
)

describe('any story', () => {
  it('ends with what the spec says, one instance at most at any time, and nothing after a deletion', async () => {
    const story = async (list: readonly Command[]) => {
      const h = begin()
      const holds: { release(): void }[] = []
      const away = new KubeError('no answer', { code: 'KUBE_UNREACHABLE', status: 0, reason: 'Unreachable' })
      const spec = (size: string, zone: string) => ({
        ...baseSpec,
        placement: { ...baseSpec.placement, machineType: size, zone },
      })
      const exists = () => h.proxies.objects.get('default/a')?.metadata.deletionTimestamp === undefined
      h.proxies.apply('a', spec('small', 'host-a'))
      for (const command of list) {
        switch (command.kind) {
          case 'apply':
            if (exists()) h.proxies.apply('a', spec(command.size, command.zone))
            break
          case 'delete':
            if (h.proxies.objects.has('default/a')) h.proxies.delete('a')
            break
          case 'kill':
            h.kill()
            h.start()
            break
          case 'stopInstance':
            for (const instance of h.hypervisor.instances.values()) instance.state = 'stopped'
            break
          case 'loseInstance':
            h.hypervisor.instances.clear()
            break
          case 'moveInstance':
            for (const instance of h.hypervisor.instances.values()) instance.ip = '192.0.2.77'
            break
          case 'fail': {
            const error = errors[command.error]
            if (error !== undefined) h.hypervisor.fail(command.step, error)
            break
          }
          case 'hold':
            holds.push(h.hypervisor.hold(command.step, { stubborn: command.stubborn }))
            break
          case 'release':
            for (const hold of holds.splice(0)) hold.release()
            break
          case 'lag':
            h.proxies.lagging = true
            break
          case 'deliver':
            h.proxies.deliver()
            break
          case 'apiAway':
            h.proxies.failure = away
            break
          case 'apiBack':
            h.proxies.failure = undefined
            break
          case 'configure':
            h.configHash = `config-${h.clock.monotonic()}`
            h.configure()
            h.add('a')
            break
          case 'advance':
            await h.advance(command.ms)
            break
        }
        expect(h.hypervisor.mostMutationsInFlight).toBeLessThanOrEqual(1)
      }
      // everything heals
      for (const hold of holds) hold.release()
      h.hypervisor.heal()
      h.proxies.failure = undefined
      h.proxies.deliver()
      const settled = async () => {
        for (let minute = 0; minute < 40; minute++) {
          h.readyMs.set('fake/host-a', h.clock.now())
          h.add('a')
          await h.advance(60_000)
        }
      }
      await settled()
      if (h.proxies.objects.has('default/a')) {
        // a latch that blames the spec ends only by a person
        h.proxies.apply('a', h.proxies.read('default/a').spec, { 'egressproxies.dev/retry': 'now' })
        await settled()
        expectOne(h)
        const { zone } = h.proxies.read('default/a').spec.placement ?? {}
        expect(h.hypervisor.only().target).toBe(zone)
        h.proxies.delete('a')
        await settled()
      }
      expectNone(h)
      expect(h.hypervisor.mostMutationsInFlight).toBeLessThanOrEqual(1)
      h.kill()
      running = undefined
    }
    await fc.assert(fc.asyncProperty(commands, story), { numRuns: 80, seed: 20_260_101 })
  })
})

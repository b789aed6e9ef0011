// The handler over a scripted provider: what is on the hypervisor and in the status after each story.
import { afterEach, describe, expect, it } from 'vitest'
import { KubeError } from '../../../src/kube/errors.ts'
import { ProviderError } from '../../../src/provider/errors.ts'
import { specHash } from '../../../src/reconcile/spec-hash.ts'
import { isGuarded } from '../../support/memory-proxies.ts'
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

describe('a Proxy', () => {
  it('becomes a working instance, and then nothing', async () => {
    const h = begin()
    h.proxies.apply('a', { ...baseSpec, cloudInit: '#cloud-config\n' })
    await h.settle()

    const instance = h.hypervisor.only()
    const status = h.proxies.status('a')
    expect(status).toMatchObject({
      phase: 'Ready',
      providerID: instance.providerID,
      instanceName: instance.name,
      ip: '192.0.2.10',
      endpoint: 'http://192.0.2.10:3128',
      specHash: instance.specHash,
      observedGeneration: 1,
      intents: [{ target: 'host-a' }],
    })
    expect(instance.userData?.toString()).toBe('#cloud-config\n')
    expect(h.condition('a', 'Provisioned')).toMatchObject({ status: 'True', reason: 'InstanceRunning' })
    expect(h.condition('a', 'Healthy')).toMatchObject({ status: 'True' })
    expect(h.condition('a', 'Ready')).toMatchObject({ status: 'True' })
    expect(h.reasons('a')).toEqual(['Creating', 'InstanceCreated', 'AddressAssigned', 'Healthy'])
    expect(isGuarded(h.proxies.read('default/a'))).toBe(true)

    h.proxies.delete('a')
    await h.settle()
    expect(h.hypervisor.contents).toEqual([])
    expect(h.proxies.objects.size).toBe(0)
    expect(h.probes.watched.size).toBe(0)
    expect(h.reasons('a').slice(4)).toEqual(['Deleting', 'InstanceDeleted'])
  })

  it('writes nothing when nothing changes', async () => {
    const h = begin()
    h.proxies.apply('a', baseSpec)
    await h.settle()
    const writes = h.proxies.statusWrites
    for (let i = 0; i < 5; i++) {
      h.add('a')
      await h.advance(60_000)
    }
    expect(h.proxies.statusWrites).toBe(writes)
  })

  it('has its finalizer before anything is made, and its intent before the first mutation', async () => {
    const h = begin()
    const hold = h.hypervisor.hold('volume')
    h.proxies.apply('a', baseSpec)
    await hold.reached
    expect(isGuarded(h.proxies.read('default/a'))).toBe(true)
    expect(h.proxies.status('a').intents).toMatchObject([{ target: 'host-a' }])
    expect(h.phase('a')).toBe('Provisioning')
    hold.release()
  })

  it('shows IPv6 addresses in brackets', async () => {
    const h = begin()
    h.hypervisor.nextIp = '2001:db8::7'
    h.proxies.apply('a', { ...baseSpec, port: 8080 })
    await h.settle()
    expect(h.proxies.status('a').endpoint).toBe('http://[2001:db8::7]:8080')
  })

  it('follows its address within a quarter of a second', async () => {
    const h = begin()
    h.hypervisor.nextIp = undefined
    h.proxies.apply('a', baseSpec)
    await h.advance(5000)
    expect(h.phase('a')).toBe('Provisioning')
    expect(h.condition('a', 'Provisioned')).toMatchObject({ status: 'False', reason: 'WaitingForAddress' })
    h.hypervisor.only().ip = '192.0.2.44'
    await h.advance(250)
    expect(h.proxies.status('a')).toMatchObject({ phase: 'Ready', ip: '192.0.2.44' })
  })

  it('is Running while it is unhealthy, and keeps its verdict while the target of the check is down', async () => {
    const h = begin()
    h.proxies.apply('a', baseSpec)
    await h.settle()
    h.probes.say('default/a', { kind: 'unknown', reason: 'TargetUnreachable', message: 'target is down' })
    await h.settle()
    expect(h.phase('a')).toBe('Ready')
    expect(h.condition('a', 'Healthy')).toMatchObject({ status: 'Unknown', reason: 'TargetUnreachable' })
    h.probes.say('default/a', { kind: 'unhealthy', reason: 'ProxyUnreachable', message: 'refused' })
    await h.settle()
    expect(h.phase('a')).toBe('Running')
    expect(h.condition('a', 'Healthy')).toMatchObject({ status: 'False', reason: 'ProxyUnreachable' })
    h.probes.say('default/a', { kind: 'healthy', latencyMs: 1, egressIP: '203.0.113.7' })
    await h.settle()
    expect(h.proxies.status('a')).toMatchObject({ phase: 'Ready', egressIP: '203.0.113.7' })
  })

  it('moves with an address that changed while its probes fail', async () => {
    const h = begin()
    h.proxies.apply('a', baseSpec)
    await h.settle()
    h.hypervisor.only().ip = '192.0.2.99'
    h.probes.say('default/a', { kind: 'unhealthy', reason: 'ProxyUnreachable', message: 'refused' })
    await h.settle()
    expect(h.proxies.status('a')).toMatchObject({ phase: 'Ready', ip: '192.0.2.99' })
    expect(h.reasons('a')).toContain('AddressChanged')
  })

  it('keeps phase and address when a read fails, for whatever reason', async () => {
    const h = begin()
    h.proxies.apply('a', baseSpec)
    await h.settle()
    for (const error of [
      ProviderError.transient('host away', { code: 'Unreachable' }),
      ProviderError.permanent('environment', 'key refused', { code: 'Unauthorized' }),
    ]) {
      h.hypervisor.fail('get', error, 1)
      h.hypervisor.fail('observe', error, 1)
      await h.restart()
      expect(h.proxies.status('a')).toMatchObject({ phase: 'Ready', ip: '192.0.2.10' })
      expect(h.proxies.status('a').latch).toBeUndefined()
    }
  })
})

describe('repair', () => {
  it('starts a stopped instance', async () => {
    const h = begin()
    h.proxies.apply('a', baseSpec)
    await h.settle()
    h.hypervisor.only().state = 'stopped'
    await h.advance(30_000)
    expect(h.hypervisor.only().state).toBe('running')
    expect(h.phase('a')).toBe('Ready')
    expect(h.reasons('a')).toContain('InstanceStopped')
  })

  it('creates again what is gone', async () => {
    const h = begin()
    h.proxies.apply('a', baseSpec)
    await h.settle()
    h.hypervisor.instances.clear()
    await h.advance(30_000)
    expect(h.hypervisor.only().state).toBe('running')
    expect(h.phase('a')).toBe('Ready')
    expect(h.reasons('a')).toContain('InstanceGone')
  })

  it('leaves a paused instance alone and says so', async () => {
    const h = begin()
    h.proxies.apply('a', baseSpec)
    await h.settle()
    h.hypervisor.only().state = 'paused'
    await h.advance(30_000)
    expect(h.hypervisor.only().state).toBe('paused')
    expect(h.condition('a', 'Provisioned')).toMatchObject({ status: 'False', reason: 'InstancePaused' })
    expect(h.proxies.status('a').ip).toBe('192.0.2.10')
  })
})

describe('repair, in detail', () => {
  const begins = (h: ReconcileHarness) => h.hypervisor.steps.filter(({ step }) => step === 'begin').length

  it('concludes nothing from what was seen during the repair', async () => {
    const h = begin()
    h.proxies.apply('a', baseSpec)
    await h.settle()
    const hold = h.hypervisor.hold('start')
    h.hypervisor.only().state = 'stopped'
    await h.advance(30_000)
    await hold.reached
    h.add('a')
    await h.advance(60_000)
    hold.release()
    await h.settle()
    expect(h.phase('a')).toBe('Ready')
    expect(begins(h)).toBe(2)
  })

  it('forgets failures once the instance runs', async () => {
    const h = begin()
    h.proxies.apply('a', baseSpec)
    await h.settle()
    const told = () => h.events.filter(({ reason }) => reason === 'StartFailed').map(({ message }) => message)
    for (const expected of [['no luck'], ['no luck', 'no luck']]) {
      h.hypervisor.fail('start', ProviderError.transient('no luck', { code: 'StartFailed' }))
      h.hypervisor.only().state = 'stopped'
      await h.advance(60_000)
      expect(told()).toEqual(expected)
      expect(h.phase('a')).toBe('Ready')
    }
  })

  it('ends with the object, even one that was removed by force', async () => {
    const h = begin()
    h.proxies.apply('a', baseSpec)
    await h.settle()
    h.proxies.forceDelete('a')
    await h.settle()
    const before = h.hypervisor.steps.length
    await h.advance(600_000)
    expect(h.hypervisor.steps.length).toBe(before)
    expect(h.probes.watched.size).toBe(0)
  })
})

describe('replacement', () => {
  it('deletes the old instance, waits until it is gone, creates the new one', async () => {
    const h = begin()
    h.proxies.apply('a', baseSpec)
    await h.settle()
    const before = h.hypervisor.only()
    const hold = h.hypervisor.hold('removeVolume')
    h.proxies.apply('a', { ...baseSpec, placement: { ...baseSpec.placement, machineType: 'large' } })
    await hold.reached
    await h.settle()
    expect(h.phase('a')).toBe('Provisioning')
    expect(h.hypervisor.instances.size).toBe(0)
    expect(h.hypervisor.steps.filter(({ step }) => step === 'define')).toHaveLength(1)
    hold.release()
    await h.settle()
    const after = h.hypervisor.only()
    expect(after.specHash).not.toBe(before.specHash)
    expect(h.proxies.status('a')).toMatchObject({ phase: 'Ready', specHash: after.specHash, observedGeneration: 2 })
    expect(h.hypervisor.mostMutationsInFlight).toBe(1)
    expect(h.reasons('a')).toContain('Replacing')
  })

  it('follows the Proxy to another host and leaves nothing on the first', async () => {
    const h = begin()
    h.proxies.apply('a', baseSpec)
    await h.settle()
    h.proxies.apply('a', { ...baseSpec, placement: { ...baseSpec.placement, zone: 'host-b' } })
    await h.settle()
    const { target, name } = h.hypervisor.only()
    expect(target).toBe('host-b')
    expect(h.hypervisor.contents).toEqual([`host-b/${name}`, `hosts/host-b/domains/${name}`])
    expect(h.proxies.status('a').intents).toMatchObject([{ target: 'host-b' }])
  })

  it.each([
    ['port', { port: 8888 }],
    ['healthCheck', { healthCheck: { interval: '10s' } }],
  ])('is not caused by %s', async (_field, change) => {
    const h = begin()
    h.proxies.apply('a', baseSpec)
    await h.settle()
    h.proxies.apply('a', { ...baseSpec, ...change })
    await h.settle()
    expect(h.hypervisor.steps.filter(({ step }) => step === 'begin')).toHaveLength(1)
    expect(h.phase('a')).toBe('Ready')
    expect(h.proxies.status('a').observedGeneration).toBe(2)
  })

  it('is not Ready at another port before it was probed there', async () => {
    const h = begin()
    h.proxies.apply('a', baseSpec)
    await h.settle()
    h.probes.answer = { kind: 'pending' }
    h.proxies.apply('a', { ...baseSpec, port: 8888 })
    await h.settle()
    expect(h.proxies.status('a')).toMatchObject({ phase: 'Running', endpoint: 'http://192.0.2.10:8888' })
    expect(h.condition('a', 'Healthy')).toMatchObject({ status: 'Unknown', reason: 'NotProbed' })
    h.probes.say('default/a', { kind: 'healthy', latencyMs: 1 })
    await h.settle()
    expect(h.phase('a')).toBe('Ready')
  })

  it('aborts a create whose spec changed, and waits until it let go', async () => {
    const h = begin()
    const hold = h.hypervisor.hold('define', { stubborn: true })
    h.proxies.apply('a', baseSpec)
    await hold.reached
    h.proxies.apply('a', { ...baseSpec, placement: { ...baseSpec.placement, machineType: 'large' } })
    await h.settle()
    expect(h.hypervisor.mutationsInFlight).toBe(1)
    hold.release()
    await h.settle()
    expect(h.phase('a')).toBe('Ready')
    expect(h.hypervisor.only().specHash).toBe(h.proxies.status('a').specHash)
    expect(h.hypervisor.mostMutationsInFlight).toBe(1)
    expect(h.reasons('a')).toContain('CreateAborted')
    expect(h.reasons('a')).toContain('Replacing')
  })
})

describe('deletion', () => {
  it.each(['begin', 'record', 'volume', 'define', 'start', 'return'] as const)(
    'during a create at %s leaves nothing',
    async (step) => {
      const h = begin()
      const hold = h.hypervisor.hold(step, { stubborn: true })
      h.proxies.apply('a', baseSpec)
      await hold.reached
      h.proxies.delete('a')
      await h.settle()
      expect(h.phase('a')).toBe('Deleting')
      expect(h.hypervisor.mutationsInFlight).toBe(1)
      hold.release()
      await h.settle()
      expect(h.hypervisor.contents).toEqual([])
      expect(h.proxies.objects.size).toBe(0)
      expect(h.hypervisor.mostMutationsInFlight).toBe(1)
    },
  )

  it('retries for ever, whatever the error, and tells each attempt', async () => {
    const h = begin()
    h.proxies.apply('a', baseSpec)
    await h.settle()
    h.hypervisor.fail('destroy', ProviderError.permanent('environment', 'access denied', { code: 'Forbidden' }), 4)
    h.proxies.delete('a')
    await h.settle()
    expect(h.condition('a', 'Provisioned')).toMatchObject({ status: 'False', reason: 'Forbidden' })
    expect(h.phase('a')).toBe('Deleting')
    expect(h.proxies.status('a').latch).toBeUndefined()
    await h.advance(1000 + 2000 + 4000)
    expect(h.hypervisor.instances.size).toBe(1)
    await h.advance(8000)
    expect(h.hypervisor.contents).toEqual([])
    expect(h.proxies.objects.size).toBe(0)
    expect(h.reasons('a').filter((reason) => reason === 'Forbidden')).toHaveLength(4)
  })

  it('waits for a provider that is not configured when anything was recorded', async () => {
    const h = begin()
    h.proxies.apply('a', baseSpec)
    await h.settle()
    h.configured.clear()
    h.proxies.delete('a')
    await h.advance(3_600_000)
    expect(h.condition('a', 'Provisioned')).toMatchObject({ reason: 'ProviderNotConfigured' })
    expect(h.hypervisor.instances.size).toBe(1)
    h.configure()
    h.add('a')
    await h.settle()
    expect(h.hypervisor.contents).toEqual([])
    expect(h.proxies.objects.size).toBe(0)
  })

  it('does not wait for a provider when nothing was recorded', async () => {
    const h = begin()
    h.configured.clear()
    h.proxies.apply('a', baseSpec)
    await h.settle()
    expect(h.phase('a')).toBe('Failed')
    h.proxies.delete('a')
    await h.settle()
    expect(h.proxies.objects.size).toBe(0)
  })

  it('warns of an instance that was left on a host that is no longer configured', async () => {
    const h = begin()
    h.proxies.apply('a', baseSpec)
    await h.settle()
    h.configure(['host-b'])
    h.proxies.delete('a')
    await h.settle()
    expect(h.proxies.objects.size).toBe(0)
    const event = h.events.find(({ reason }) => reason === 'InstanceAbandoned')
    expect(event).toMatchObject({ type: 'Warning' })
    expect(event?.message).toContain('host-a')
  })

  it('and creation again under the same name: the successor waits for the predecessor to let go', async () => {
    const h = begin()
    const hold = h.hypervisor.hold('return', { stubborn: true })
    h.proxies.apply('a', baseSpec)
    await hold.reached
    const first = h.proxies.read('default/a').metadata.uid
    h.proxies.forceDelete('a')
    h.proxies.apply('a', baseSpec)
    await h.settle()
    const second = h.proxies.read('default/a').metadata.uid
    expect(second).not.toBe(first)
    expect(h.hypervisor.steps.filter(({ step }) => step === 'begin')).toHaveLength(1)
    hold.release()
    await h.settle()
    expect(h.hypervisor.mostMutationsInFlight).toBe(1)
    // what the first one made is an orphan for the collector, and in the way until then
    expect(h.hypervisor.only().uid).toBe(first)
    expect(h.condition('a', 'Provisioned')).toMatchObject({ reason: 'OrphanInTheWay' })
    h.hypervisor.instances.clear()
    h.hypervisor.volumes.clear()
    await h.advance(10_000)
    expect(h.hypervisor.only().uid).toBe(second)
    expect(h.phase('a')).toBe('Ready')
  })
})

describe('errors of a create', () => {
  it('transient: backs off exponentially and says why', async () => {
    const h = begin()
    h.hypervisor.fail('begin', ProviderError.transient('host is away', { code: 'Unreachable' }), 3)
    h.proxies.apply('a', baseSpec)
    await h.settle()
    expect(h.phase('a')).toBe('Provisioning')
    expect(h.condition('a', 'Provisioned')).toMatchObject({ reason: 'Unreachable', message: 'host is away' })
    const attempts = () => h.hypervisor.steps.filter(({ step }) => step === 'begin').length
    expect(attempts()).toBe(1)
    await h.advance(999)
    expect(attempts()).toBe(1)
    await h.advance(1)
    expect(attempts()).toBe(2)
    await h.advance(1999)
    expect(attempts()).toBe(2)
    await h.advance(1 + 4000)
    expect(attempts()).toBe(4)
    expect(h.phase('a')).toBe('Ready')
  })

  it('quota: waits five minutes and never fails', async () => {
    const h = begin()
    h.hypervisor.fail('volume', ProviderError.quotaExceeded('pool is full', { code: 'PoolFull' }), 2)
    h.proxies.apply('a', baseSpec)
    await h.advance(299_999)
    expect(h.condition('a', 'Provisioned')).toMatchObject({ reason: 'QuotaExceeded', message: 'pool is full' })
    expect(h.phase('a')).toBe('Provisioning')
    await h.advance(300_001)
    expect(h.phase('a')).toBe('Ready')
  })

  it('no ProviderError at all: is retried', async () => {
    const h = begin()
    const { provider } = h.configured.get('fake') ?? { provider: undefined }
    if (provider === undefined) throw new Error('not configured')
    const create = provider.create.bind(provider)
    let calls = 0
    provider.create = async (request, context) => {
      if (calls++ === 0) throw new TypeError('a mistake')
      return await create(request, context)
    }
    h.proxies.apply('a', baseSpec)
    await h.settle()
    expect(h.condition('a', 'Provisioned')).toMatchObject({ reason: 'InternalError' })
    await h.advance(1000)
    expect(h.phase('a')).toBe('Ready')
  })

  it('a lost lease records nothing and changes nothing', async () => {
    const h = begin()
    const hold = h.hypervisor.hold('record')
    h.proxies.apply('a', baseSpec)
    await hold.reached
    h.leaseHeld = false
    hold.release()
    await h.settle()
    expect(h.hypervisor.contents).toEqual([])
    expect(h.proxies.status('a').intents).toBeUndefined()
  })
})

describe('a latch', () => {
  const wrong = ProviderError.permanent('spec', 'no such image', { code: 'ImageNotFound', target: 'host-a' })
  const denied = ProviderError.permanent('environment', 'key refused', { code: 'Unauthorized', target: 'host-a' })

  async function latched(error: ProviderError, times: number): Promise<ReconcileHarness> {
    const h = begin()
    h.hypervisor.fail('volume', error, times)
    h.proxies.apply('a', baseSpec)
    await h.settle()
    expect(h.phase('a')).toBe('Failed')
    expect(h.condition('a', 'Provisioned')).toMatchObject({
      status: 'False',
      reason: error.code,
      message: error.message,
    })
    expect(h.proxies.status('a').latch).toMatchObject({ code: error.code, configHash: 'config-1' })
    return h
  }

  it('holds over time and restarts', async () => {
    const h = await latched(wrong, 1)
    await h.advance(86_400_000)
    await h.restart()
    h.readyMs.set('fake/host-a', h.clock.now())
    await h.advance(86_400_000)
    h.add('a')
    await h.settle()
    expect(h.phase('a')).toBe('Failed')
    expect(h.hypervisor.steps.filter(({ step }) => step === 'begin')).toHaveLength(1)
  })

  it('ends when the spec changes', async () => {
    const h = await latched(wrong, 1)
    h.proxies.apply('a', { ...baseSpec, placement: { ...baseSpec.placement, image: 'debian-13' } })
    await h.settle()
    expect(h.phase('a')).toBe('Ready')
    expect(h.proxies.status('a').latch).toBeUndefined()
  })

  it('does not end by a change that is not in the hash', async () => {
    const h = await latched(wrong, 1)
    h.proxies.apply('a', { ...baseSpec, port: 3129 })
    await h.settle()
    expect(h.phase('a')).toBe('Failed')
  })

  it('ends when the entry of the provider changes', async () => {
    const h = await latched(wrong, 1)
    h.configure()
    h.add('a')
    await h.settle()
    expect(h.phase('a')).toBe('Failed')
    h.configHash = 'config-2'
    h.configure()
    h.add('a')
    await h.settle()
    expect(h.phase('a')).toBe('Ready')
  })

  it('ends when the retry annotation gets a new value', async () => {
    const h = await latched(wrong, 2)
    h.proxies.apply('a', baseSpec, { 'egressproxies.dev/retry': '1' })
    await h.settle()
    expect(h.phase('a')).toBe('Failed')
    expect(h.proxies.status('a').latch).toMatchObject({ retry: '1' })
    h.add('a')
    await h.settle()
    expect(h.hypervisor.steps.filter(({ step }) => step === 'begin')).toHaveLength(2)
    h.proxies.apply('a', baseSpec, { 'egressproxies.dev/retry': '2' })
    await h.settle()
    expect(h.phase('a')).toBe('Ready')
  })

  it('from the environment ends with the first ready check after it, and then again only after ten minutes', async () => {
    const h = await latched(denied, 2)
    h.readyMs.set('fake/host-a', h.clock.now() - 1)
    h.add('a')
    await h.settle()
    expect(h.phase('a')).toBe('Failed')
    const check = async (ms: number) => {
      await h.advance(ms)
      h.readyMs.set('fake/host-a', h.clock.now())
      h.add('a')
      await h.settle()
    }
    const attempts = () => h.hypervisor.steps.filter(({ step }) => step === 'begin').length
    await check(60_000)
    expect(attempts()).toBe(2)
    expect(h.proxies.status('a').latch).toMatchObject({ repeated: true })
    for (let minute = 1; minute <= 10; minute++) await check(60_000)
    expect(attempts()).toBe(2)
    expect(h.phase('a')).toBe('Failed')
    await check(60_000)
    expect(attempts()).toBe(3)
    expect(h.phase('a')).toBe('Ready')
    expect(h.proxies.status('a').latch).toBeUndefined()
  })

  it('from the environment that no health check sees is tried again after ten minutes', async () => {
    const h = await latched(ProviderError.permanent('environment', 'refused', { code: 'ImageServerRefused' }), 1)
    await h.advance(599_000)
    expect(h.phase('a')).toBe('Failed')
    await h.advance(1000)
    expect(h.phase('a')).toBe('Ready')
  })

  it('does not outlive an instance that runs', async () => {
    const h = begin()
    h.proxies.apply('a', baseSpec)
    await h.settle()
    h.hypervisor.only().state = 'stopped'
    h.hypervisor.fail('start', ProviderError.permanent('environment', 'no memory', { code: 'StartFailed' }), 1)
    await h.advance(30_000)
    expect(h.phase('a')).toBe('Failed')
    h.hypervisor.only().state = 'running'
    h.hypervisor.only().ip = '192.0.2.11'
    await h.advance(30_000)
    expect(h.proxies.status('a')).toMatchObject({ phase: 'Ready', ip: '192.0.2.11' })
    expect(h.proxies.status('a').latch).toBeUndefined()
  })
})

describe('a provider that is not configured', () => {
  it('fails a new Proxy until it is', async () => {
    const h = begin()
    h.configured.clear()
    h.proxies.apply('a', baseSpec)
    await h.settle()
    expect(h.phase('a')).toBe('Failed')
    expect(h.condition('a', 'Provisioned')).toMatchObject({ reason: 'ProviderNotConfigured' })
    h.configure()
    h.add('a')
    await h.settle()
    expect(h.phase('a')).toBe('Ready')
  })

  it('leaves a working Proxy as it is, and probed', async () => {
    const h = begin()
    h.proxies.apply('a', baseSpec)
    await h.settle()
    h.configured.clear()
    h.add('a')
    await h.settle()
    expect(h.proxies.status('a')).toMatchObject({ phase: 'Ready', ip: '192.0.2.10' })
    expect(h.condition('a', 'Provisioned')).toMatchObject({ status: 'Unknown', reason: 'ProviderNotConfigured' })
    h.probes.say('default/a', { kind: 'unhealthy', reason: 'ProxyUnreachable', message: 'refused' })
    await h.settle()
    expect(h.phase('a')).toBe('Running')
  })
})

describe('Secrets', () => {
  const fromSecret = { ...baseSpec, cloudInitFrom: { secretKeyRef: { name: 'ud', key: 'user-data' } } }

  it('hand over their bytes as they are, 300 KiB and gzip included', async () => {
    const h = begin()
    const bytes = Buffer.alloc(300 * 1024, Buffer.from([0x1f, 0x8b, 0x08, 0x00, 0xff, 0xfe]))
    h.secrets.set('default/ud', new Map([['user-data', bytes]]))
    h.proxies.apply('a', fromSecret)
    await h.settle()
    expect(h.hypervisor.only().userData?.equals(bytes)).toBe(true)
    expect(h.phase('a')).toBe('Ready')
  })

  it('hash like the same bytes inline', async () => {
    const h = begin()
    h.secrets.set('default/ud', new Map([['user-data', Buffer.from('#!/bin/sh\n')]]))
    h.proxies.apply('a', fromSecret)
    await h.settle()
    h.proxies.apply('a', { ...baseSpec, cloudInit: '#!/bin/sh\n' })
    await h.settle()
    expect(h.hypervisor.steps.filter(({ step }) => step === 'begin')).toHaveLength(1)
  })

  it('are waited for', async () => {
    const h = begin()
    h.proxies.apply('a', fromSecret)
    await h.settle()
    expect(h.phase('a')).toBe('Pending')
    expect(h.condition('a', 'Provisioned')).toMatchObject({ reason: 'SecretNotFound' })
    h.secrets.set('default/ud', new Map([['other', Buffer.from('x')]]))
    await h.advance(15_000)
    expect(h.condition('a', 'Provisioned')).toMatchObject({ reason: 'SecretKeyNotFound' })
    h.secrets.set('default/ud', new Map([['user-data', Buffer.from('x')]]))
    await h.advance(15_000)
    expect(h.phase('a')).toBe('Ready')
  })

  it('that change just before a create give the hash of the bytes that are handed over', async () => {
    const h = begin()
    h.secrets.set('default/ud', new Map([['user-data', Buffer.from('one')]]))
    h.onSecretRead = () => h.secrets.set('default/ud', new Map([['user-data', Buffer.from('two')]]))
    h.proxies.apply('a', fromSecret)
    await h.settle()
    expect(h.hypervisor.only().userData?.toString()).toBe('two')
    const userData = Buffer.from('two')
    expect(h.hypervisor.only().specHash).toBe(specHash({ provider: 'fake', placement: baseSpec.placement, userData }))
    await h.advance(300_000)
    expect(h.reasons('a')).not.toContain('UserDataChanged')
  })

  it('that may not be read are named, with the way out', async () => {
    const h = begin()
    h.secretFailure = new KubeError('forbidden', { code: 'KUBE_FORBIDDEN', status: 403, reason: 'Forbidden' })
    h.proxies.apply('a', fromSecret)
    await h.settle()
    expect(h.condition('a', 'Provisioned')).toMatchObject({ status: 'False', reason: 'SecretForbidden' })
    expect(h.condition('a', 'Provisioned')?.message).toContain('default/ud')
    h.secretFailure = undefined
    h.secrets.set('default/ud', new Map([['user-data', Buffer.from('x')]]))
    await h.advance(15_000)
    expect(h.phase('a')).toBe('Ready')
  })

  it('are read once in five minutes, and once more for a create', async () => {
    const h = begin()
    h.secrets.set('default/ud', new Map([['user-data', Buffer.from('x')]]))
    h.hypervisor.nextIp = undefined
    h.proxies.apply('a', fromSecret)
    await h.advance(290_000)
    expect(h.secretReads).toBe(2)
    await h.advance(300_000)
    expect(h.secretReads).toBe(3)
  })

  it('replace the instance when they are edited, and an Event says so', async () => {
    const h = begin()
    h.secrets.set('default/ud', new Map([['user-data', Buffer.from('one')]]))
    h.proxies.apply('a', fromSecret)
    await h.settle()
    h.secrets.set('default/ud', new Map([['user-data', Buffer.from('two')]]))
    await h.advance(299_000)
    expect(h.hypervisor.only().userData?.toString()).toBe('one')
    await h.advance(1000)
    expect(h.hypervisor.only().userData?.toString()).toBe('two')
    expect(h.reasons('a')).toContain('UserDataChanged')
    expect(h.phase('a')).toBe('Ready')
  })

  it('that went missing keep the instance, with a condition', async () => {
    const h = begin()
    h.secrets.set('default/ud', new Map([['user-data', Buffer.from('one')]]))
    h.proxies.apply('a', fromSecret)
    await h.settle()
    h.secrets.clear()
    await h.advance(300_000)
    expect(h.hypervisor.instances.size).toBe(1)
    expect(h.phase('a')).toBe('Ready')
    expect(h.condition('a', 'Provisioned')).toMatchObject({ status: 'Unknown', reason: 'SecretNotFound' })
    h.secrets.set('default/ud', new Map([['user-data', Buffer.from('one')]]))
    await h.advance(15_000)
    expect(h.condition('a', 'Provisioned')).toMatchObject({ status: 'True' })
  })

  it('with credentials go to the probe, and stay in force while they are missing', async () => {
    const h = begin()
    const spec = { ...baseSpec, credentialsSecretRef: { name: 'auth' } }
    h.proxies.apply('a', spec)
    await h.settle()
    expect(h.phase('a')).toBe('Running')
    expect(h.condition('a', 'Healthy')).toMatchObject({ status: 'Unknown', reason: 'SecretNotFound' })
    const auth = new Map([
      ['username', Buffer.from('user')],
      ['password', Buffer.from('pass')],
    ])
    h.secrets.set('default/auth', auth)
    await h.advance(15_000)
    expect(h.phase('a')).toBe('Ready')
    expect(h.probes.watched.get('default/a')?.credentials?.password.reveal()).toBe('pass')
    h.secrets.clear()
    await h.advance(300_000)
    expect(h.phase('a')).toBe('Ready')
    expect(h.probes.watched.get('default/a')?.credentials?.username).toBe('user')
  })
})

// How often what is read: the calls that a hypervisor gets are what this is about.
import { beforeEach, describe, expect, it } from 'vitest'
import { silentLogger } from '../../../src/observe/logger.ts'
import type { Instance, InstanceState, Provider } from '../../../src/provider/contract.ts'
import { ProviderError } from '../../../src/provider/errors.ts'
import { InstanceObserver } from '../../../src/reconcile/observer.ts'
import { FakeHypervisor, FakeProvider } from '../../support/fake-provider.ts'
import { ManualClock } from '../../support/manual-clock.ts'

let clock = new ManualClock()
let world = new FakeHypervisor()
let provider: Provider = new FakeProvider(world)
let news: string[] = []
let observer = newObserver()

function newObserver(): InstanceObserver {
  return new InstanceObserver({ clock, random: () => 0, log: silentLogger, onChange: (key) => news.push(key) })
}

beforeEach(() => {
  clock = new ManualClock()
  world = new FakeHypervisor()
  provider = new FakeProvider(world)
  news = []
  observer = newObserver()
})

function add(uid: string, ip: string | undefined, state: InstanceState = 'running', target = 'host-a'): string {
  const providerID = `hosts/${target}/domains/${uid}`
  const instance = { providerID, name: uid, target, uid, specHash: 'v1:x', userData: undefined, state, ip }
  world.instances.set(providerID, instance)
  observer.watch({ key: `default/${uid}`, uid, provider, providerID, target })
  return providerID
}

const gets = () => world.steps.filter(({ step }) => step === 'get').length
const rounds = () => world.steps.filter(({ step }) => step === 'observe').map(({ name }) => name)
const seen = (uid: string): Instance | undefined => {
  const observation = observer.observation(uid)
  return observation.kind === 'seen' ? observation.instance : undefined
}

describe('an instance without address', () => {
  it('is read every 250 ms for a minute, then with backoff up to 30 s', async () => {
    add('a', undefined)
    await clock.advance(60_000)
    const quick = gets()
    expect(quick).toBeGreaterThanOrEqual(240)
    expect(quick).toBeLessThanOrEqual(243)
    await clock.advance(600_000)
    // 1, 2, 4, 8, 16 s, then every 30 s, and once with each round
    expect(gets() - quick).toBeLessThan(60)
    expect(gets() - quick).toBeGreaterThan(20)
  })

  it('is told once when the address is there', async () => {
    const id = add('a', undefined)
    await clock.advance(1000)
    expect(news).toEqual(['default/a'])
    const instance = world.instances.get(id)
    if (instance !== undefined) instance.ip = '192.0.2.5'
    await clock.advance(250)
    expect(news).toEqual(['default/a', 'default/a'])
    expect(seen('a')?.ip).toBe('192.0.2.5')
    const before = gets()
    await clock.advance(29_000)
    expect(gets()).toBe(before)
  })
})

describe('rounds', () => {
  it('are one per target, for all its instances, and read none that is as it was', async () => {
    for (const uid of ['a', 'b', 'c']) add(uid, '192.0.2.1')
    add('d', '192.0.2.2', 'running', 'host-b')
    await clock.advance(0)
    expect(gets()).toBe(4)
    await clock.advance(300_000)
    expect(rounds().filter((name) => name === 'host-a')).toHaveLength(10)
    expect(rounds().filter((name) => name === 'host-b')).toHaveLength(10)
    expect(gets()).toBe(4)
  })

  it('read what changed and what is missing', async () => {
    const ids = ['a', 'b', 'c'].map((uid) => add(uid, '192.0.2.1'))
    await clock.advance(0)
    const [a, b] = ids.map((id) => world.instances.get(id))
    if (a === undefined || b === undefined) throw new Error('not there')
    a.state = 'stopped'
    world.instances.delete(b.providerID)
    news = []
    await clock.advance(30_000)
    expect(seen('a')?.state).toBe('stopped')
    expect(observer.observation('b')).toEqual({ kind: 'gone' })
    expect(seen('c')?.state).toBe('running')
    expect(news.sort()).toEqual(['default/a', 'default/b'])
    expect(gets()).toBe(5)
  })

  it('that fail read nothing and change nothing', async () => {
    add('a', '192.0.2.1')
    await clock.advance(0)
    world.fail('observe', ProviderError.transient('away', { code: 'Unreachable' }), 3)
    await clock.advance(90_000)
    expect(gets()).toBe(1)
    expect(seen('a')?.ip).toBe('192.0.2.1')
  })

  it('read a suspect instance each time', async () => {
    const id = add('a', '192.0.2.1')
    await clock.advance(0)
    observer.suspect('a', true)
    await clock.advance(0)
    expect(gets()).toBe(2)
    const instance = world.instances.get(id)
    if (instance !== undefined) instance.ip = '192.0.2.9'
    await clock.advance(30_000)
    expect(seen('a')?.ip).toBe('192.0.2.9')
    observer.suspect('a', false)
    const before = gets()
    await clock.advance(90_000)
    expect(gets()).toBe(before)
  })

  it('end with the last instance of a target', async () => {
    add('a', '192.0.2.1')
    await clock.advance(0)
    observer.forget('a')
    await clock.advance(120_000)
    expect(rounds()).toEqual([])
    expect(clock.pendingCount).toBe(0)
  })
})

describe('a read', () => {
  it('that comes back after the session ended says nothing, and is the last one', async () => {
    const hold = world.hold('get', { stubborn: true })
    add('a', undefined)
    await hold.reached
    observer.forget('a')
    hold.release()
    await clock.advance(60_000)
    expect(news).toEqual([])
    expect(observer.observation('a')).toEqual({ kind: 'unread' })
    expect(gets()).toBe(1)
  })

  it('that fails is repeated with backoff and concludes nothing', async () => {
    world.fail('get', ProviderError.permanent('environment', 'denied', { code: 'Unauthorized' }), 2)
    add('a', '192.0.2.1')
    await clock.advance(0)
    expect(observer.observation('a').kind).toBe('failed')
    await clock.advance(999)
    expect(gets()).toBe(1)
    await clock.advance(1 + 2000)
    expect(gets()).toBe(3)
    expect(seen('a')?.ip).toBe('192.0.2.1')
    expect(news).toHaveLength(2)
  })

  it('of an instance that belongs to another Proxy is an error, not an address', async () => {
    const id = add('a', '192.0.2.1')
    const instance = world.instances.get(id)
    if (instance !== undefined) instance.uid = 'other'
    await clock.advance(0)
    expect(observer.observation('a')).toMatchObject({ kind: 'failed', error: { code: 'InstanceNotOurs' } })
  })

  it('waits while eight others of its target are under way, and another target does not', async () => {
    const holds = Array.from({ length: 8 }, () => world.hold('get'))
    for (let i = 0; i < 10; i++) add(`a${i}`, '192.0.2.1')
    await clock.advance(0)
    expect(gets()).toBe(8)
    add('b', '192.0.2.2', 'running', 'host-b')
    await clock.advance(0)
    expect(seen('b')?.ip).toBe('192.0.2.2')
    for (const hold of holds) hold.release()
    await clock.advance(0)
    expect(gets()).toBe(11)
  })
})

it('takes a push for a reason to read', async () => {
  const listeners = new Set<(change: { providerID: string }) => void>()
  provider.watch = (listener) => {
    listeners.add(listener)
    return () => listeners.delete(listener)
  }
  const id = add('a', '192.0.2.1')
  await clock.advance(0)
  const instance = world.instances.get(id)
  if (instance !== undefined) instance.state = 'stopped'
  for (const listener of listeners) listener({ providerID: 'other' })
  await clock.advance(0)
  expect(gets()).toBe(1)
  for (const listener of listeners) listener({ providerID: id })
  await clock.advance(0)
  expect(seen('a')?.state).toBe('stopped')
  observer.forget('a')
  expect(listeners.size).toBe(0)
})

// Who is told of what, and when a lost connection is dialled again; the daemon's own events are told over the wire elsewhere.
import { describe, expect, it } from 'vitest'
import { silentLogger } from '../../../../src/observe/logger.ts'
import { KnownInstances } from '../../../../src/provider/libvirt/known.ts'
import { InstanceWatch } from '../../../../src/provider/libvirt/watch.ts'
import { LibvirtConnectionError } from '../../../../src/wire/libvirt/errors.ts'
import { ManualClock } from '../../../support/manual-clock.ts'
import { FakeHost, fail } from './fake-host.ts'

const never = new AbortController().signal

/** A watch whose dials end as `reach` says. */
function world() {
  const clock = new ManualClock()
  const known = new KnownInstances()
  const host = new FakeHost()
  const dials: string[] = []
  let reach: () => Promise<unknown> = () => Promise.resolve()
  const watch = new InstanceWatch({
    known,
    clock,
    random: () => 0,
    log: silentLogger,
    dial: (name) => {
      dials.push(`${name} at ${clock.monotonic() / 1000} s`)
      return reach()
    },
  })
  const { api } = host.session()
  return {
    ...{ clock, known, host, api, watch, dials },
    reachBy: (how: () => Promise<unknown>) => (reach = how),
    listen: () => {
      const told: string[] = []
      return { told, stop: watch.watch(({ providerID }) => void told.push(providerID)) }
    },
  }
}

const learn = (known: KnownInstances, host: string, uuid: string, providerID: string) =>
  known.set(host, uuid, { providerID, createdAt: undefined, macs: [] })

describe('InstanceWatch', () => {
  it('tells every listener of an instance by the providerID that is known, or by its name', async () => {
    const { watch, api, host, known, listen } = world()
    const [one, two] = [listen(), listen()]
    learn(known, 'a', 'u1', 'hosts/a/domains/old-name')
    await watch.opened('a', api, never)
    one.told.length = 0
    two.told.length = 0
    host.listeners[0]?.({ uuid: 'u1', name: 'new-name', id: 1 })
    two.stop()
    host.listeners[0]?.({ uuid: 'u2', name: 'unknown', id: 1 })
    expect(one.told).toEqual(['hosts/a/domains/old-name', 'hosts/a/domains/unknown'])
    expect(two.told).toEqual(['hosts/a/domains/old-name'])
  })

  it('tells of all that is known on a host when it has a new connection, and of nothing on others', async () => {
    const { watch, api, known, listen } = world()
    const { told } = listen()
    learn(known, 'a', 'u1', 'hosts/a/domains/one')
    learn(known, 'a', 'u2', 'hosts/a/domains/two')
    learn(known, 'ab', 'u3', 'hosts/ab/domains/three')
    await watch.opened('a', api, never)
    expect(told).toEqual(['hosts/a/domains/one', 'hosts/a/domains/two'])
  })

  it('leaves a connection alone whose daemon refuses events, and gives up one that broke', async () => {
    const { watch, api } = world()
    const refusing = { ...api, watchDomains: () => fail('CONNECT_DOMAIN_EVENT_CALLBACK_REGISTER_ANY', 3, 'no') }
    await watch.opened('a', refusing, never)
    const broken = { ...api, watchDomains: () => Promise.reject(new LibvirtConnectionError('CLOSED', 'cut')) }
    await expect(watch.opened('a', broken, never)).rejects.toThrow('cut')
  })

  it('dials a lost connection again until it is there, ever more slowly, one dial at a time', async () => {
    const { watch, clock, dials, listen, reachBy } = world()
    listen()
    reachBy(() => Promise.reject(new Error('away')))
    watch.lost('a')
    watch.lost('a')
    await clock.advance(100_000)
    const times = [1, 3, 7, 15, 31, 61, 91].map((second) => `a at ${second} s`)
    expect(dials).toEqual(times)
    reachBy(() => Promise.resolve())
    await clock.advance(100_000)
    expect(dials).toEqual([...times, 'a at 121 s'])
    watch.lost('a')
    await clock.advance(1000)
    expect(dials.at(-1)).toBe('a at 201 s')
  })

  it('dials only while somebody listens, and not once it is closed', async () => {
    const { watch, clock, dials, listen } = world()
    watch.lost('a')
    await clock.advance(100_000)
    const { stop } = listen()
    watch.lost('a')
    stop()
    await clock.advance(100_000)
    listen()
    watch.lost('a')
    watch.close()
    await clock.advance(100_000)
    expect([dials, clock.pendingCount]).toEqual([[], 0])
  })
})

// What the kvm2 provider tells unasked, over real SSH and RPC: from the daemon's events, and after their silence.
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { ErrorCode } from '../../../src/wire/libvirt/errors.ts'
import { eventually } from '../../support/eventually.ts'
import { context, createRequest, startWorld, type World } from './stub-world.ts'

const budgetMs = 30_000
const { instanceName: name } = createRequest()
const providerID = `hosts/lab/domains/${name}`

let world: World
beforeEach(async () => {
  world = await startWorld()
})
afterEach(async () => {
  await world[Symbol.asyncDispose]()
})

/** A provider that is listened to. */
function listen() {
  const provider = world.provider()
  const told: string[] = []
  provider.watch?.((change) => void told.push(change.providerID))
  const next = async (what: string, change: () => unknown) => {
    told.length = 0
    await change()
    await eventually(what, budgetMs, () => Promise.resolve(told.includes(providerID) ? true : undefined))
  }
  return { provider, next }
}

/** What somebody else does on the host. */
function domain() {
  const { host } = world.stub
  return host.domains.byName(name)
}

describe('the watch of a kvm2 provider', () => {
  it('tells of a start, of the agent and of a guest that powers off', async () => {
    const { provider, next } = listen()
    world.stub.knobs.bootDelayMs = 300
    await next('a start', () => provider.create(createRequest(), context()))
    await next('the agent', () => undefined)
    expect((await provider.get(providerID, context())).state).toBe('running')
    await next('a guest that is off', () => world.stub.host.shutDown(domain(), 1))
    expect((await provider.get(providerID, context())).state).toBe('stopped')
  })

  it('tells of an instance under the providerID it was asked for by, also when somebody renamed it', async () => {
    const { provider, next } = listen()
    await provider.create(createRequest(), context())
    await provider.get(providerID, context())
    Object.assign(domain(), { name: 'by-hand' })
    const [renamed] = world.stub.host.domains.all()
    if (renamed === undefined) throw new Error('the domain is gone')
    await next('a change', () => world.stub.host.shutDown(renamed, 1))
  })

  it('goes on after a connection was lost, without anybody asking, and tells of what may have changed meanwhile', async () => {
    const { provider, next } = listen()
    await provider.create(createRequest(), context())
    await provider.get(providerID, context())
    await next('everything, once the connection is back', () => {
      world.stub.cutConnections()
      // While nobody can hear it.
      world.stub.host.shutDown(domain(), 1)
    })
    expect((await provider.get(providerID, context())).state).toBe('stopped')
    await next('an event of the new connection', () => provider.create(createRequest(), context()))
  })

  it('registers once per connection, and observes a host with one call', async () => {
    const { provider } = listen()
    await provider.create(createRequest(), context())
    await provider.get(providerID, context())
    const count = () => world.lines.filter(({ msg }) => msg === 'libvirt call').length
    const before = count()
    expect(await provider.observe('lab', context())).toEqual(new Map([[providerID, 'running']]))
    expect(count() - before).toBe(1)
    expect(world.stub.calls('CONNECT_DOMAIN_EVENT_CALLBACK_REGISTER_ANY')).toBe(2)
  })

  it('is no condition for anything else', async () => {
    const { provider } = listen()
    const refusal = { code: ErrorCode.NO_SUPPORT, domain: 0, level: 2, message: 'no events here', int1: 0, int2: 0 }
    const nothing = { str1: null, str2: null, str3: null, dom: null, net: null }
    world.stub.knobs.failNext('CONNECT_DOMAIN_EVENT_CALLBACK_REGISTER_ANY', { ...refusal, ...nothing }, 2)
    await provider.create(createRequest(), context())
    expect((await provider.get(providerID, context())).state).toBe('running')
    expect(world.lines).toContainEqual(
      expect.objectContaining({ level: 'warn', host: 'lab', msg: 'libvirt host refuses to tell events' }),
    )
  })
})

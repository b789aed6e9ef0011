// Operations in flight: who may end one, what is told of it, and when it may be tried again.
import { beforeEach, describe, expect, it } from 'vitest'
import { Secret } from '../../../src/lib/secret.ts'
import { silentLogger } from '../../../src/observe/logger.ts'
import type { CreateRequest, Intent, Provider } from '../../../src/provider/contract.ts'
import { ProviderError } from '../../../src/provider/errors.ts'
import { Operations } from '../../../src/reconcile/operations.ts'
import { FakeHypervisor, FakeProvider } from '../../support/fake-provider.ts'
import { ManualClock } from '../../support/manual-clock.ts'

const subject = { key: 'default/a', uid: 'uid-1' }
const owner = { uid: 'uid-1', installation: 'test', namespace: 'default', name: 'a' }
const request: CreateRequest = {
  owner,
  instanceName: 'proxy-a',
  specHash: 'v1:one',
  placement: { zone: 'host-a' },
  intents: [],
  userData: new Secret(Buffer.from('x')),
}
const removal = { owner, instanceName: 'proxy-a', intents: [{ target: 'host-a' }] }

let clock = new ManualClock()
let world = new FakeHypervisor()
let provider: Provider = new FakeProvider(world)
let changes: string[] = []
let recorded: Intent[] = []
let refuse: Error | undefined
let operations = newOperations()

function newOperations(): Operations {
  return new Operations({
    clock,
    random: () => 0,
    log: silentLogger,
    onChange: (key) => changes.push(key),
    mayMutate: () => true,
    isLive: () => Promise.resolve(false),
    record: (_key, _uid, intent) => {
      if (refuse !== undefined) return Promise.reject(refuse)
      recorded.push(intent)
      return Promise.resolve()
    },
  })
}

beforeEach(() => {
  clock = new ManualClock()
  world = new FakeHypervisor()
  provider = new FakeProvider(world)
  changes = []
  recorded = []
  refuse = undefined
  operations = newOperations()
})

const settle = () => clock.advance(0)

describe('a create', () => {
  it('is in flight at once and tells its end by the key', async () => {
    operations.startCreate(subject, provider, request)
    expect(operations.view('uid-1')).toEqual({ kind: 'creating', specHash: 'v1:one', lettingGo: false })
    expect(() => operations.startCreate(subject, provider, request)).toThrow(/in flight/)
    await settle()
    expect(operations.view('uid-1')).toEqual({
      kind: 'created',
      specHash: 'v1:one',
      providerID: 'hosts/host-a/domains/proxy-a',
    })
    expect(changes).toEqual(['default/a'])
    expect(recorded).toEqual([{ target: 'host-a' }])
    operations.settle('uid-1')
    expect(operations.view('uid-1')).toEqual({ kind: 'idle' })
  })

  it('that was told to end is in flight until it let go, and then as if it had never been', async () => {
    const hold = world.hold('define', { stubborn: true })
    operations.startCreate(subject, provider, request)
    await hold.reached
    operations.letGo('uid-1', 'the spec changed')
    await settle()
    expect(operations.view('uid-1')).toMatchObject({ kind: 'creating', lettingGo: true })
    operations.settle('uid-1')
    expect(operations.view('uid-1').kind).toBe('creating')
    hold.release()
    await settle()
    expect(operations.view('uid-1')).toEqual({ kind: 'idle' })
    expect(world.instances.size).toBe(0)
  })

  it('whose intent cannot be written changes nothing and is tried again', async () => {
    refuse = new Error('the API server is away')
    operations.startCreate(subject, provider, request)
    await settle()
    expect(world.contents).toEqual([])
    expect(operations.view('uid-1')).toMatchObject({
      kind: 'createFailed',
      failure: { failures: 1, retryInMs: 1000, error: { kind: 'transient', code: 'StatusNotWritten' } },
    })
  })

  it('counts failures in a row, of the same spec only', async () => {
    const away = ProviderError.transient('away', { code: 'Unreachable' })
    const attempt = async (specHash: string) => {
      world.fail('begin', away)
      operations.startCreate(subject, provider, { ...request, specHash })
      await settle()
      const view = operations.view('uid-1')
      return view.kind === 'createFailed' ? [view.failure.failures, view.failure.retryInMs] : view.kind
    }
    expect(await attempt('v1:one')).toEqual([1, 1000])
    expect(await attempt('v1:one')).toEqual([2, 2000])
    for (let i = 0; i < 12; i++) await attempt('v1:one')
    expect(await attempt('v1:one')).toEqual([15, 300_000])
    expect(await attempt('v1:two')).toEqual([1, 1000])
  })

  it('tells progress at most every five seconds, the last one always', async () => {
    const told: string[] = []
    const done = Promise.withResolvers<string>()
    provider.create = async (_request, context) => {
      context.progress('1 %')
      for (let second = 1; second <= 12; second++) {
        await new Promise<void>((resolve) => clock.after(1000, resolve))
        context.progress(`${second} s`)
      }
      return await done.promise
    }
    operations.startCreate(subject, provider, request)
    for (let second = 0; second <= 20; second++) {
      await clock.advance(second === 0 ? 0 : 1000)
      const view = operations.view('uid-1')
      const progress = view.kind === 'creating' ? view.progress : undefined
      if (progress !== undefined && told.at(-1) !== progress) told.push(progress)
    }
    expect(told).toEqual(['1 %', '4 s', '9 s', '12 s'])
    expect(changes).toHaveLength(4)
    done.resolve('id')
    await settle()
    expect(clock.pendingCount).toBe(0)
  })
})

describe('an object that is gone', () => {
  it('has its create ended', async () => {
    const hold = world.hold('volume')
    operations.startCreate(subject, provider, request)
    await hold.reached
    expect(operations.letGoOthers('default/a', 'uid-2')).toBe(true)
    await settle()
    expect(operations.letGoOthers('default/a', 'uid-2')).toBe(false)
    expect(world.contents).toEqual([])
  })

  it('has its delete left to end by itself', async () => {
    operations.startCreate(subject, provider, request)
    await settle()
    operations.settle('uid-1')
    const hold = world.hold('destroy')
    operations.startDelete(subject, provider, removal)
    await hold.reached
    expect(operations.letGoOthers('default/a', undefined)).toBe(true)
    await settle()
    hold.release()
    await settle()
    expect(world.contents).toEqual([])
    expect(operations.letGoOthers('default/a', undefined)).toBe(false)
    expect(operations.view('uid-1')).toEqual({ kind: 'idle' })
  })

  it('leaves objects of other names alone', async () => {
    const hold = world.hold('volume')
    operations.startCreate(subject, provider, request)
    await hold.reached
    expect(operations.letGoOthers('default/b', undefined)).toBe(false)
    expect(operations.view('uid-1')).toMatchObject({ lettingGo: false })
    hold.release()
    await settle()
    expect(world.instances.size).toBe(1)
  })
})

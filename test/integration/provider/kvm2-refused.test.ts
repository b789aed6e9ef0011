// The kvm2 provider at hosts that will not have it: what a check and a create say, over real SSH.
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { ErrorCode } from '../../../src/wire/libvirt/errors.ts'
import { eventually } from '../../support/eventually.ts'
import { generateTestKey, knownHostsLine } from '../../support/ssh/keys.ts'
import {
  cachedImage,
  context,
  createRequest,
  deleteRequest,
  failure,
  startWorld,
  volumeNames,
  type World,
} from './stub-world.ts'

const budgetMs = 30_000
const { instanceName: name } = createRequest()
const providerID = `hosts/lab/domains/${name}`

let world: World
let folder: string
beforeEach(async () => {
  world = await startWorld()
  folder = await mkdtemp(join(tmpdir(), 'kvm2-test-'))
})
afterEach(async () => {
  await world[Symbol.asyncDispose]()
  await rm(folder, { recursive: true })
})

describe('a host that will not have us', () => {
  const both = async (block: object) => {
    const provider = world.provider(block)
    const [health] = await provider.check(context())
    return { health, error: await failure(provider.create(createRequest(), context())) }
  }

  it('because of the key', async () => {
    const sshKeyFile = join(folder, 'other')
    await writeFile(sshKeyFile, generateTestKey().privateKey)
    const { health, error } = await both({ sshKeyFile })
    expect(health).toMatchObject({ ready: false, reason: 'Unauthorized' })
    expect(error).toMatchObject({ kind: 'permanent', origin: 'environment', code: 'Unauthorized', target: 'lab' })
    expect(error.message).toContain(sshKeyFile)
  })

  it('because the key is not there yet, or is none', async () => {
    const sshKeyFile = join(folder, 'absent')
    const absent = await both({ sshKeyFile })
    expect(absent.health).toMatchObject({ ready: false, reason: 'CredentialsUnavailable' })
    expect(absent.error).toMatchObject({ kind: 'transient', code: 'CredentialsUnavailable' })
    await writeFile(sshKeyFile, 'ssh-ed25519 AAAA public half')
    const wrong = await both({ sshKeyFile })
    expect(wrong.health).toMatchObject({ ready: false, reason: 'CredentialsUnavailable' })
    expect(wrong.error).toMatchObject({ kind: 'permanent', origin: 'environment', code: 'CredentialsUnavailable' })
    expect(wrong.error.message).toContain(sshKeyFile)
  })

  it('because of its own key', async () => {
    const knownHostsFile = join(folder, 'known_hosts')
    const [host = '', port = ''] = world.stub.address.split(':')
    await writeFile(knownHostsFile, `${knownHostsLine(host, Number(port), generateTestKey().publicKey)}\n`)
    const { health, error } = await both({ knownHostsFile })
    expect(health).toMatchObject({ ready: false, reason: 'Unauthorized' })
    expect(error).toMatchObject({ kind: 'permanent', origin: 'environment', code: 'Unauthorized' })
    expect(error.message).toContain(knownHostsFile)
  })

  it('takes new credentials without a restart', async () => {
    const sshKeyFile = join(folder, 'key')
    await writeFile(sshKeyFile, generateTestKey().privateKey)
    const provider = world.provider({ sshKeyFile })
    await failure(provider.create(createRequest(), context()))
    await writeFile(sshKeyFile, world.stub.privateKey)
    expect(await provider.create(createRequest(), context())).toBe(providerID)
  })

  it('because nobody listens, or libvirtd is down', async () => {
    world.stub.knobs.refuseForwarding = true
    const down = await both({})
    expect(down.health).toMatchObject({ ready: false, reason: 'Unreachable' })
    expect(down.error).toMatchObject({ kind: 'transient', code: 'Unreachable' })
    const host = { name: 'lab', address: '127.0.0.1:1', user: 'u', bridge: 'br0' }
    const away = await both({ hosts: [host] })
    expect(away.health).toMatchObject({ ready: false, reason: 'Unreachable', address: '127.0.0.1:1' })
    expect(away.error).toMatchObject({ kind: 'transient', code: 'Unreachable' })
  })

  it.each<[string, number, string]>([
    ['the login', ErrorCode.AUTH_FAILED, 'authentication failed: access denied by policy'],
    ['the user', ErrorCode.ACCESS_DENIED, 'access denied'],
    ['changes', ErrorCode.OPERATION_DENIED, 'operation forbidden: read only access prevents it'],
  ])('because libvirt refuses %s', async (_what, code, message) => {
    const nothing = { str1: null, str2: null, str3: null, dom: null, net: null }
    world.stub.knobs.failNext('CONNECT_OPEN', { code, domain: 0, level: 2, message, int1: -1, int2: -1, ...nothing }, 3)
    const { health, error } = await both({})
    expect(health).toMatchObject({ ready: false, reason: 'Forbidden' })
    expect(health?.message).toContain(message)
    expect(error).toMatchObject({ kind: 'permanent', origin: 'environment', code: 'Forbidden' })
    expect((await world.provider({}, {}, 'kvm').check(context()))[0]).toMatchObject({ reason: 'LibvirtConnectFailed' })
    expect((await world.provider().check(context()))[0]).toMatchObject({ ready: true })
  })

  it('because its pool is missing or stopped', async () => {
    const host = { name: 'lab', address: world.stub.address, user: world.stub.user, bridge: 'br0' }
    const missing = await both({ hosts: [{ ...host, pool: 'nope' }] })
    expect(missing.health).toMatchObject({ ready: false, reason: 'PoolNotFound', details: { libvirtVersion: '9.0.0' } })
    expect(missing.error).toMatchObject({ kind: 'permanent', origin: 'environment', code: 'PoolNotFound' })
    world.stub.pool().active = false
    const stopped = await both({})
    expect(stopped.health).toMatchObject({ ready: false, reason: 'PoolNotActive', details: { poolState: 'inactive' } })
    expect(stopped.error).toMatchObject({ kind: 'permanent', origin: 'environment', code: 'PoolNotActive' })
    expect(stopped.error.message).toContain('virsh pool-start default')
    expect([world.stub.domains(), world.stub.volumes()]).toEqual([[], []])
  })

  it('and stopped its pool after a create cannot finish a delete, and says how it could', async () => {
    const provider = world.provider()
    await provider.create(createRequest(), context())
    world.stub.pool().active = false
    expect(await failure(provider.delete(deleteRequest(), context()))).toMatchObject({ code: 'PoolNotActive' })
    world.stub.pool().active = true
    await provider.delete(deleteRequest(), context())
    expect([world.stub.domains(), volumeNames(world)]).toEqual([[], cachedImage])
  })

  it('checks all hosts at once, each on a connection of its own that it ends', async () => {
    const host = { name: 'lab', address: world.stub.address, user: world.stub.user, bridge: 'br0' }
    const provider = world.provider({ hosts: [{ ...host, address: '127.0.0.1:1', name: 'away' }, host] })
    const health = await provider.check(context())
    expect(health.map(({ name: target, ready, reason }) => [target, ready, reason])).toEqual([
      ['away', false, 'Unreachable'],
      ['lab', true, 'Reachable'],
    ])
    expect(health[1]?.details).toEqual({
      user: world.stub.user,
      pool: 'default',
      libvirtVersion: '9.0.0',
      hostname: expect.stringMatching(/./) as string,
      poolState: 'running',
      poolCapacityGiB: '100.0',
      poolAvailableGiB: '100.0',
      'image.tiny': expect.stringMatching(/^not cached yet; from http/) as string,
    })
    await eventually('the connection ended', budgetMs, () =>
      Promise.resolve(world.stub.connections() === 0 ? true : undefined),
    )
  })

  it('checks in no more time than it is given', async () => {
    const release = world.stub.knobs.hang('STORAGE_POOL_GET_INFO')
    const [health] = await world.provider().check(context({ signal: AbortSignal.timeout(1000) }))
    expect(health).toMatchObject({ ready: false, reason: 'Timeout', details: { libvirtVersion: '9.0.0' } })
    release()
  })
})

// Every reason of both types' health checks, each from what really causes it, with what the host had answered before.
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { defaultBudgets } from '../../../src/provider/libvirt/budgets.ts'
import { remoteError } from '../../support/libvirt-stub/model/errors.ts'
import { context, startWorld, type World } from './stub-world.ts'

let world: World
beforeEach(async () => {
  world = await startWorld()
})
afterEach(async () => {
  await world[Symbol.asyncDispose]()
})

interface Row {
  readonly kvm2: string
  readonly kvm: string
  readonly why: string
  /** Changes one host of the config. */
  readonly host?: object
  readonly block?: object
  readonly arrange?: () => void
  /** Once the named call is under way. */
  readonly meanwhile?: () => void
  readonly roundMs?: number
  /** Details beyond user and pool. */
  readonly answered: readonly string[]
}

const pool = (type: 'kvm' | 'kvm2') =>
  type === 'kvm' ? ['poolCapacity', 'poolAvailable'] : ['poolCapacityGiB', 'poolAvailableGiB']
const early = ['libvirtVersion', 'hostname']
const knobs = () => world.stub.knobs

const rows: readonly Row[] = [
  {
    kvm2: 'CredentialsUnavailable',
    kvm: 'SSHMaterialUnavailable',
    why: 'no key',
    block: { sshKeyFile: '/none' },
    answered: [],
  },
  {
    kvm2: 'CredentialsUnavailable',
    kvm: 'SSHMaterialUnavailable',
    why: 'no known_hosts',
    block: { knownHostsFile: '/none' },
    answered: [],
  },
  { kvm2: 'Unreachable', kvm: 'Unreachable', why: 'nobody listens', host: { address: '127.0.0.1:1' }, answered: [] },
  { kvm2: 'Unauthorized', kvm: 'SSHHandshakeFailed', why: 'key refused', host: { user: 'nobody' }, answered: [] },
  {
    kvm2: 'Unreachable',
    kvm: 'LibvirtConnectFailed',
    why: 'no such socket',
    host: { socket: '/elsewhere' },
    answered: [],
  },
  {
    ...{ kvm2: 'Forbidden', kvm: 'LibvirtConnectFailed', why: 'libvirt refuses the user', answered: [] },
    arrange: () => knobs().failNext('CONNECT_OPEN', remoteError(45, 'authentication failed: no')),
  },
  {
    ...{ kvm2: 'Unreachable', kvm: 'Unreachable', why: 'the link dies', answered: ['libvirtVersion'] },
    arrange: () => void knobs().hang('CONNECT_GET_HOSTNAME'),
    meanwhile: () => void world.stub.nextCall('CONNECT_GET_HOSTNAME').then(() => world.stub.cutConnections()),
  },
  {
    ...{ kvm2: 'Timeout', kvm: 'Timeout', why: "a call's own budget ran out", answered: ['libvirtVersion'] },
    arrange: () => void knobs().hang('CONNECT_GET_HOSTNAME'),
  },
  {
    ...{ kvm2: 'Timeout', kvm: 'Timeout', why: 'the round ran out', answered: early, roundMs: 600 },
    arrange: () => void knobs().hang('STORAGE_POOL_LOOKUP_BY_NAME'),
  },
  { kvm2: 'PoolNotFound', kvm: 'PoolNotFound', why: 'no such pool', host: { pool: 'nope' }, answered: early },
  {
    ...{ kvm2: 'APIError', kvm: 'LibvirtError', why: 'any other error', answered: early },
    arrange: () => knobs().failNext('STORAGE_POOL_GET_INFO', remoteError(1, 'internal error: odd')),
  },
]

describe.each(['kvm2', 'kvm'] as const)('the health check of %s', (type) => {
  const check = async (row: Row) => {
    row.arrange?.()
    row.meanwhile?.()
    const host = { name: 'lab', address: world.stub.address, user: world.stub.user, socket: world.stub.socketPath }
    const block = { ...row.block, hosts: [{ ...host, bridge: 'br0', ...row.host }] }
    const rpcMs = row.roundMs === undefined ? 1500 : defaultBudgets.rpcMs
    const provider = world.provider(block, { budgets: { ...defaultBudgets, rpcMs } }, type)
    const signal = row.roundMs === undefined ? new AbortController().signal : AbortSignal.timeout(row.roundMs)
    return (await provider.check(context({ signal })))[0]
  }

  it.each(rows)('says $kvm2 ($kvm): $why', async (row) => {
    const health = await check(row)
    expect(health).toMatchObject({ name: 'lab', ready: false, reason: row[type] })
    expect(health?.message).not.toBe('')
    expect(Object.keys(health?.details ?? {}).sort()).toEqual(['user', 'pool', ...row.answered].sort())
  })

  it('says PoolNotActive, with the state and sizes, and Reachable when it runs again', async () => {
    const row = { kvm2: '', kvm: '', why: '', answered: [] }
    world.stub.pool().active = false
    const health = await check(row)
    expect(health).toMatchObject({ ready: false, reason: 'PoolNotActive', details: { poolState: 'inactive' } })
    expect(Object.keys(health?.details ?? {})).toEqual(['user', 'pool', ...early, 'poolState', ...pool(type)])
    world.stub.pool().active = true
    expect(await check(row)).toMatchObject({ ready: true, reason: 'Reachable' })
  })

  it('has the hosts in the order of the config, whichever answers first', async () => {
    const host = { address: world.stub.address, user: world.stub.user, bridge: 'br0' }
    const dead = { ...host, address: '127.0.0.1:1' }
    const names = ['z', 'b', 'y', 'a']
    const hosts = names.map((name, i) => ({ ...(i % 2 === 0 ? host : dead), name }))
    const health = await world.provider({ hosts }, {}, type).check(context())
    expect(health.map(({ name, ready }) => [name, ready])).toEqual(names.map((name, i) => [name, i % 2 === 0]))
  })
})

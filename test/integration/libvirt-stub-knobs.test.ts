// The stub's own ways: what its knobs do, what it keeps as a daemon keeps it, and that it runs as a process.
import { spawn } from 'node:child_process'
import { randomBytes, createHash } from 'node:crypto'
import { once } from 'node:events'
import { mkdtemp, readFile, rm, stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from 'vitest'
import { parse as parseYaml } from 'yaml'
import { systemClock } from '../../src/lib/clock.ts'
import { keepaliveFrame } from '../../src/wire/libvirt/codec.ts'
import { ErrorCode } from '../../src/wire/libvirt/error-codes.ts'
import { programs } from '../../src/wire/libvirt/protocol.gen.ts'
import { loadCredentials } from '../../src/wire/ssh/credentials.ts'
import { dialSsh } from '../../src/wire/ssh/dial.ts'
import { eventually } from '../support/eventually.ts'
import { callPacket, errorOf, RawClient, refusal, streamPacket } from '../support/libvirt-peer/peer.ts'
import { callOptions, dialStub, StubClient } from '../support/libvirt-stub/client.ts'
import { remoteError } from '../support/libvirt-stub/model/errors.ts'
import { startLibvirtStub, type LibvirtStub } from '../support/libvirt-stub/stub.ts'
import { ManualClock } from '../support/manual-clock.ts'

const budgetMs = 60_000
const never = new AbortController().signal
const opening = { name: 'qemu:///system', flags: 0 }

let stub: LibvirtStub
let clients: StubClient[]

beforeEach(async () => {
  stub = await startLibvirtStub({ keepBytes: 200_000 })
  clients = []
})
afterEach(async () => {
  for (const client of clients) await client.close()
  await stub.close()
})

async function connect(): Promise<StubClient> {
  const client = await StubClient.connect(stub)
  clients.push(client)
  return client
}

async function rawClient(): Promise<RawClient> {
  const raw = new RawClient(stub.openLocal())
  await raw.call('CONNECT_OPEN', 1, opening)
  return raw
}

describe('the way in', () => {
  it('is open for its own key alone, and leads to one socket', async () => {
    const ssh = await dialStub(stub)
    await expect(ssh.openStreamLocal('/run/other', { signal: never, timeoutMs: budgetMs })).rejects.toMatchObject({
      code: 'FORWARD_REFUSED',
    })
    stub.knobs.refuseForwarding = true
    await expect(ssh.openStreamLocal(stub.socketPath, { signal: never, timeoutMs: budgetMs })).rejects.toMatchObject({
      code: 'FORWARD_REFUSED',
    })
    await ssh.close()
    const { address, keyFile, knownHostsFile } = stub
    const credentials = await loadCredentials({ keyFile, knownHostsFile, insecureIgnoreHostKey: false })
    const stranger = { address, user: 'root', credentials, signal: never, clock: systemClock, timeoutMs: budgetMs }
    await expect(dialSsh(stranger)).rejects.toMatchObject({ code: 'UNAUTHORIZED' })
  })

  it('can be cut', async () => {
    const client = await connect()
    expect(stub.connections()).toBe(1)
    const ended = client.libvirt.closed
    stub.cutConnections()
    await ended
    expect((await client.ssh.closed).code).toBe('CLOSED')
    await (await connect()).libvirt.call('CONNECT_GET_HOSTNAME', null, callOptions)
  })
})

describe('calls', () => {
  it('fail to order, so often and no more', async () => {
    const client = await connect()
    stub.knobs.failNext('CONNECT_GET_HOSTNAME', remoteError(ErrorCode.INTERNAL_ERROR, 'ordered'), 2)
    const call = () => client.libvirt.call('CONNECT_GET_HOSTNAME', null, callOptions)
    expect((await refusal(call())).message).toBe('ordered')
    expect((await refusal(call())).message).toBe('ordered')
    expect((await call()).hostname).toBe('libvirt-stub')
    expect(stub.calls('CONNECT_GET_HOSTNAME')).toBe(3)
  })

  it('hang before they have an effect, or after it', async () => {
    const client = await connect()
    const releaseBefore = stub.knobs.hang('STORAGE_VOL_CREATE_XML')
    const heard = stub.nextCall('STORAGE_VOL_CREATE_XML')
    const first = client.createVolume('a.img', 1000)
    await heard
    await client.libvirt.call('CONNECT_GET_HOSTNAME', null, callOptions)
    expect(stub.volumes()).toEqual([])
    releaseBefore()
    await first

    const releaseAfter = stub.knobs.hang('STORAGE_VOL_CREATE_XML', 'after')
    const second = client.createVolume('b.img', 1000)
    await eventually('the volume', budgetMs, () => Promise.resolve(stub.volume('b.img')))
    releaseAfter()
    await second
  })

  it('make a connection deaf when five of them are unanswered, to pings too', async () => {
    const raw = await rawClient()
    const release = stub.knobs.hang('CONNECT_GET_URI')
    for (let serial = 10; serial < 15; serial++) raw.write(callPacket('CONNECT_GET_URI', serial, null))
    await eventually('five calls', budgetMs, () => Promise.resolve(stub.calls('CONNECT_GET_URI') === 5 || undefined))
    raw.write(callPacket('CONNECT_GET_HOSTNAME', 15, null), keepaliveFrame('PING'))
    const other = await rawClient()
    await other.call('CONNECT_GET_HOSTNAME', 2, null)
    expect(raw.received.map(({ serial }) => serial)).toEqual([1])
    release()
    await raw.reply(15)
    await raw.next('a pong', ({ program }) => program === programs.KEEPALIVE.number)
    raw.close()
    other.close()
  })

  it('of procedures that the stub does not have say so', async () => {
    const client = await connect()
    const error = await refusal(client.libvirt.call('CONNECT_GET_CAPABILITIES', null, callOptions))
    expect(error.code).toBe(ErrorCode.NO_SUPPORT)
    expect(error.message).toContain('CONNECT_GET_CAPABILITIES')
  })
})

describe('uploads', () => {
  it('stop half-way to order, keep what was written over the end of the connection, and never go on', async () => {
    const client = await connect()
    const data = randomBytes(100_000)
    const vol = await client.createVolume('half.img', data.length)
    stub.knobs.limitUploads(60_000)
    const uploading = client.upload(vol, data).catch((error: unknown) => error)
    await eventually('the first part', budgetMs, () =>
      Promise.resolve((stub.volume('half.img')?.allocation ?? 0) >= 60_000 || undefined),
    )
    client.ssh.kill(new Error('enough'))
    expect(await uploading).toBeInstanceOf(Error)
    await eventually('the stub noticed', budgetMs, () => Promise.resolve(stub.connections() === 0 || undefined))
    stub.knobs.limitUploads(Number.POSITIVE_INFINITY)
    const next = await connect()
    await next.libvirt.call('CONNECT_GET_HOSTNAME', null, callOptions)
    const bytes = stub.volume('half.img')?.bytes()
    expect(bytes?.subarray(0, 60_000).equals(data.subarray(0, 60_000))).toBe(true)
    expect(bytes?.subarray(60_000).every((byte) => byte === 0)).toBe(true)
  })

  it('lose data that is sent along with the call', async () => {
    const client = await connect()
    const vol = await client.createVolume('early.img', 10)
    const raw = await rawClient()
    raw.write(
      callPacket('STORAGE_VOL_UPLOAD', 2, { vol, offset: 0n, length: 10n, flags: 0 }),
      streamPacket('STORAGE_VOL_UPLOAD', 2, 'CONTINUE', Buffer.from('early data')),
    )
    await raw.reply(2)
    raw.write(streamPacket('STORAGE_VOL_UPLOAD', 2, 'OK'))
    await raw.streamEnd(2)
    expect(stub.volume('early.img')?.bytes()).toEqual(Buffer.alloc(10))
    raw.close()
  })

  it('die of an empty packet, which the finish tells; a real daemon now and then says nothing at all', async () => {
    const client = await connect()
    const vol = await client.createVolume('empty.img', 10)
    const raw = await rawClient()
    await raw.call('STORAGE_VOL_UPLOAD', 2, { vol, offset: 0n, length: 0n, flags: 0 })
    for (const data of [new Uint8Array(), Buffer.from('lost')]) {
      raw.write(streamPacket('STORAGE_VOL_UPLOAD', 2, 'CONTINUE', data))
    }
    raw.write(streamPacket('STORAGE_VOL_UPLOAD', 2, 'OK'))
    expect(errorOf(await raw.streamEnd(2))).toMatchObject({
      code: ErrorCode.SYSTEM_ERROR,
      int1: 9,
      message: 'cannot write to stream: Bad file descriptor',
    })
    expect(stub.volume('empty.img')?.bytes()).toEqual(Buffer.alloc(10))
    raw.close()
  })

  it('end when the pool is full, in the words of libvirt', async () => {
    const client = await connect()
    stub.pool().capacity = 50_000
    const vol = await client.createVolume('big.img', 200_000)
    const error = await refusal(client.upload(vol, Buffer.alloc(200_000, 1)))
    expect(error).toMatchObject({ code: ErrorCode.SYSTEM_ERROR, int1: 28, domain: 38 })
    expect(error.message).toBe('Unable to write /var/lib/libvirt/images/big.img: No space left on device')
    const info = await client.libvirt.call('STORAGE_POOL_GET_INFO', { pool: client.pool }, callOptions)
    expect(info.available).toBe(0n)
    const xml = '<volume><name>c.img</name><capacity>20971520</capacity></volume>'
    const created = client.libvirt.call('STORAGE_VOL_CREATE_XML', { pool: client.pool, xml, flags: 0 }, callOptions)
    expect((await refusal(created)).message).toBe(
      "cannot allocate 20971520 bytes in file '/var/lib/libvirt/images/c.img': No space left on device",
    )
  })

  it('of more than is kept are still counted and hashed', async () => {
    const client = await connect()
    const data = randomBytes(1_000_000)
    const vol = await client.putVolume('large.img', data)
    const view = stub.volume('large.img')
    expect(view).toMatchObject({ size: 1_000_000, capacity: 1_000_000 })
    expect(view?.sha256()).toBe(createHash('sha256').update(data).digest('hex'))
    expect(() => view?.bytes()).toThrow('are kept')
    const head = await client.libvirt.downloadAll(vol, {
      offset: 0n,
      length: 1000n,
      maxBytes: 1000,
      timeoutMs: budgetMs,
    })
    expect(head).toEqual(data.subarray(0, 1000))
  })
})

it('a stopped pool serves its info alone', async () => {
  const client = await connect()
  const { pool } = client
  stub.pool().active = false
  expect((await client.libvirt.call('STORAGE_POOL_GET_INFO', { pool }, callOptions)).state).toBe(0)
  for (const call of [
    client.libvirt.call('STORAGE_POOL_REFRESH', { pool, flags: 0 }, callOptions),
    client.libvirt.call('STORAGE_VOL_LOOKUP_BY_NAME', { pool, name: 'x' }, callOptions),
    client.createVolume('x', 1),
  ]) {
    const error = await refusal(call)
    expect(error.code).toBe(ErrorCode.OPERATION_INVALID)
    expect(error.message).toBe("Requested operation is not valid: storage pool 'default' is not active")
  }
})

it('callbacks count for domains and pools apart, over all connections, and belong to theirs', async () => {
  const first = await connect()
  const second = await connect()
  const domains = await first.libvirt.registerDomainEvents('DOMAIN_EVENT_CALLBACK_LIFECYCLE', callOptions)
  const pools = await second.libvirt.registerStoragePoolEvents('STORAGE_POOL_EVENT_REFRESH', callOptions)
  const more = await second.libvirt.registerDomainEvents('DOMAIN_EVENT_CALLBACK_REBOOT', callOptions)
  expect([domains.callbackID, pools.callbackID, more.callbackID]).toEqual([0, 0, 1])
  const foreign = second.libvirt.call('CONNECT_DOMAIN_EVENT_CALLBACK_DEREGISTER_ANY', { callbackID: 0 }, callOptions)
  expect((await refusal(foreign)).message).toBe('internal error: domain event callback 0 not registered')
})

it('a client that asked for keepalives and went silent is hung up on after 30 s, another is left alone', async () => {
  const clock = new ManualClock()
  const timed = await startLibvirtStub({ clock })
  const silent = new RawClient(timed.openLocal())
  const quiet = new RawClient(timed.openLocal())
  await silent.call('CONNECT_SUPPORTS_FEATURE', 1, { feature: 10 })
  await silent.call('CONNECT_OPEN', 2, opening)
  await quiet.call('CONNECT_OPEN', 2, opening)
  await clock.advance(29_000)
  expect(silent.received.filter(({ program }) => program === programs.KEEPALIVE.number)).toHaveLength(5)
  await clock.advance(1000)
  await silent.end()
  await clock.advance(120_000)
  await quiet.call('CONNECT_GET_HOSTNAME', 3, null)
  quiet.close()
  await timed.close()
})

it('runs as a process, says how to reach it, and takes everything along when told to stop', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'stub-process-'))
  const script = join(import.meta.dirname, '../../hack/stub-libvirt.ts')
  const unix = join(folder, 'libvirt.sock')
  const child = spawn(process.execPath, [script, '--unix', unix], { stdio: ['ignore', 'pipe', 'inherit'] })
  // one that a failure left behind would keep the whole run from ending
  onTestFinished(() => void child.kill('SIGKILL'))
  let output = ''
  child.stdout.setEncoding('utf8').on('data', (chunk: string) => (output += chunk))
  await eventually('what it prints', budgetMs, () => Promise.resolve(output.includes('Ctrl-C') || undefined))

  const yaml = output.slice(output.indexOf('providers:\n'), output.indexOf('Ctrl-C'))
  const config = parseYaml(yaml) as {
    providers: [
      {
        kvm2: { sshKeyFile: string; knownHostsFile: string; hosts: [{ address: string; user: string; socket: string }] }
      },
    ]
  }
  const { sshKeyFile, knownHostsFile, hosts } = config.providers[0].kvm2
  expect(output).toContain((await readFile(knownHostsFile, 'utf8')).trim())
  expect(output).not.toContain('PRIVATE KEY')
  const credentials = await loadCredentials({ keyFile: sshKeyFile, knownHostsFile, insecureIgnoreHostKey: false })
  const [{ address, user, socket }] = hosts
  const ssh = await dialSsh({ address, user, credentials, signal: never, clock: systemClock, timeoutMs: budgetMs })
  const raw = new RawClient(await ssh.openStreamLocal(socket, { signal: never, timeoutMs: budgetMs }))
  await raw.call('CONNECT_OPEN', 1, opening)

  child.kill('SIGTERM')
  const [code] = (await once(child, 'exit')) as [number | null]
  expect(code).toBe(0)
  await ssh.closed
  await expect(stat(sshKeyFile)).rejects.toThrow('ENOENT')
  await expect(stat(unix)).rejects.toThrow('ENOENT')
  await rm(folder, { recursive: true })
})

// The SSH dialer against a real SSH server on loopback: who gets in, what each refusal says, and how connections end.
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { buffer } from 'node:stream/consumers'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { systemClock, type Clock } from '../../../src/lib/clock.ts'
import { loadCredentials } from '../../../src/wire/ssh/credentials.ts'
import { dialSsh, type DialOptions, type SshConnection } from '../../../src/wire/ssh/dial.ts'
import { SshError } from '../../../src/wire/ssh/errors.ts'
import { generateTestKey, knownHostsLine, type TestKeyPair } from '../../support/ssh/keys.ts'
import { startTestSshServer, type TestSshServer, type TestSshServerOptions } from '../../support/ssh/server.ts'

const user = 'operator'
const never = new AbortController().signal

let folder: string
let clientKey: TestKeyPair
let hostKey: TestKeyPair
let cleanups: (() => unknown)[]

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'ssh-dial-'))
  clientKey = generateTestKey()
  hostKey = generateTestKey()
  cleanups = []
})
afterEach(async () => {
  for (const cleanup of cleanups.reverse()) await cleanup()
  await rm(folder, { recursive: true })
})

/** Answers `/echo` by sending back what comes, `/late` never, everything else with a refusal. */
function forward(path: string): ReturnType<TestSshServerOptions['onForward']> {
  if (path === '/echo') return (stream) => stream.pipe(stream)
  if (path === '/hello') return (stream) => stream.end('hello')
  if (path === '/sink') return (stream) => stream.pause()
  if (path === '/late') return new Promise(() => undefined)
  return undefined
}

async function serve(options: Partial<TestSshServerOptions> = {}): Promise<TestSshServer> {
  const server = await startTestSshServer({
    hostKeys: [hostKey.privateKey],
    user,
    authorizedKeys: [clientKey.publicBlob],
    onForward: forward,
    ...options,
  })
  cleanups.push(() => server.close())
  return server
}

interface DialChanges extends Partial<DialOptions> {
  key?: string
  /** Lines of known_hosts; undefined ignores host keys. */
  knownHosts?: string | undefined
}

async function dial(address: string, changes: DialChanges): Promise<SshConnection> {
  const { key = clientKey.privateKey, knownHosts, ...rest } = changes
  const keyFile = join(folder, 'id')
  const knownHostsFile = join(folder, 'known_hosts')
  await writeFile(keyFile, key)
  if (knownHosts !== undefined) await writeFile(knownHostsFile, knownHosts)
  const credentials = await loadCredentials({
    keyFile,
    insecureIgnoreHostKey: knownHosts === undefined,
    ...(knownHosts === undefined ? {} : { knownHostsFile }),
  })
  const connection = await dialSsh({
    address,
    user,
    credentials,
    signal: never,
    clock: systemClock,
    timeoutMs: 60_000,
    ...rest,
  })
  cleanups.push(() => connection.close())
  return connection
}

async function failureOf(work: Promise<unknown>): Promise<SshError> {
  const error = await work.then(
    () => undefined,
    (thrown: unknown) => thrown,
  )
  expect(error).toBeInstanceOf(SshError)
  return error as SshError
}

function trusted(server: TestSshServer, key = hostKey): string {
  return knownHostsLine(server.host, server.port, key.publicKey)
}

const opening = { signal: never, timeoutMs: 60_000 }

describe('a dial that works', () => {
  it.each(['ed25519', 'rsa', 'ecdsa'] as const)('logs in with an %s key and forwards bytes both ways', async (kind) => {
    clientKey = generateTestKey(kind)
    hostKey = generateTestKey(kind)
    const server = await serve()
    const connection = await dial(`127.0.0.1:${server.port}`, { knownHosts: trusted(server) })
    const stream = await connection.openStreamLocal('/echo', opening)
    stream.end(Buffer.alloc(3_000_000, 'abc'))
    expect((await buffer(stream)).equals(Buffer.alloc(3_000_000, 'abc'))).toBe(true)
  })

  it('forwards through a server that is not OpenSSH, and many streams at once', async () => {
    const server = await serve({ ident: 'SomethingElse_1.0' })
    const connection = await dial(`127.0.0.1:${server.port}`, { knownHosts: trusted(server) })
    const echoed = await Promise.all(
      Array.from({ length: 8 }, async (_, n) => {
        const stream = await connection.openStreamLocal('/echo', opening)
        stream.end(`stream ${n}`)
        return (await buffer(stream)).toString()
      }),
    )
    expect(echoed).toEqual(Array.from({ length: 8 }, (_, n) => `stream ${n}`))
  })

  it('asks a host with several keys for the one that is known', async () => {
    const rsa = generateTestKey('rsa')
    const server = await serve({ hostKeys: [hostKey.privateKey, rsa.privateKey] })
    await dial(`127.0.0.1:${server.port}`, { knownHosts: trusted(server, rsa) })
    expect(server.connections()).toBe(1)
  })

  it('stays up across new session keys', async () => {
    const server = await serve()
    const connection = await dial(`127.0.0.1:${server.port}`, { knownHosts: trusted(server) })
    const stream = await connection.openStreamLocal('/echo', opening)
    server.rekey()
    stream.end('after')
    expect((await buffer(stream)).toString()).toBe('after')
  })

  it('reaches IPv6 addresses in brackets', async () => {
    const server = await serve({ host: '::1' })
    await dial(`[::1]:${server.port}`, { knownHosts: knownHostsLine('::1', server.port, hostKey.publicKey) })
    expect(server.connections()).toBe(1)
  })
})

describe('host keys', () => {
  it('refuses an unknown host and says how to add it', async () => {
    const server = await serve()
    const error = await failureOf(
      dial(`127.0.0.1:${server.port}`, {
        knownHosts: 'other.example ssh-rsa AAAA\n# x\n' + knownHostsLine('b', 22, hostKey.publicKey),
      }),
    )
    expect(error).toMatchObject({ code: 'HOST_KEY_UNKNOWN', stage: 'ssh' })
    expect(error.message).toContain(`ssh-keyscan -p ${server.port} 127.0.0.1 >> ${join(folder, 'known_hosts')}`)
    expect(error.message).toContain('SHA256:')
    expect(error.message).toContain('line 1: key does not match its type')
  })

  it('refuses a changed key and names the line', async () => {
    const server = await serve()
    const error = await failureOf(
      dial(`127.0.0.1:${server.port}`, { knownHosts: `# old\n${trusted(server, generateTestKey())}` }),
    )
    expect(error).toMatchObject({ code: 'HOST_KEY_CHANGED', stage: 'ssh' })
    expect(error.message).toContain('line 2')
    expect(error.message).toContain(`ssh-keygen -f ${join(folder, 'known_hosts')} -R '[127.0.0.1]:${server.port}'`)
  })

  it('refuses a revoked key although it is also trusted', async () => {
    const server = await serve()
    const error = await failureOf(
      dial(`127.0.0.1:${server.port}`, { knownHosts: `${trusted(server)}\n@revoked * ${hostKey.publicKey}\n` }),
    )
    expect(error).toMatchObject({ code: 'HOST_KEY_REVOKED', stage: 'ssh' })
  })

  it('says so when the host has no key of a known type', async () => {
    const server = await serve()
    const error = await failureOf(
      dial(`127.0.0.1:${server.port}`, { knownHosts: trusted(server, generateTestKey('rsa')) }),
    )
    expect(error).toMatchObject({ code: 'HOST_KEY_UNKNOWN', stage: 'ssh' })
    expect(error.message).toContain('(ssh-rsa)')
  })

  it('leaves no connection behind after a refusal', async () => {
    const server = await serve()
    await failureOf(dial(`127.0.0.1:${server.port}`, { knownHosts: '' }))
    await expect.poll(() => server.connections(), { timeout: 30_000 }).toBe(0)
  })
})

describe('a dial that fails', () => {
  it('is unauthorized with a key that the host does not know, and says which file', async () => {
    const server = await serve()
    const error = await failureOf(
      dial(`127.0.0.1:${server.port}`, { knownHosts: trusted(server), key: generateTestKey().privateKey }),
    )
    expect(error).toMatchObject({ code: 'UNAUTHORIZED', stage: 'ssh' })
    expect(error.message).toContain(join(folder, 'id'))
    expect(error.message).toContain('authorized_keys')
  })

  it('is a TCP failure where nobody listens', async () => {
    const server = await serve()
    await server.close()
    const error = await failureOf(dial(`127.0.0.1:${server.port}`, {}))
    expect(error).toMatchObject({ code: 'TCP', stage: 'tcp' })
    expect(error.message).toContain(`127.0.0.1:${server.port}`)
    expect(error.message).toContain('ECONNREFUSED')
  })

  it('is a handshake failure where something else answers, or hangs up', async () => {
    const web = await listen((socket) => socket.end('HTTP/1.1 400 Bad Request\r\n\r\n'))
    expect(await failureOf(dial(web, {}))).toMatchObject({ code: 'HANDSHAKE', stage: 'ssh' })
    const rude = await listen((socket) => socket.destroy())
    expect(await failureOf(dial(rude, {}))).toMatchObject({ code: 'HANDSHAKE', stage: 'ssh' })
  })

  it('times out in the handshake with a server that says nothing, by the clock it was given', async () => {
    const { clock, advance } = manualClock()
    const accepted = Promise.withResolvers<Socket>()
    const silent = await listen((socket) => accepted.resolve(socket))
    const dialing = failureOf(dial(silent, { clock, timeoutMs: 10_000 }))
    const socket = await accepted.promise
    // The client's own banner shows that the handshake has begun.
    await once(socket, 'data')
    advance(10_000)
    const error = await dialing
    expect(error).toMatchObject({ code: 'TIMEOUT', stage: 'ssh' })
    expect(error.message).toContain('10 s')
  })

  it('times out in TCP with a host that never answers', async () => {
    const { clock, advance } = manualClock()
    const asked = Promise.withResolvers<unknown>()
    const dialing = failureOf(
      dial('192.0.2.1:22', {
        clock,
        timeoutMs: 10_000,
        connect: (_host, _port, signal) => {
          asked.resolve(undefined)
          return new Promise((_resolve, reject) =>
            signal.addEventListener('abort', () => reject(signal.reason as Error)),
          )
        },
      }),
    )
    await asked.promise
    advance(10_000)
    expect(await dialing).toMatchObject({ code: 'TIMEOUT', stage: 'tcp' })
  })

  it('ends with the reason of the signal, before and during the handshake', async () => {
    const reason = new Error('no longer wanted')
    await expect(dial('127.0.0.1:1', { signal: AbortSignal.abort(reason) })).rejects.toBe(reason)
    const controller = new AbortController()
    const accepted = Promise.withResolvers<Socket>()
    const silent = await listen((socket) => accepted.resolve(socket))
    const dialing = dial(silent, { signal: controller.signal })
    const rejected = expect(dialing).rejects.toBe(reason)
    const ended = once(await accepted.promise, 'close')
    controller.abort(reason)
    await rejected
    await ended
  })

  it('refuses an address that is not host:port', async () => {
    expect((await failureOf(dial('no-port', {}))).message).toContain('"no-port" is not host:port')
  })
})

describe('forwards', () => {
  it('that are refused say what to check', async () => {
    const server = await serve()
    const connection = await dial(`127.0.0.1:${server.port}`, { knownHosts: trusted(server) })
    const error = await failureOf(connection.openStreamLocal('/run/absent-sock', opening))
    expect(error).toMatchObject({ code: 'FORWARD_REFUSED', stage: 'socket' })
    expect(error.message).toContain('/run/absent-sock')
    expect(error.message).toContain('AllowStreamLocalForwarding')
    // The connection goes on.
    const stream = await connection.openStreamLocal('/echo', opening)
    stream.end('x')
    expect((await buffer(stream)).toString()).toBe('x')
  })

  it('that get no answer end with their budget or their signal, and the connection goes on', async () => {
    const { clock, advance } = manualClock()
    const server = await serve()
    const connection = await dial(`127.0.0.1:${server.port}`, { knownHosts: trusted(server), clock })
    const late = failureOf(connection.openStreamLocal('/late', { signal: never, timeoutMs: 5000 }))
    advance(5000)
    expect(await late).toMatchObject({ code: 'TIMEOUT', stage: 'socket' })
    const reason = new Error('enough')
    const controller = new AbortController()
    const aborted = connection.openStreamLocal('/late', { signal: controller.signal, timeoutMs: 5000 })
    controller.abort(reason)
    await expect(aborted).rejects.toBe(reason)
    const stream = await connection.openStreamLocal('/hello', opening)
    expect((await buffer(stream)).toString()).toBe('hello')
  })

  it('that the host ends are an end of data, not an error', async () => {
    const server = await serve()
    const connection = await dial(`127.0.0.1:${server.port}`, { knownHosts: trusted(server) })
    const stream = await connection.openStreamLocal('/hello', opening)
    const closed = once(stream, 'close')
    expect((await buffer(stream)).toString()).toBe('hello')
    await closed
  })

  it('that we destroy end at the host as well', async () => {
    const ended = Promise.withResolvers<unknown>()
    const server = await serve({
      onForward: () => (stream) => {
        stream.on('close', () => ended.resolve(undefined)).resume()
      },
    })
    const connection = await dial(`127.0.0.1:${server.port}`, { knownHosts: trusted(server) })
    const stream = await connection.openStreamLocal('/any', opening)
    stream.destroy()
    await ended.promise
  })
})

describe('how a connection ends', () => {
  it('fails every stream when the host goes away, also one that waits to write', async () => {
    const server = await serve()
    const connection = await dial(`127.0.0.1:${server.port}`, { knownHosts: trusted(server) })
    const reading = await connection.openStreamLocal('/echo', opening)
    const writing = await connection.openStreamLocal('/sink', opening)
    const readFailure = failureOf(buffer(reading))
    const writeFailure = failureOf(once(writing, 'finish'))
    // More than the window of a channel, so the end of it waits.
    writing.write(Buffer.alloc(8_000_000))
    writing.end()
    await expect.poll(() => writing.writableLength, { timeout: 30_000 }).toBeGreaterThan(0)
    server.cut()
    expect(await readFailure).toMatchObject({ code: 'CLOSED', stage: 'socket' })
    expect(await writeFailure).toMatchObject({ code: 'CLOSED' })
    expect(await connection.closed).toMatchObject({ code: 'CLOSED' })
    expect(await failureOf(connection.openStreamLocal('/echo', opening))).toMatchObject({ code: 'CLOSED' })
  })

  it('is killed at once, with the reason as the cause', async () => {
    const server = await serve()
    const connection = await dial(`127.0.0.1:${server.port}`, { knownHosts: trusted(server) })
    const stream = await connection.openStreamLocal('/sink', opening)
    const streamFailure = failureOf(buffer(stream))
    const pending = failureOf(connection.openStreamLocal('/late', opening))
    stream.write(Buffer.alloc(8_000_000))
    server.freeze()
    const reason = new Error('call ran over its budget')
    connection.kill(reason)
    const cause = await connection.closed
    expect(cause).toMatchObject({ code: 'CLOSED', cause: reason })
    expect(cause.message).toContain('call ran over its budget')
    expect(await streamFailure).toBe(cause)
    expect(await pending).toBe(cause)
  })

  it('is closed politely and repeatedly', async () => {
    const server = await serve()
    const connection = await dial(`127.0.0.1:${server.port}`, { knownHosts: trusted(server) })
    await Promise.all([connection.close(), connection.close()])
    await connection.close()
    expect((await connection.closed).message).toContain('was closed')
    await expect.poll(() => server.connections(), { timeout: 30_000 }).toBe(0)
  })

  it('notices a host that went silent after two periods, and not one that is only quiet', async () => {
    const server = await serve()
    // Real time on purpose: the questions are sent by a timer of the SSH library.
    const connection = await dial(`127.0.0.1:${server.port}`, { knownHosts: trusted(server), keepaliveMs: 400 })
    let ended = false
    void connection.closed.then(() => (ended = true))
    const quietUntil = performance.now() + 4000
    await expect.poll(() => performance.now() > quietUntil || ended, { timeout: 30_000 }).toBe(true)
    expect(ended).toBe(false)
    const stream = await connection.openStreamLocal('/echo', opening)
    const streamFailure = failureOf(buffer(stream))
    server.freeze()
    const cause = await connection.closed
    expect(cause).toMatchObject({ code: 'TIMEOUT', stage: 'socket' })
    expect(await streamFailure).toBe(cause)
  })

  it('survives reading slowly while the connection dies', async () => {
    const server = await serve({
      onForward: () => (stream) => {
        stream.write(Buffer.alloc(6_000_000))
      },
    })
    const connection = await dial(`127.0.0.1:${server.port}`, { knownHosts: trusted(server) })
    const stream = await connection.openStreamLocal('/any', opening)
    const failed = failureOf(once(stream, 'end'))
    stream.pause()
    await expect.poll(() => stream.readableLength, { timeout: 30_000 }).toBeGreaterThan(0)
    server.cut()
    await connection.closed
    // Reading on must neither throw nor hang.
    stream.resume()
    expect(await failed).toMatchObject({ code: 'CLOSED' })
  })
})

async function listen(onSocket: (socket: Socket) => void): Promise<string> {
  const sockets = new Set<Socket>()
  const server: Server = createServer((socket) => {
    sockets.add(socket)
    socket.on('error', () => undefined)
    onSocket(socket)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  cleanups.push(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  return `127.0.0.1:${(server.address() as AddressInfo).port}`
}

/** Timers fire only when told to. */
function manualClock(): { clock: Clock; advance: (ms: number) => void } {
  let now = 0
  const timers = new Set<{ at: number; fire: () => void }>()
  return {
    clock: {
      now: () => now,
      monotonic: () => now,
      after(delayMs, fire) {
        const timer = { at: now + delayMs, fire }
        timers.add(timer)
        return { cancel: () => timers.delete(timer) }
      },
    },
    advance: (ms) => {
      now += ms
      for (const timer of [...timers].filter(({ at }) => at <= now)) {
        timers.delete(timer)
        timer.fire()
      }
    },
  }
}

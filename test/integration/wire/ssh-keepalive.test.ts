// Keepalive over a real SSH server behind a relay that can swallow everything: what is asked, and when a silent host is given up.
import { once } from 'node:events'
import type { Socket } from 'node:net'
import { text } from 'node:stream/consumers'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { Secret } from '../../../src/lib/secret.ts'
import { dialSsh, type SshConnection } from '../../../src/wire/ssh/dial.ts'
import { parsePrivateKey } from '../../../src/wire/ssh/private-key.ts'
import { tcpConnect } from '../../../src/wire/ssh/tcp.ts'
import { eventually } from '../../support/eventually.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { generateTestKey } from '../../support/ssh/keys.ts'
import { startTestSshServer } from '../../support/ssh/server.ts'
import { startTcpRelay, type TcpRelay } from '../../support/tcp-relay.ts'

const user = 'operator'
const budgetMs = 60_000
const never = new AbortController().signal
const opening = { signal: never, timeoutMs: budgetMs }

let cleanups: AsyncDisposableStack
beforeEach(() => {
  cleanups = new AsyncDisposableStack()
})
afterEach(async () => {
  vi.useRealTimers()
  await cleanups.disposeAsync()
})

interface Dialled {
  readonly clock: ManualClock
  readonly relay: TcpRelay
  /** The connection's own. */
  readonly socket: Socket
  readonly connection: SshConnection
  /** Of the connection, once it has ended. */
  readonly ended: unknown[]
}

/** A connection with the defaults of the product, through which everything has come that the host says by itself. */
async function dial(): Promise<Dialled> {
  const clientKey = generateTestKey()
  const options = {
    hostKeys: [generateTestKey().privateKey],
    user,
    authorizedKeys: [clientKey.publicBlob],
    onForward: (path: string) => {
      if (path === '/sink') return (stream: NodeJS.ReadableStream) => void stream.pause()
      return (stream: NodeJS.WritableStream) => void stream.end('hello')
    },
  }
  const server = cleanups.adopt(await startTestSshServer(options), (it) => it.close())
  const relay = cleanups.adopt(await startTcpRelay(server), (it) => it.close())
  const clock = new ManualClock()
  let socket: Socket | undefined
  const connection = await dialSsh({
    address: `127.0.0.1:${relay.port}`,
    user,
    credentials: {
      keyFile: 'none',
      key: new Secret(parsePrivateKey(clientKey.privateKey)),
      trust: { kind: 'anyKey' },
    },
    signal: never,
    clock,
    timeoutMs: budgetMs,
    connect: async (...to) => (socket = await tcpConnect(...to)),
  })
  if (socket === undefined) throw new Error('dialled without a socket')
  cleanups.defer(() => connection.kill(new Error('the test is over')))
  const ended: unknown[] = []
  void connection.closed.then((cause) => ended.push(cause))
  const stream = await connection.openStreamLocal('/hello', opening)
  const closed = once(stream, 'close')
  expect(await text(stream)).toBe('hello')
  stream.end()
  await closed
  return { clock, relay, socket, connection, ended }
}

describe('a connection', () => {
  it('asks its host every 15 s, and its host answers', async () => {
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
    const { socket, ended } = await dial()
    for (let question = 0; question < 3; question++) {
      // A question is written within the turn of its timer.
      const { bytesWritten, bytesRead } = socket
      vi.advanceTimersByTime(14_999)
      expect(socket.bytesWritten).toBe(bytesWritten)
      vi.advanceTimersByTime(1)
      expect(socket.bytesWritten).toBeGreaterThan(bytesWritten)
      await eventually('the answer', budgetMs, () => Promise.resolve(socket.bytesRead > bytesRead ? true : undefined))
    }
    expect(ended).toEqual([])
  })

  it('whose host vanished without a word is given up 30 s after its last byte', async () => {
    const { clock, relay, connection, ended } = await dial()
    relay.swallow()
    await clock.advance(29_999)
    expect(ended).toEqual([])
    expect(relay.open).toBe(1)
    await clock.advance(1)
    expect(await connection.closed).toMatchObject({ code: 'TIMEOUT', stage: 'socket' })
    expect((await connection.closed).message).toContain('went silent for 30 s')
    await eventually('the TCP connection is gone', budgetMs, () => Promise.resolve(relay.open === 0 ? true : undefined))
    expect(clock.pendingCount).toBe(0)
  })

  it('is given up also while it has more to write than the host took', async () => {
    const { clock, relay, connection, ended } = await dial()
    const stream = await connection.openStreamLocal('/sink', opening)
    const failed = once(stream, 'error')
    relay.swallow()
    stream.write(Buffer.alloc(8_000_000))
    await clock.advance(29_999)
    expect(ended).toEqual([])
    await clock.advance(1)
    const cause = await connection.closed
    expect(cause).toMatchObject({ code: 'TIMEOUT' })
    expect(await failed).toEqual([cause])
  })

  it('lives as long as its host answers within the second period', async () => {
    const { clock, connection, ended } = await dial()
    for (let round = 0; round < 5; round++) {
      await clock.advance(29_999)
      const stream = await connection.openStreamLocal('/hello', opening)
      const closed = once(stream, 'close')
      expect(await text(stream)).toBe('hello')
      stream.end()
      await closed
    }
    expect(ended).toEqual([])
  })
})

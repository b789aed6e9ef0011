// Every way a download can end, against a daemon of the test's making on a real unix socket.
import { getEventListeners } from 'node:events'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { decodeArgs, encodeError } from '../../../src/wire/libvirt/codec.ts'
import type { LibvirtConnection } from '../../../src/wire/libvirt/connection.ts'
import { downloadHighWaterBytes } from '../../../src/wire/libvirt/download.ts'
import { ErrorCode, LibvirtConnectionError, LibvirtStreamError } from '../../../src/wire/libvirt/errors.ts'
import { streamPacketBytes, type Frame } from '../../../src/wire/libvirt/frame.ts'
import type { StorageVol } from '../../../src/wire/libvirt/protocol.gen.ts'
import { streamAbortTimeoutMs } from '../../../src/wire/libvirt/stream.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { TestDaemon, isCall, isKeepalive, isStream, remoteError, type Peer } from './libvirt-daemon.ts'
import { pattern } from './libvirt-source.ts'

let daemon: TestDaemon
let clock: ManualClock
let connection: LibvirtConnection
let peer: Peer

const vol: StorageVol = { pool: 'default', name: 'seed.iso', key: '/pool/seed.iso' }
const budget = { timeoutMs: 600_000 }
const all = { ...budget, offset: 0n, length: 0n }

beforeEach(async () => {
  daemon = await TestDaemon.listen()
  clock = new ManualClock()
  daemon.answer('CONNECT_GET_HOSTNAME', { hostname: 'host' })
  ;({ connection, peer } = await daemon.open(clock))
})
afterEach(async () => await daemon.close())

function outcome(promise: Promise<unknown>): Promise<unknown> {
  return promise.catch((error: unknown) => error)
}

/** Answers downloads with `content` in the daemon's usual pieces; the end is the test's. */
function serve(content: Buffer, end = true): void {
  daemon.on('STORAGE_VOL_DOWNLOAD', (to, opening) => {
    to.reply(opening, 'STORAGE_VOL_DOWNLOAD', null)
    for (let offset = 0; offset < content.length; offset += streamPacketBytes) {
      to.stream(opening, 'CONTINUE', content.subarray(offset, offset + streamPacketBytes))
    }
    if (end) to.stream(opening, 'CONTINUE')
  })
}

async function call(): Promise<Frame> {
  const [frame] = await peer.received(isCall('STORAGE_VOL_DOWNLOAD'))
  if (frame === undefined) throw new Error('no download call')
  return frame
}

/** Confirms the client's last packet of the download, as the daemon does. */
async function confirm(last: 'OK' | 'ERROR'): Promise<void> {
  await peer.received(isStream(last))
  peer.stream(await call(), 'OK')
}

async function expectGoodAsNew(): Promise<void> {
  expect(await connection.call('CONNECT_GET_HOSTNAME', null, budget)).toEqual({ hostname: 'host' })
  expect(connection.load).toEqual({ active: 0, queued: 0 })
  expect(clock.pendingCount).toBe(0)
}

describe('a download', () => {
  it('gives the bytes in order, says that it took them all, and ends with the confirmation', async () => {
    const content = pattern(streamPacketBytes * 3 + 7)
    serve(content)
    const result = connection.downloadAll(vol, { ...budget, offset: 32_768n, length: 900_000n, maxBytes: 900_000 })
    expect(decodeArgs('STORAGE_VOL_DOWNLOAD', (await call()).payload)).toEqual({
      vol,
      offset: 32_768n,
      length: 900_000n,
      flags: 0,
    })
    await confirm('OK')
    expect((await result).equals(content)).toBe(true)
    await expectGoodAsNew()
  })

  it('of nothing is empty', async () => {
    serve(Buffer.alloc(0))
    const result = connection.downloadAll(vol, { ...all, maxBytes: 0 })
    await confirm('OK')
    expect(await result).toEqual(Buffer.alloc(0))
    await expectGoodAsNew()
  })

  it('does not start before it is read', async () => {
    serve(pattern(10))
    const pieces = connection.download(vol, all)
    await expectGoodAsNew()
    expect(peer.frames.filter(isCall('STORAGE_VOL_DOWNLOAD'))).toEqual([])
    await pieces.return()
    await expectGoodAsNew()
  })

  it('that is refused throws the error of the daemon', async () => {
    daemon.on('STORAGE_VOL_DOWNLOAD', (to, opening) =>
      to.refuse(opening, remoteError(ErrorCode.NO_STORAGE_VOL, 'no volume')),
    )
    expect(await outcome(connection.downloadAll(vol, { ...all, maxBytes: 10 }))).toMatchObject({
      codeName: 'NO_STORAGE_VOL',
      procedure: 'STORAGE_VOL_DOWNLOAD',
    })
    await expectGoodAsNew()
  })

  it('that the daemon gives up throws its error', async () => {
    serve(pattern(streamPacketBytes), false)
    const result = outcome(connection.downloadAll(vol, { ...all, maxBytes: streamPacketBytes * 9 }))
    peer.stream(await call(), 'ERROR', encodeError(remoteError(ErrorCode.SYSTEM_ERROR, 'read error', 5)))
    expect(await result).toMatchObject({ name: 'LibvirtError', int1: 5 })
    await expectGoodAsNew()
  })

  it('that its reader leaves is aborted; what is still on its way is dropped', async () => {
    const content = pattern(streamPacketBytes * 3)
    serve(content, false)
    daemon.on('CONNECT_GET_TYPE', (to, frame) => to.reply(frame, 'CONNECT_GET_TYPE', { type: 'QEMU' }))
    const reading = (async () => {
      for await (const piece of connection.download(vol, all)) return piece.length
      return 0
    })()
    await peer.received(isStream('ERROR'))
    const opening = await call()
    peer.stream(opening, 'CONTINUE', content.subarray(0, 100))
    peer.stream(opening, 'OK')
    expect(await reading).toBe(streamPacketBytes)
    expect(peer.frames.filter(isStream('OK'))).toEqual([])
    await expectGoodAsNew()
  })

  it('that is cancelled is aborted, and told only after the daemon confirmed', async () => {
    serve(pattern(10), false)
    const controller = new AbortController()
    const reason = new Error('not any more')
    const result = outcome(connection.downloadAll(vol, { ...all, maxBytes: 10, signal: controller.signal }))
    await call()
    await connection.call('CONNECT_GET_HOSTNAME', null, budget)
    controller.abort(reason)
    await confirm('ERROR')
    expect(await result).toBe(reason)
    await expectGoodAsNew()
    expect(getEventListeners(controller.signal, 'abort')).toEqual([])
  })

  it('that is cancelled before the reply rejects at once', async () => {
    daemon.on('STORAGE_VOL_DOWNLOAD', () => undefined)
    const controller = new AbortController()
    const reason = new Error('not any more')
    const result = outcome(connection.downloadAll(vol, { ...all, maxBytes: 10, signal: controller.signal }))
    const opening = await call()
    controller.abort(reason)
    expect(await result).toBe(reason)
    peer.reply(opening, 'STORAGE_VOL_DOWNLOAD', null)
    await confirm('ERROR')
    await expectGoodAsNew()
  })

  it('whose abort the daemon does not confirm takes the connection with it', async () => {
    serve(pattern(10), false)
    const result = outcome(connection.downloadAll(vol, { offset: 0n, length: 0n, maxBytes: 10, timeoutMs: 1000 }))
    await call()
    await clock.advance(1000)
    await peer.received(isStream('ERROR'))
    await clock.advance(streamAbortTimeoutMs)
    expect(await result).toMatchObject({ constructor: LibvirtStreamError, code: 'TIMEOUT' })
    expect(await connection.closed).toMatchObject({ code: 'TIMEOUT' })
    expect(clock.pendingCount).toBe(0)
  })

  it('dies with the connection', async () => {
    serve(pattern(10), false)
    const result = outcome(connection.downloadAll(vol, { ...all, maxBytes: 10 }))
    await call()
    peer.socket.destroy()
    expect(await result).toMatchObject({ constructor: LibvirtConnectionError, code: 'CLOSED' })
    expect(clock.pendingCount).toBe(0)
  })
})

describe('a daemon that sends more than', () => {
  it('asked for is told to stop', async () => {
    serve(pattern(2049), false)
    const result = outcome(connection.downloadAll(vol, { ...budget, offset: 0n, length: 2048n, maxBytes: 9999 }))
    await confirm('ERROR')
    expect(await result).toMatchObject({ constructor: LibvirtStreamError, code: 'TOO_LARGE' })
    await expectGoodAsNew()
  })

  it('the caller can hold is told to stop', async () => {
    serve(pattern(2049), false)
    const result = outcome(connection.downloadAll(vol, { ...all, maxBytes: 2048 }))
    await confirm('ERROR')
    expect(await result).toMatchObject({ constructor: LibvirtStreamError, code: 'TOO_LARGE' })
    await expectGoodAsNew()
  })
})

describe('a reader that is slow', () => {
  const size = downloadHighWaterBytes * 16

  /** Starts to read and leaves most of the data where it is; resolves when the socket between is full. */
  async function lag(timeoutMs: number): Promise<{ pieces: AsyncGenerator<Buffer, void, undefined>; first: Buffer }> {
    serve(pattern(size))
    const pieces = connection.download(vol, { offset: 0n, length: 0n, timeoutMs })
    const { value: first } = await pieces.next()
    if (first === undefined) throw new Error('no data')
    for (let unsent = -1; peer.socket.writableLength !== unsent || unsent === 0;) {
      unsent = peer.socket.writableLength
      await new Promise((resolve) => setTimeout(resolve, 500))
    }
    return { pieces, first }
  }

  it('lets the data wait in the socket, and gets all of it', async () => {
    const { pieces, first } = await lag(600_000)
    expect(peer.socket.writableLength).toBeGreaterThan(downloadHighWaterBytes)
    void confirm('OK')
    const rest: Buffer[] = [first]
    for await (const piece of pieces) rest.push(piece)
    expect(Buffer.concat(rest).equals(pattern(size))).toBe(true)
    await expectGoodAsNew()
  })

  it('and never comes back blocks the connection no longer than its budget', async () => {
    const { pieces } = await lag(60_000)
    const waiting = connection.call('CONNECT_GET_HOSTNAME', null, budget)
    await clock.advance(60_000)
    await confirm('ERROR')
    expect(await waiting).toEqual({ hostname: 'host' })
    expect(await outcome(pieces.next())).toMatchObject({ constructor: LibvirtStreamError, code: 'TIMEOUT' })
    await expectGoodAsNew()
  })

  it('is not taken for a silent daemon', async () => {
    ;({ connection, peer } = await daemon.open(clock, { keepalive: { intervalMs: 5000, maxUnanswered: 5 } }))
    const { pieces } = await lag(600_000)
    await clock.advance(300_000)
    expect(connection.state).toBe('open')
    expect(peer.frames.filter(isKeepalive('PING'))).toEqual([])
    const leaving = pieces.return()
    await confirm('ERROR')
    await leaving
    expect(connection.load).toEqual({ active: 0, queued: 0 })
  })
})

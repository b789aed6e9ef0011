// Every way an upload can end, against a daemon of the test's making on a real unix socket.
import { getEventListeners } from 'node:events'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { decodeArgs, encodeError } from '../../../src/wire/libvirt/codec.ts'
import type { LibvirtConnection } from '../../../src/wire/libvirt/connection.ts'
import { ErrorCode, LibvirtConnectionError, LibvirtStreamError } from '../../../src/wire/libvirt/errors.ts'
import { encodeFrame, streamPacketBytes, type Frame } from '../../../src/wire/libvirt/frame.ts'
import type { StorageVol } from '../../../src/wire/libvirt/protocol.gen.ts'
import { streamAbortTimeoutMs, streamOpenTimeoutMs } from '../../../src/wire/libvirt/stream.ts'
import { sourceStallTimeoutMs } from '../../../src/wire/libvirt/upload.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { TestDaemon, isCall, isStream, remoteError, type Peer } from './libvirt-daemon.ts'
import { TestSource, pattern } from './libvirt-source.ts'

let daemon: TestDaemon
let clock: ManualClock
let connection: LibvirtConnection
let peer: Peer

const vol: StorageVol = { pool: 'default', name: 'base.img', key: '/pool/base.img' }
const timeoutMs = 600_000
const budget = { timeoutMs }

beforeEach(async () => {
  daemon = await TestDaemon.listen()
  clock = new ManualClock()
  daemon.answer('STORAGE_VOL_UPLOAD', null)
  daemon.answer('CONNECT_GET_HOSTNAME', { hostname: 'host' })
  ;({ connection, peer } = await daemon.open(clock))
})
afterEach(async () => await daemon.close())

function outcome(promise: Promise<unknown>): Promise<unknown> {
  return promise.catch((error: unknown) => error)
}

async function call(): Promise<Frame> {
  const [frame] = await peer.received(isCall('STORAGE_VOL_UPLOAD'))
  if (frame === undefined) throw new Error('no upload call')
  return frame
}

function dataBytes(): number {
  return peer.frames.filter(isStream('CONTINUE')).reduce((sum, frame) => sum + frame.payload.length, 0)
}

/** Whether a promise is settled by now, after all that is under way on the event loop. */
async function isSettled(promise: Promise<unknown>): Promise<boolean> {
  let settled = false
  const mark = () => (settled = true)
  promise.then(mark, mark)
  await clock.advance(0)
  return settled
}

/** The connection serves calls, nothing holds a place, and no timer is left. */
async function expectGoodAsNew(): Promise<void> {
  expect(await connection.call('CONNECT_GET_HOSTNAME', null, budget)).toEqual({ hostname: 'host' })
  expect(connection.load).toEqual({ active: 0, queued: 0 })
  expect(clock.pendingCount).toBe(0)
}

describe('an upload that goes well', () => {
  it('waits for the reply, fills packets, never sends an empty one, and ends with the confirmation', async () => {
    daemon.on('STORAGE_VOL_UPLOAD', () => undefined)
    const content = pattern(streamPacketBytes * 2 + 1000)
    const source = new TestSource([content.subarray(0, 0), ...pieces(content, 65_536), content.subarray(0, 0)])
    const progress: number[] = []
    const result = connection.upload(vol, source, {
      ...budget,
      length: BigInt(content.length),
      offset: 4096n,
      onProgress: (bytes) => progress.push(bytes),
    })
    const opening = await call()
    expect(decodeArgs('STORAGE_VOL_UPLOAD', opening.payload)).toEqual({
      vol,
      offset: 4096n,
      length: BigInt(content.length),
      flags: 0,
    })
    await connection.call('CONNECT_GET_HOSTNAME', null, budget)
    expect(peer.frames.filter(isStream('CONTINUE'))).toEqual([])
    expect(source.pulled).toBe(0)
    peer.reply(opening, 'STORAGE_VOL_UPLOAD', null)
    await peer.received(isStream('OK'))
    const data = peer.frames.filter(isStream('CONTINUE'))
    expect(data.map((frame) => frame.payload.length)).toEqual([streamPacketBytes, streamPacketBytes, 1000])
    expect(Buffer.concat(data.map((frame) => frame.payload)).equals(content)).toBe(true)
    expect(new Set(data.map((frame) => `${frame.serial} ${frame.procedure}`))).toEqual(
      new Set([`${opening.serial} ${opening.procedure}`]),
    )
    expect(progress).toEqual([streamPacketBytes, streamPacketBytes * 2, content.length])
    expect(await isSettled(result)).toBe(false)
    peer.stream(opening, 'OK')
    expect(await result).toEqual({ bytes: content.length })
    expect(source.released).toBe(false)
    await expectGoodAsNew()
  })

  it('of nothing is finished at once', async () => {
    const result = connection.upload(vol, new TestSource([]), { ...budget, length: 0n })
    await peer.received(isStream('OK'))
    peer.stream(await call(), 'OK')
    expect(await result).toEqual({ bytes: 0 })
    expect(peer.frames.filter(isStream('CONTINUE'))).toEqual([])
    await expectGoodAsNew()
  })

  it('of unknown length announces none and sends what comes', async () => {
    const content = pattern(streamPacketBytes + 1000)
    const result = connection.upload(vol, new TestSource(pieces(content, 65_536)), budget)
    const opening = await call()
    expect(decodeArgs('STORAGE_VOL_UPLOAD', opening.payload)).toMatchObject({ length: 0n })
    await peer.received(isStream('OK'))
    peer.stream(opening, 'OK')
    expect(await result).toEqual({ bytes: content.length })
    expect(dataBytes()).toBe(content.length)
    await expectGoodAsNew()
  })

  it('of crumbs is sent in shorter packets, none of them empty', async () => {
    const content = pattern(1000)
    const result = connection.upload(vol, new TestSource(pieces(content, 1)), { ...budget, length: 1000n })
    await peer.received(isStream('OK'))
    peer.stream(await call(), 'OK')
    expect(await result).toEqual({ bytes: 1000 })
    const data = peer.frames.filter(isStream('CONTINUE')).map(({ payload }) => payload)
    expect(data.map(({ length }) => length)).toEqual([256, 256, 256, 232])
    expect(Buffer.concat(data).equals(content)).toBe(true)
    await expectGoodAsNew()
  })

  it('lets calls and another upload pass, and holds its place to the end', async () => {
    const content = pattern(streamPacketBytes * 3)
    const options = { ...budget, length: BigInt(content.length) }
    const first = new TestSource(pieces(content, 100_000), 'hang after the last')
    const one = connection.upload(vol, first, options)
    const two = connection.upload(vol, new TestSource(pieces(content, 70_000)), options)
    const calls = await peer.received(isCall('STORAGE_VOL_UPLOAD'), 2)
    await peer.received(isStream('OK'))
    expect(await connection.call('CONNECT_GET_HOSTNAME', null, budget)).toEqual({ hostname: 'host' })
    expect(connection.load).toEqual({ active: 2, queued: 0 })
    const [callOne, callTwo] = calls
    if (callOne === undefined || callTwo === undefined) throw new Error('calls missing')
    peer.stream(callTwo, 'OK')
    expect(await two).toEqual({ bytes: content.length })
    expect(connection.load).toEqual({ active: 1, queued: 0 })
    first.letGo()
    await peer.received((frame) => isStream('OK')(frame) && frame.serial === callOne.serial)
    peer.stream(callOne, 'OK')
    expect(await one).toEqual({ bytes: content.length })
    for (const { serial } of calls) {
      const data = peer.frames.filter((frame) => isStream('CONTINUE')(frame) && frame.serial === serial)
      expect(Buffer.concat(data.map((frame) => frame.payload)).equals(content)).toBe(true)
    }
    await expectGoodAsNew()
  })

  it('takes from its source only what the socket takes', async () => {
    daemon.on('STORAGE_VOL_UPLOAD', (to, opening) => {
      to.reply(opening, 'STORAGE_VOL_UPLOAD', null)
      to.socket.pause()
    })
    const size = streamPacketBytes * 64
    const source = new TestSource(pieces(pattern(size), streamPacketBytes))
    const result = connection.upload(vol, source, { ...budget, length: BigInt(size) })
    await source.quiet()
    // What a unix socket's buffers hold, and one packet of ours.
    expect(source.pulled).toBeGreaterThan(0)
    expect(source.pulled).toBeLessThan(32)
    peer.socket.resume()
    await peer.received(isStream('OK'))
    peer.stream(await call(), 'OK')
    expect(await result).toEqual({ bytes: size })
    expect(dataBytes()).toBe(size)
    await expectGoodAsNew()
  })
})

describe('an upload that the daemon ends', () => {
  it('by refusing the call never touches its source', async () => {
    daemon.on('STORAGE_VOL_UPLOAD', (to, opening) =>
      to.refuse(opening, remoteError(ErrorCode.NO_STORAGE_VOL, 'no volume')),
    )
    const source = new TestSource([pattern(10)])
    const error = await outcome(connection.upload(vol, source, { ...budget, length: 10n }))
    expect(error).toMatchObject({ codeName: 'NO_STORAGE_VOL', procedure: 'STORAGE_VOL_UPLOAD' })
    expect(source.pulled).toBe(0)
    await expectGoodAsNew()
    expect(peer.frames.filter((frame) => frame.type === 3)).toEqual([])
  })

  it('in the middle stops the source and asks for no confirmation', async () => {
    const source = new TestSource(pieces(pattern(streamPacketBytes * 4), streamPacketBytes), 'hang after the last')
    const result = outcome(connection.upload(vol, source, { ...budget, length: BigInt(streamPacketBytes * 9) }))
    await peer.received(isStream('CONTINUE'), 4)
    peer.socket.write(streamError(await call(), 28))
    expect(await result).toMatchObject({ name: 'LibvirtError', code: 38, int1: 28, procedure: 'STORAGE_VOL_UPLOAD' })
    expect(source.released).toBe(true)
    await expectGoodAsNew()
    expect(peer.frames.filter(isStream('ERROR'))).toEqual([])
  })

  it('by an error to the finish is that error', async () => {
    const result = outcome(connection.upload(vol, new TestSource([pattern(10)]), { ...budget, length: 10n }))
    await peer.received(isStream('OK'))
    peer.socket.write(streamError(await call(), 28))
    expect(await result).toMatchObject({ name: 'LibvirtError', code: 38, int1: 28 })
    await expectGoodAsNew()
  })

  it('while the socket is full does not wait for the socket', async () => {
    daemon.on('STORAGE_VOL_UPLOAD', (to, opening) => {
      to.reply(opening, 'STORAGE_VOL_UPLOAD', null)
      to.socket.pause()
    })
    const size = streamPacketBytes * 64
    const source = new TestSource(pieces(pattern(size), streamPacketBytes))
    const result = outcome(connection.upload(vol, source, { ...budget, length: BigInt(size) }))
    await source.quiet()
    peer.socket.write(streamError(await call(), 28))
    expect(await result).toMatchObject({ name: 'LibvirtError', int1: 28 })
    peer.socket.resume()
    await expectGoodAsNew()
  })

  it('with the connection is that end, and the source is released', async () => {
    const source = new TestSource([pattern(10)], 'hang after the last')
    const result = outcome(connection.upload(vol, source, { ...budget, length: 20n }))
    await source.hanging()
    peer.socket.destroy()
    expect(await result).toMatchObject({ constructor: LibvirtConnectionError, code: 'CLOSED' })
    expect(source.released).toBe(true)
    expect(clock.pendingCount).toBe(0)
  })

  it.each<[string, (opening: Frame) => Buffer]>([
    ['data', (opening) => encodeFrame({ ...opening, type: 3, status: 2 }, Buffer.from('x'))],
    ['an end before the finish', (opening) => encodeFrame({ ...opening, type: 3, status: 0 })],
    ['a hole', (opening) => encodeFrame({ ...opening, type: 6, status: 2 }, Buffer.alloc(12))],
    ['a second reply', (opening) => encodeFrame({ ...opening, type: 1, status: 0 })],
    ['a status that does not exist', (opening) => encodeFrame({ ...opening, type: 3, status: 9 })],
    ['another procedure', (opening) => encodeFrame({ ...opening, procedure: 209, type: 3, status: 0 })],
    ['an error that cannot be read', (opening) => encodeFrame({ ...opening, type: 3, status: 1 }, Buffer.alloc(2))],
  ])('by sending %s ends the connection', async (_name, packet) => {
    const source = new TestSource([pattern(10)], 'hang after the last')
    const result = outcome(connection.upload(vol, source, { ...budget, length: 20n }))
    await source.hanging()
    peer.send(packet(await call()))
    expect(await result).toMatchObject({ constructor: LibvirtConnectionError, code: 'PROTOCOL' })
    expect(source.released).toBe(true)
    expect(clock.pendingCount).toBe(0)
  })

  it.each(['reply', 'refuse'] as const)('by an error that overtakes the %s keeps the place until then', async (how) => {
    daemon.on('STORAGE_VOL_UPLOAD', (to, opening) => to.socket.write(streamError(opening, 5)))
    const source = new TestSource([pattern(10)])
    expect(await outcome(connection.upload(vol, source, { ...budget, length: 10n }))).toMatchObject({
      name: 'LibvirtError',
      int1: 5,
    })
    expect(source.pulled).toBe(0)
    expect(connection.load).toEqual({ active: 1, queued: 0 })
    if (how === 'reply') peer.reply(await call(), 'STORAGE_VOL_UPLOAD', null)
    else peer.refuse(await call(), remoteError(ErrorCode.INTERNAL_ERROR, 'too late'))
    await expectGoodAsNew()
    expect(peer.frames.filter((frame) => frame.type === 3)).toEqual([])
  })

  it('by an error that overtakes a reply that never comes ends the connection', async () => {
    daemon.on('STORAGE_VOL_UPLOAD', (to, opening) => to.socket.write(streamError(opening, 5)))
    await outcome(connection.upload(vol, new TestSource([]), { ...budget, length: 0n }))
    await clock.advance(streamOpenTimeoutMs)
    expect(await connection.closed).toMatchObject({ code: 'TIMEOUT' })
    expect(clock.pendingCount).toBe(0)
  })

  it('by an end before the reply ends the connection', async () => {
    daemon.on('STORAGE_VOL_UPLOAD', (to, opening) => to.stream(opening, 'OK'))
    const result = outcome(connection.upload(vol, new TestSource([]), { ...budget, length: 0n }))
    expect(await result).toMatchObject({ constructor: LibvirtConnectionError, code: 'PROTOCOL' })
  })

  it('by never answering the call ends the connection', async () => {
    daemon.on('STORAGE_VOL_UPLOAD', () => undefined)
    const result = outcome(connection.upload(vol, new TestSource([]), { ...budget, length: 0n }))
    await call()
    await clock.advance(streamOpenTimeoutMs)
    expect(await result).toMatchObject({ constructor: LibvirtConnectionError, code: 'TIMEOUT' })
    expect(await connection.closed).toBe(await result)
  })
})

describe('an upload that its source ends', () => {
  const sourceError = new Error('the image server hung up')
  it.each<[string, TestSource, bigint, unknown]>([
    ['by throwing', new TestSource([pattern(300_000)], sourceError), 400_000n, sourceError],
    [
      'short',
      new TestSource([pattern(300_000)]),
      400_000n,
      expect.objectContaining({ constructor: LibvirtStreamError, code: 'SOURCE_SHORT' }),
    ],
    [
      'long',
      new TestSource([pattern(300_000)]),
      299_999n,
      expect.objectContaining({ constructor: LibvirtStreamError, code: 'SOURCE_LONG' }),
    ],
  ])('%s is aborted, and told only after the daemon confirmed', async (_name, source, length, expected) => {
    const result = outcome(connection.upload(vol, source, { ...budget, length }))
    const [abort] = await peer.received(isStream('ERROR'))
    expect(abort?.payload.length).toBe(0)
    expect(await isSettled(result)).toBe(false)
    expect(BigInt(dataBytes())).toBeLessThanOrEqual(length)
    peer.stream(await call(), 'OK')
    expect(await result).toEqual(expected)
    expect(peer.frames.filter(isStream('OK'))).toEqual([])
    await expectGoodAsNew()
  })

  it('by giving nothing any more is aborted', async () => {
    const source = new TestSource([pattern(10)], 'hang after the last')
    const result = outcome(connection.upload(vol, source, { ...budget, length: 20n }))
    await source.hanging()
    await clock.advance(sourceStallTimeoutMs - 1)
    expect(peer.frames.filter(isStream('ERROR'))).toEqual([])
    await clock.advance(1)
    await peer.received(isStream('ERROR'))
    peer.stream(await call(), 'OK')
    expect(await result).toMatchObject({ constructor: LibvirtStreamError, code: 'SOURCE_STALLED' })
    expect(source.released).toBe(true)
    await expectGoodAsNew()
  })

  it("keeps its own error when the daemon's crosses the abort", async () => {
    const result = outcome(connection.upload(vol, new TestSource([], sourceError), { ...budget, length: 20n }))
    await peer.received(isStream('ERROR'))
    peer.socket.write(streamError(await call(), 28))
    expect(await result).toBe(sourceError)
    await expectGoodAsNew()
  })

  it('and whose abort the daemon does not confirm takes the connection with it', async () => {
    const result = outcome(connection.upload(vol, new TestSource([], sourceError), { ...budget, length: 20n }))
    await peer.received(isStream('ERROR'))
    await clock.advance(streamAbortTimeoutMs - 1)
    expect(connection.state).toBe('open')
    await clock.advance(1)
    expect(await result).toBe(sourceError)
    expect(await connection.closed).toMatchObject({ code: 'TIMEOUT' })
    expect(clock.pendingCount).toBe(0)
  })
})

describe('an upload that is cancelled', () => {
  const reason = new Error('the Proxy is gone')

  it('in the queue is never sent', async () => {
    daemon.on('CONNECT_GET_TYPE', () => undefined)
    const held = Array.from({ length: 4 }, () => outcome(connection.call('CONNECT_GET_TYPE', null, budget)))
    const controller = new AbortController()
    const result = outcome(
      connection.upload(vol, new TestSource([]), { ...budget, length: 0n, signal: controller.signal }),
    )
    expect(connection.load).toEqual({ active: 4, queued: 1 })
    controller.abort(reason)
    expect(await result).toBe(reason)
    expect(connection.load).toEqual({ active: 4, queued: 0 })
    for (const frame of await peer.received(isCall('CONNECT_GET_TYPE'), 4)) {
      peer.reply(frame, 'CONNECT_GET_TYPE', { type: 'QEMU' })
    }
    await Promise.all(held)
    await expectGoodAsNew()
    expect(peer.frames.filter(isCall('STORAGE_VOL_UPLOAD'))).toEqual([])
  })

  it('before the reply rejects at once; the stream that opens all the same is aborted', async () => {
    daemon.on('STORAGE_VOL_UPLOAD', () => undefined)
    const controller = new AbortController()
    const source = new TestSource([pattern(10)])
    const result = outcome(connection.upload(vol, source, { ...budget, length: 10n, signal: controller.signal }))
    const opening = await call()
    controller.abort(reason)
    expect(await result).toBe(reason)
    expect(source.pulled).toBe(0)
    expect(connection.load).toEqual({ active: 1, queued: 0 })
    peer.reply(opening, 'STORAGE_VOL_UPLOAD', null)
    await peer.received(isStream('ERROR'))
    expect(connection.load).toEqual({ active: 1, queued: 0 })
    peer.stream(opening, 'OK')
    await expectGoodAsNew()
    expect(getEventListeners(controller.signal, 'abort')).toEqual([])
  })

  it('before a reply that refuses needs nothing more', async () => {
    daemon.on('STORAGE_VOL_UPLOAD', () => undefined)
    const controller = new AbortController()
    const result = outcome(
      connection.upload(vol, new TestSource([]), { ...budget, length: 0n, signal: controller.signal }),
    )
    const opening = await call()
    controller.abort(reason)
    expect(await result).toBe(reason)
    peer.refuse(opening, remoteError(ErrorCode.NO_STORAGE_VOL, 'no volume'))
    await expectGoodAsNew()
    expect(peer.frames.filter(isStream('ERROR'))).toEqual([])
  })

  it('in the middle is aborted, and told only after the daemon confirmed', async () => {
    const controller = new AbortController()
    const source = new TestSource([pattern(streamPacketBytes)], 'hang after the last')
    const result = outcome(
      connection.upload(vol, source, { ...budget, length: BigInt(streamPacketBytes * 2), signal: controller.signal }),
    )
    await source.hanging()
    controller.abort(reason)
    await peer.received(isStream('ERROR'))
    expect(await isSettled(result)).toBe(false)
    peer.stream(await call(), 'OK')
    expect(await result).toBe(reason)
    expect(source.released).toBe(true)
    expect(dataBytes()).toBe(streamPacketBytes)
    await expectGoodAsNew()
    expect(getEventListeners(controller.signal, 'abort')).toEqual([])
  })

  it('after the finish is not aborted: the daemon would not answer', async () => {
    const controller = new AbortController()
    const result = outcome(
      connection.upload(vol, new TestSource([pattern(10)]), { ...budget, length: 10n, signal: controller.signal }),
    )
    await peer.received(isStream('OK'))
    controller.abort(reason)
    expect(await isSettled(result)).toBe(false)
    peer.stream(await call(), 'OK')
    expect(await result).toBe(reason)
    await expectGoodAsNew()
    expect(peer.frames.filter(isStream('ERROR'))).toEqual([])
  })

  it('by its budget is aborted like any other', async () => {
    const source = new TestSource([pattern(10)], 'hang after the last')
    const result = outcome(connection.upload(vol, source, { length: 20n, timeoutMs: 1000 }))
    await source.hanging()
    await clock.advance(1000)
    await peer.received(isStream('ERROR'))
    peer.stream(await call(), 'OK')
    expect(await result).toMatchObject({ constructor: LibvirtStreamError, code: 'TIMEOUT' })
    await expectGoodAsNew()
  })
})

it('a packet for a stream that has ended is ignored', async () => {
  const result = connection.upload(vol, new TestSource([]), { ...budget, length: 0n })
  await peer.received(isStream('OK'))
  const opening = await call()
  peer.stream(opening, 'OK')
  await result
  peer.stream(opening, 'OK')
  peer.socket.write(streamError(opening, 9))
  await expectGoodAsNew()
})

function* pieces(bytes: Buffer, size: number): Generator<Buffer> {
  for (let offset = 0; offset < bytes.length; offset += size) yield bytes.subarray(offset, offset + size)
}

function streamError(opening: Frame, errno: number): Buffer {
  const error = remoteError(ErrorCode.SYSTEM_ERROR, 'cannot write to stream: No space left on device', errno)
  return encodeFrame({ ...opening, type: 3, status: 1 }, encodeError(error))
}

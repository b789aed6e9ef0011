// The libvirt connection against a daemon of the test's making on a real unix socket: opening, calls, events, and every end.
import { getEventListeners } from 'node:events'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { decodeArgs, keepaliveFrame, replyFrame } from '../../../src/wire/libvirt/codec.ts'
import { LibvirtConnection, closeTimeoutMs, type LibvirtTrace } from '../../../src/wire/libvirt/connection.ts'
import { ErrorCode, LibvirtConnectionError, LibvirtError } from '../../../src/wire/libvirt/errors.ts'
import type { LibvirtEvent } from '../../../src/wire/libvirt/events.ts'
import { encodeFrame } from '../../../src/wire/libvirt/frame.ts'
import { procedures, programs, type Domain } from '../../../src/wire/libvirt/protocol.gen.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { TestDaemon, isCall, isKeepalive, remoteError } from './libvirt-daemon.ts'

let daemon: TestDaemon
let clock: ManualClock

beforeEach(async () => {
  daemon = await TestDaemon.listen()
  clock = new ManualClock()
})
afterEach(async () => await daemon.close())

const budget = { timeoutMs: 30_000 }
const dom: Domain = { name: 'vm', uuid: '11111111-2222-3333-4444-555555555555', id: 1 }

/** What a promise ends in, as a value; started now, so that no rejection is ever unhandled. */
function outcome(promise: Promise<unknown>): Promise<unknown> {
  return promise.catch((error: unknown) => error)
}

function coded(code: string): unknown {
  return expect.objectContaining({ constructor: LibvirtConnectionError, code })
}

/** Nothing of a connection is left: no timer, no listener on its socket but what the socket itself has. */
function expectNothingLeft(socket: NodeJS.EventEmitter): void {
  expect(clock.pendingCount).toBe(0)
  for (const event of ['data', 'end', 'drain', 'error', 'close']) {
    // Node's own on a socket: the one that ends the writing side after the reading side.
    const listeners = socket.listeners(event).filter((listener) => listener.name !== 'onReadableStreamEnd')
    expect({ event, listeners: listeners.length }).toEqual({ event, listeners: 0 })
  }
}

describe('opening', () => {
  it('asks in the order the daemon wants', async () => {
    const { connection, peer } = await daemon.open(clock, { keepalive: { intervalMs: 5000, maxUnanswered: 5 } })
    expect(peer.frames.map((frame) => [frame.procedure, frame.payload.toString('hex')])).toEqual([
      [66, ''],
      [60, '0000000a'],
      [1, '000000010000000e71656d753a2f2f2f73797374656d000000000000'],
      [60, '0000000e'],
    ])
    expect(connection.state).toBe('open')
    expect(connection.supportsEvents).toBe(true)
  })

  it('does not ask for keepalives that nobody wants, opens another driver, and knows a daemon without events', async () => {
    daemon.features.clear()
    const { connection, peer } = await daemon.open(clock, { uri: 'test:///default' })
    expect(peer.frames.map((frame) => frame.procedure)).toEqual([66, 1, 60])
    expect(
      decodeArgs('CONNECT_OPEN', (await peer.received(isCall('CONNECT_OPEN')))[0]?.payload ?? Buffer.alloc(0)),
    ).toEqual({
      name: 'test:///default',
      flags: 0,
    })
    expect(connection.supportsEvents).toBe(false)
  })

  it('authenticates by polkit where there is nothing else', async () => {
    daemon.authTypes = [2]
    const { peer } = await daemon.open(clock)
    expect(peer.frames.map((frame) => frame.procedure)).toEqual([66, 70, 1, 60])
  })

  it('prefers none, and takes an empty list for none', async () => {
    for (const types of [[2, 0], []]) {
      daemon.authTypes = types
      const { peer } = await daemon.open(clock)
      expect(peer.frames.map((frame) => frame.procedure)).toEqual([66, 1, 60])
    }
  })

  it.each([
    ['sasl alone', [1], 'AUTH_UNSUPPORTED', 'sasl'],
    ['a type unknown to us', [7], 'AUTH_UNSUPPORTED', 'type 7'],
  ])('refuses %s', async (_name, types, code, words) => {
    daemon.authTypes = types
    const error = await outcome(daemon.open(clock))
    expect(error).toEqual(coded(code))
    expect(String(error)).toContain(words)
    await daemon.peers[0]?.gone()
  })

  it('says when polkit is not enough, or refuses', async () => {
    daemon.authTypes = [2]
    daemon.answer('AUTH_POLKIT', { complete: 0 })
    expect(await outcome(daemon.open(clock))).toEqual(coded('AUTH_FAILED'))
    daemon.on('AUTH_POLKIT', (peer, call) =>
      peer.refuse(call, remoteError(ErrorCode.AUTH_FAILED, 'access denied by policy')),
    )
    expect(await outcome(daemon.open(clock))).toMatchObject({ name: 'LibvirtError', codeName: 'AUTH_FAILED' })
  })

  it("throws the daemon's own error and destroys the stream", async () => {
    daemon.on('CONNECT_OPEN', (peer, call) =>
      peer.refuse(call, remoteError(ErrorCode.NO_CONNECT, 'no connection driver')),
    )
    const socket = await daemon.dial()
    const error = await outcome(
      LibvirtConnection.open(socket, { clock, signal: new AbortController().signal, timeoutMs: 1000 }),
    )
    expect(error).toMatchObject({
      code: 5,
      codeName: 'NO_CONNECT',
      procedure: 'CONNECT_OPEN',
      message: 'no connection driver',
    })
    await daemon.hungUp(socket)
    expectNothingLeft(socket)
  })

  it('ends with its budget', async () => {
    daemon.on('CONNECT_OPEN', () => undefined)
    const socket = await daemon.dial()
    const opening = outcome(
      LibvirtConnection.open(socket, { clock, signal: new AbortController().signal, timeoutMs: 1000 }),
    )
    await daemon.peers[0]?.received(isCall('CONNECT_OPEN'))
    await clock.advance(1000)
    expect(await opening).toEqual(coded('TIMEOUT'))
    await daemon.hungUp(socket)
    expectNothingLeft(socket)
  })

  it('ends with its signal, before and in the middle, and leaves no listener on it', async () => {
    daemon.on('CONNECT_OPEN', () => undefined)
    const controller = new AbortController()
    const socket = await daemon.dial()
    const opening = outcome(LibvirtConnection.open(socket, { clock, signal: controller.signal, timeoutMs: 1000 }))
    await daemon.peers[0]?.received(isCall('CONNECT_OPEN'))
    const reason = new Error('shutting down')
    controller.abort(reason)
    expect(await opening).toBe(reason)
    expect(getEventListeners(controller.signal, 'abort')).toEqual([])
    const late = await daemon.dial()
    expect(await outcome(LibvirtConnection.open(late, { clock, signal: controller.signal, timeoutMs: 1000 }))).toBe(
      reason,
    )
    await daemon.hungUp(late)
    expectNothingLeft(late)
  })

  it('notices a stream that has died before it got here', async () => {
    const socket = await daemon.dial()
    socket.destroy()
    await daemon.hungUp(socket)
    expect(
      await outcome(LibvirtConnection.open(socket, { clock, signal: new AbortController().signal, timeoutMs: 1000 })),
    ).toEqual(coded('CLOSED'))
    expectNothingLeft(socket)
  })

  it('notices a daemon that hangs up', async () => {
    daemon.on('AUTH_LIST', (peer) => peer.socket.destroy())
    expect(await outcome(daemon.open(clock))).toEqual(coded('CLOSED'))
  })

  it('does not take bytes that are no RPC for a daemon', async () => {
    daemon.on('AUTH_LIST', (peer) => peer.socket.write('HTTP/1.1 400 Bad Request\r\n\r\n'))
    expect(await outcome(daemon.open(clock))).toEqual(coded('PROTOCOL'))
  })
})

describe('calls', () => {
  it('are answered in whatever order the daemon likes', async () => {
    const { connection, peer } = await daemon.open(clock)
    const names = ['a', 'b', 'c']
    const results = names.map((name) => connection.call('DOMAIN_LOOKUP_BY_NAME', { name }, budget))
    const calls = await peer.received(isCall('DOMAIN_LOOKUP_BY_NAME'), 3)
    for (const call of calls.toReversed()) {
      const { name } = decodeArgs('DOMAIN_LOOKUP_BY_NAME', call.payload)
      peer.reply(call, 'DOMAIN_LOOKUP_BY_NAME', { dom: { ...dom, name } })
    }
    expect((await Promise.all(results)).map((result) => result.dom.name)).toEqual(names)
    expect(new Set(calls.map((call) => call.serial)).size).toBe(3)
  })

  it("throw the daemon's error with all of its fields, and the connection goes on", async () => {
    const { connection } = await daemon.open(clock)
    daemon.on('STORAGE_POOL_REFRESH', (peer, call) => peer.refuse(call, remoteError(38, 'cannot open directory', 2)))
    daemon.answer('CONNECT_GET_HOSTNAME', { hostname: 'host' })
    const pool = { name: 'default', uuid: dom.uuid }
    const error = await outcome(connection.call('STORAGE_POOL_REFRESH', { pool, flags: 0 }, budget))
    expect(error).toBeInstanceOf(LibvirtError)
    expect(error).toMatchObject({
      code: ErrorCode.SYSTEM_ERROR,
      codeName: 'SYSTEM_ERROR',
      domain: 10,
      int1: 2,
      int2: -1,
      level: 2,
      str1: '%s',
      str2: 'cannot open directory',
      message: 'cannot open directory',
      procedure: 'STORAGE_POOL_REFRESH',
    })
    expect(await connection.call('CONNECT_GET_HOSTNAME', null, budget)).toEqual({ hostname: 'host' })
  })

  it('leave no timer, and no listener on a signal that outlives them', async () => {
    const { connection } = await daemon.open(clock)
    const { signal } = new AbortController()
    daemon.answer('CONNECT_GET_HOSTNAME', { hostname: 'host' })
    daemon.on('CONNECT_GET_TYPE', (peer, call) => peer.refuse(call, remoteError(1, 'no')))
    for (let round = 0; round < 3; round++) {
      await connection.call('CONNECT_GET_HOSTNAME', null, { ...budget, signal })
      await outcome(connection.call('CONNECT_GET_TYPE', null, { ...budget, signal }))
    }
    expect(getEventListeners(signal, 'abort')).toEqual([])
    expect(clock.pendingCount).toBe(0)
  })

  it('are at most four at a time, first come first served', async () => {
    const { connection, peer } = await daemon.open(clock)
    const names = Array.from({ length: 10 }, (_, index) => `vm-${index}`)
    const results = names.map((name) => connection.call('DOMAIN_LOOKUP_BY_NAME', { name }, budget))
    expect(connection.load).toEqual({ active: 4, queued: 6 })
    const seen: string[] = []
    let answered = 0
    while (answered < names.length) {
      const calls = await peer.received(isCall('DOMAIN_LOOKUP_BY_NAME'), Math.min(answered + 4, names.length))
      expect(calls.length).toBe(Math.min(answered + 4, names.length))
      const call = calls[answered]
      if (call === undefined) throw new Error('no call to answer')
      const { name } = decodeArgs('DOMAIN_LOOKUP_BY_NAME', call.payload)
      seen.push(name)
      peer.reply(call, 'DOMAIN_LOOKUP_BY_NAME', { dom: { ...dom, name } })
      await results[answered]
      answered++
    }
    expect(seen).toEqual(names)
    expect(connection.load).toEqual({ active: 0, queued: 0 })
  })

  it('leave a place for a quick one behind slow ones', async () => {
    const { connection, peer } = await daemon.open(clock)
    daemon.answer('CONNECT_GET_HOSTNAME', { hostname: 'host' })
    const slow = Array.from({ length: 6 }, () =>
      connection.call('DOMAIN_INTERFACE_ADDRESSES', { dom, source: 1, flags: 0 }, { ...budget, slow: true }),
    )
    expect(connection.load).toEqual({ active: 3, queued: 3 })
    expect(await connection.call('CONNECT_GET_HOSTNAME', null, budget)).toEqual({ hostname: 'host' })
    daemon.answer('DOMAIN_INTERFACE_ADDRESSES', { ifaces: [] })
    for (const call of await peer.received(isCall('DOMAIN_INTERFACE_ADDRESSES'), 3)) {
      peer.reply(call, 'DOMAIN_INTERFACE_ADDRESSES', { ifaces: [] })
    }
    expect(await Promise.all(slow)).toEqual(slow.map(() => ({ ifaces: [] })))
  })

  it('that are cancelled reject at once and keep their place until answered', async () => {
    const traces: LibvirtTrace[] = []
    const { connection, peer } = await daemon.open(clock, { onTrace: (trace) => traces.push(trace) })
    const controller = new AbortController()
    const doomed = Array.from({ length: 4 }, () =>
      outcome(connection.call('CONNECT_GET_HOSTNAME', null, { ...budget, signal: controller.signal })),
    )
    const calls = await peer.received(isCall('CONNECT_GET_HOSTNAME'), 4)
    const next = connection.call('CONNECT_GET_TYPE', null, budget)
    const reason = new Error('not any more')
    controller.abort(reason)
    expect(await Promise.all(doomed)).toEqual([reason, reason, reason, reason])
    expect(connection.load).toEqual({ active: 4, queued: 1 })
    daemon.answer('CONNECT_GET_TYPE', { type: 'QEMU' })
    expect(peer.frames.filter(isCall('CONNECT_GET_TYPE'))).toEqual([])
    const [first] = calls
    if (first === undefined) throw new Error('no call')
    peer.reply(first, 'CONNECT_GET_HOSTNAME', { hostname: 'late' })
    expect(await next).toEqual({ type: 'QEMU' })
    expect(connection.load).toEqual({ active: 3, queued: 0 })
    expect(getEventListeners(controller.signal, 'abort').length).toBeLessThanOrEqual(3)
    for (const call of calls.slice(1)) peer.reply(call, 'CONNECT_GET_HOSTNAME', { hostname: 'late' })
    daemon.answer('CONNECT_GET_HOSTNAME', { hostname: 'host' })
    expect(await connection.call('CONNECT_GET_HOSTNAME', null, budget)).toEqual({ hostname: 'host' })
    expect(getEventListeners(controller.signal, 'abort')).toEqual([])
    expect(traces.flatMap((trace) => (trace.kind === 'call' ? [trace.outcome] : [])).slice(3)).toEqual([
      'abandoned',
      'ok',
      'abandoned',
      'abandoned',
      'abandoned',
      'ok',
    ])
  })

  it('that are cancelled in the queue are never sent', async () => {
    const { connection, peer } = await daemon.open(clock)
    const held = Array.from({ length: 4 }, () => connection.call('CONNECT_GET_HOSTNAME', null, budget))
    const controller = new AbortController()
    const queued = outcome(connection.call('CONNECT_GET_TYPE', null, { ...budget, signal: controller.signal }))
    controller.abort(new Error('not any more'))
    expect(await queued).toMatchObject({ message: 'not any more' })
    expect(connection.load).toEqual({ active: 4, queued: 0 })
    for (const call of await peer.received(isCall('CONNECT_GET_HOSTNAME'), 4)) {
      peer.reply(call, 'CONNECT_GET_HOSTNAME', { hostname: 'host' })
    }
    await Promise.all(held)
    expect(peer.frames.filter(isCall('CONNECT_GET_TYPE'))).toEqual([])
    expect(
      await outcome(connection.call('CONNECT_GET_TYPE', null, { ...budget, signal: controller.signal })),
    ).toMatchObject({
      message: 'not any more',
    })
  })

  it('past their budget end the connection, and all others with it', async () => {
    const { connection, socket, peer } = await daemon.open(clock)
    const late = outcome(connection.call('CONNECT_GET_HOSTNAME', null, { timeoutMs: 1000 }))
    const other = outcome(connection.call('CONNECT_GET_TYPE', null, budget))
    await clock.advance(1000)
    expect(await late).toEqual(coded('TIMEOUT'))
    expect(await other).toBe(await late)
    expect(await connection.closed).toBe(await late)
    expect(connection.state).toBe('closed')
    expect(await outcome(connection.call('CONNECT_GET_TYPE', null, budget))).toBe(await late)
    await peer.gone()
    await daemon.hungUp(socket)
    expectNothingLeft(socket)
  })

  it('past their budget end the connection although nobody waits any more', async () => {
    const { connection } = await daemon.open(clock)
    const controller = new AbortController()
    const cancelled = outcome(
      connection.call('CONNECT_GET_HOSTNAME', null, { timeoutMs: 1000, signal: controller.signal }),
    )
    controller.abort()
    await cancelled
    await clock.advance(999)
    expect(connection.state).toBe('open')
    await clock.advance(1)
    expect(await connection.closed).toEqual(coded('TIMEOUT'))
  })

  it('that find no place within their budget fail alone', async () => {
    const { connection } = await daemon.open(clock)
    const held = Array.from({ length: 4 }, () => outcome(connection.call('CONNECT_GET_HOSTNAME', null, budget)))
    const queued = outcome(connection.call('CONNECT_GET_TYPE', null, { timeoutMs: 1000 }))
    await clock.advance(1000)
    expect(await queued).toEqual(coded('BUSY'))
    expect(connection.state).toBe('open')
    connection.destroy(new Error('end of test'))
    expect(await Promise.all(held)).toEqual(held.map(() => coded('CLOSED')))
  })

  it('of procedures that have a method of their own are refused', async () => {
    const { connection } = await daemon.open(clock)
    expect(await outcome(connection.call('CONNECT_CLOSE', null, budget))).toBeInstanceOf(TypeError)
    const vol = { pool: 'p', name: 'v', key: '/v' }
    const args = { vol, offset: 0n, length: 0n, flags: 0 }
    expect(await outcome(connection.call('STORAGE_VOL_UPLOAD', args, budget))).toBeInstanceOf(TypeError)
  })

  it('whose arguments cannot be written hold no place', async () => {
    const { connection } = await daemon.open(clock)
    expect(await outcome(connection.call('DOMAIN_LOOKUP_BY_NAME', { name: 'a\0b' }, budget))).toMatchObject({
      code: 'NUL',
    })
    expect(connection.load).toEqual({ active: 0, queued: 0 })
    expect(clock.pendingCount).toBe(0)
  })
})

describe('a daemon that breaks the protocol ends the connection:', () => {
  const header = { program: programs.REMOTE.number, version: 1, procedure: 59, type: 1, serial: 0, status: 0 }
  const qemu = programs.QEMU.number
  it.each<[string, (serial: number) => Buffer]>([
    ['a reply with another procedure', (serial) => replyFrame('CONNECT_GET_TYPE', serial, { type: 'QEMU' })],
    ['a reply of another program', (serial) => encodeFrame({ ...header, program: qemu, serial }, Buffer.alloc(4))],
    [
      'a reply to a call that was not made',
      (serial) => replyFrame('CONNECT_GET_HOSTNAME', serial + 1, { hostname: 'x' }),
    ],
    ['a reply that is too short', (serial) => encodeFrame({ ...header, serial }, Buffer.from('00000009', 'hex'))],
    ['a reply with bytes left over', (serial) => encodeFrame({ ...header, serial }, Buffer.alloc(8))],
    ['an error that cannot be read', (serial) => encodeFrame({ ...header, serial, status: 1 }, Buffer.alloc(3))],
    ['stream data for a call without one', (serial) => encodeFrame({ ...header, serial, type: 3, status: 2 })],
    ['a call', (serial) => encodeFrame({ ...header, serial, type: 0 })],
    ['a type that does not exist', (serial) => encodeFrame({ ...header, serial, type: 99 })],
    ['descriptors', (serial) => encodeFrame({ ...header, serial, type: 5 }, Buffer.alloc(4))],
    ['a length of 0', () => Buffer.alloc(28)],
    ['a length above the maximum', () => Buffer.from('02000005', 'hex')],
    [
      'an event that cannot be read',
      () => encodeFrame({ ...header, procedure: 318, type: 2, serial: 1 }, Buffer.alloc(4)),
    ],
  ])('%s', async (_name, packet) => {
    const { connection, socket, peer } = await daemon.open(clock)
    const result = outcome(connection.call('CONNECT_GET_HOSTNAME', null, budget))
    const [call] = await peer.received(isCall('CONNECT_GET_HOSTNAME'))
    if (call === undefined) throw new Error('no call')
    peer.send(packet(call.serial))
    expect(await result).toEqual(coded('PROTOCOL'))
    expect(await connection.closed).toBe(await result)
    await peer.gone()
    await daemon.hungUp(socket)
    expectNothingLeft(socket)
  })
})

describe('events', () => {
  const lifecycle = (callbackID: number, event: number) => ({ callbackID, msg: { dom, event, detail: 0 } })

  it('arrive before and after the reply of the call that caused them, keyed by family and number', async () => {
    const { connection } = await daemon.open(clock)
    const pool = { name: 'default', uuid: dom.uuid }
    daemon.on('CONNECT_DOMAIN_EVENT_CALLBACK_REGISTER_ANY', (peer, call) => {
      // A registration is live for the daemon before its reply is on the way.
      peer.event('DOMAIN_EVENT_CALLBACK_LIFECYCLE', lifecycle(0, 0))
      peer.reply(call, 'CONNECT_DOMAIN_EVENT_CALLBACK_REGISTER_ANY', { callbackID: 0 })
    })
    daemon.answer('CONNECT_STORAGE_POOL_EVENT_REGISTER_ANY', { callbackID: 0 })
    daemon.on('DOMAIN_CREATE', (peer, call) => {
      peer.event('DOMAIN_EVENT_CALLBACK_LIFECYCLE', lifecycle(0, 4))
      peer.event('DOMAIN_EVENT_CALLBACK_LIFECYCLE', lifecycle(0, 2))
      peer.reply(call, 'DOMAIN_CREATE', null)
      peer.event('STORAGE_POOL_EVENT_REFRESH', { callbackID: 0, pool })
      peer.event('CONNECT_EVENT_CONNECTION_CLOSED', { reason: 1 })
    })
    const heard: LibvirtEvent[] = []
    const last = Promise.withResolvers<undefined>()
    connection.onEvent((event) => {
      heard.push(event)
      if (event.kind === 'CONNECT_EVENT_CONNECTION_CLOSED') last.resolve(undefined)
    })
    const domains = await connection.registerDomainEvents('DOMAIN_EVENT_CALLBACK_LIFECYCLE', budget)
    expect(heard.length).toBe(1)
    const pools = await connection.registerStoragePoolEvents('STORAGE_POOL_EVENT_REFRESH', budget)
    await connection.call('DOMAIN_CREATE', { dom }, budget)
    await last.promise
    const lines = heard.map((event) => [
      event.kind === 'DOMAIN_EVENT_CALLBACK_LIFECYCLE' ? event.message.msg.event : event.kind,
      domains.matches(event),
      pools.matches(event),
    ])
    expect(lines).toEqual([
      [0, true, false],
      [4, true, false],
      [2, true, false],
      ['STORAGE_POOL_EVENT_REFRESH', false, true],
      ['CONNECT_EVENT_CONNECTION_CLOSED', false, false],
    ])
  })

  it('are asked for and given up with the right numbers', async () => {
    const { connection, peer } = await daemon.open(clock)
    daemon.answer('CONNECT_DOMAIN_EVENT_CALLBACK_REGISTER_ANY', { callbackID: 7 })
    daemon.answer('CONNECT_DOMAIN_EVENT_CALLBACK_DEREGISTER_ANY', null)
    const registration = await connection.registerDomainEvents('DOMAIN_EVENT_CALLBACK_AGENT_LIFECYCLE', {
      ...budget,
      dom,
    })
    await registration.deregister(budget)
    const payloads = peer.frames.slice(-2).map((frame) => [frame.procedure, frame.payload])
    expect(payloads.map(([procedure]) => procedure)).toEqual([
      procedures.CONNECT_DOMAIN_EVENT_CALLBACK_REGISTER_ANY.number,
      procedures.CONNECT_DOMAIN_EVENT_CALLBACK_DEREGISTER_ANY.number,
    ])
    const [register, deregister] = peer.frames.slice(-2)
    if (register === undefined || deregister === undefined) throw new Error('calls missing')
    expect(decodeArgs('CONNECT_DOMAIN_EVENT_CALLBACK_REGISTER_ANY', register.payload)).toEqual({ eventID: 18, dom })
    expect(decodeArgs('CONNECT_DOMAIN_EVENT_CALLBACK_DEREGISTER_ANY', deregister.payload)).toEqual({ callbackID: 7 })
  })

  it('that are unknown are ignored; a listener that throws hurts nobody; one that left hears nothing', async () => {
    const traces: LibvirtTrace[] = []
    const { connection, peer } = await daemon.open(clock, { onTrace: (trace) => traces.push(trace) })
    const heard: string[] = []
    connection.onEvent(() => {
      throw new Error('bad listener')
    })
    const stop = connection.onEvent(() => heard.push('gone'))
    connection.onEvent(() => heard.push('there'))
    stop()
    daemon.answer('CONNECT_GET_TYPE', { type: 'QEMU' })
    const unknown = { program: programs.REMOTE.number, version: 1, procedure: 400, type: 2, serial: 1, status: 0 }
    peer.send(encodeFrame(unknown, Buffer.from('junk')))
    peer.event('DOMAIN_EVENT_CALLBACK_LIFECYCLE', lifecycle(0, 0))
    await connection.call('CONNECT_GET_TYPE', null, budget)
    expect(heard).toEqual(['there'])
    expect(traces.filter((trace) => trace.kind !== 'call')).toEqual([
      { kind: 'ignored', what: 'event 400 of program 536903814' },
      { kind: 'listenerFailed', error: new Error('bad listener') },
    ])
  })
})

describe('keepalive', () => {
  const keepalive = { intervalMs: 5000, maxUnanswered: 5 }

  it('answers pings, also when it sends none itself', async () => {
    const { peer } = await daemon.open(clock)
    peer.send(keepaliveFrame('PING'), keepaliveFrame('PING'))
    const pongs = await peer.received(isKeepalive('PONG'), 2)
    expect(pongs.map(({ type, serial, status, payload }) => [type, serial, status, payload.length])).toEqual([
      [2, 0, 0, 0],
      [2, 0, 0, 0],
    ])
  })

  it('ends the connection after thirty seconds of silence, whatever is under way', async () => {
    const { connection, peer } = await daemon.open(clock, { keepalive })
    const stuck = outcome(connection.call('CONNECT_GET_HOSTNAME', null, { timeoutMs: 600_000 }))
    await clock.advance(29_999)
    expect(connection.state).toBe('open')
    await peer.received(isKeepalive('PING'), 5)
    await clock.advance(1)
    expect(await stuck).toEqual(coded('KEEPALIVE'))
    expect(await connection.closed).toBe(await stuck)
    expect(clock.pendingCount).toBe(0)
  })

  it('lives on pongs', async () => {
    const { connection, peer } = await daemon.open(clock, { keepalive })
    for (let round = 1; round <= 10; round++) {
      await clock.advance(5000)
      await peer.received(isKeepalive('PING'), round)
      peer.send(keepaliveFrame('PONG'))
      daemon.answer('CONNECT_GET_TYPE', { type: 'QEMU' })
      // The reply comes behind the pong, so the pong has arrived.
      await connection.call('CONNECT_GET_TYPE', null, budget)
    }
    expect(connection.state).toBe('open')
  })

  it('is left alone where the daemon does not know it', async () => {
    daemon.features.delete(10)
    const { connection } = await daemon.open(clock, { keepalive })
    await clock.advance(120_000)
    expect(connection.state).toBe('open')
    expect(clock.pendingCount).toBe(0)
  })
})

describe('the end', () => {
  it('by close says goodbye, turns the queue away, and lets what is under way finish before it', async () => {
    const { connection, socket, peer } = await daemon.open(clock)
    daemon.on('CONNECT_CLOSE', (_peer, call) => {
      const [first] = peer.frames.filter(isCall('CONNECT_GET_HOSTNAME'))
      if (first !== undefined) peer.reply(first, 'CONNECT_GET_HOSTNAME', { hostname: 'just in time' })
      peer.reply(call, 'CONNECT_CLOSE', null)
      peer.socket.end()
    })
    const active = Array.from({ length: 4 }, () => outcome(connection.call('CONNECT_GET_HOSTNAME', null, budget)))
    const queued = outcome(connection.call('CONNECT_GET_TYPE', null, budget))
    const closing = connection.close()
    expect(connection.state).toBe('closing')
    expect(await outcome(connection.call('CONNECT_GET_TYPE', null, budget))).toEqual(coded('CLOSED'))
    expect(await queued).toEqual(coded('CLOSED'))
    await Promise.all([closing, connection.close()])
    expect(await Promise.all(active)).toEqual([
      { hostname: 'just in time' },
      coded('CLOSED'),
      coded('CLOSED'),
      coded('CLOSED'),
    ])
    expect(await connection.closed).toMatchObject({ code: 'CLOSED', message: 'the connection was closed by this side' })
    await peer.gone()
    await daemon.hungUp(socket)
    expectNothingLeft(socket)
  })

  it('by close waits only so long for the daemon', async () => {
    const { connection, socket, peer } = await daemon.open(clock)
    daemon.on('CONNECT_CLOSE', () => undefined)
    const closing = connection.close()
    await peer.received(isCall('CONNECT_CLOSE'))
    await clock.advance(closeTimeoutMs - 1)
    expect(connection.state).toBe('closing')
    await clock.advance(1)
    await closing
    expect(connection.state).toBe('closed')
    await daemon.hungUp(socket)
    expectNothingLeft(socket)
  })

  it('by destroy is at once and keeps the reason', async () => {
    const { connection, socket } = await daemon.open(clock)
    const call = outcome(connection.call('CONNECT_GET_HOSTNAME', null, budget))
    const reason = new Error('the SSH connection died')
    connection.destroy(reason)
    expect(connection.state).toBe('closed')
    connection.destroy(new Error('too late'))
    expect(await call).toMatchObject({ code: 'CLOSED', cause: reason })
    expect(await connection.closed).toMatchObject({ message: 'the SSH connection died', cause: reason })
    await connection.close()
    await daemon.hungUp(socket)
    expectNothingLeft(socket)
  })

  it.each(['end', 'destroy'] as const)('by the daemon (%s) rejects what is under way', async (how) => {
    const { connection, socket, peer } = await daemon.open(clock)
    const call = outcome(connection.call('CONNECT_GET_HOSTNAME', null, budget))
    await peer.received(isCall('CONNECT_GET_HOSTNAME'))
    peer.socket[how]()
    expect(await call).toEqual(coded('CLOSED'))
    expect(await connection.closed).toBe(await call)
    await daemon.hungUp(socket)
    expectNothingLeft(socket)
  })
})

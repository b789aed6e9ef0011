// Packets, good and bad: what the daemon answers, what it passes over in silence, and what ends a connection.
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { decodeRet, keepaliveFrame, KeepaliveProcedure } from '../../../src/wire/libvirt/codec.ts'
import { ErrorCode } from '../../../src/wire/libvirt/error-codes.ts'
import { encodeFrame, MessageStatus, MessageType } from '../../../src/wire/libvirt/frame.ts'
import { programs } from '../../../src/wire/libvirt/protocol.gen.ts'
import { callPacket, errorOf, headerOf, RawClient, streamPacket, type LibvirtPeer } from './peer.ts'

const uri = { name: 'qemu:///system', flags: 0 }

export function suiteOfPackets(open: () => Promise<LibvirtPeer>): void {
  describe('packets', () => {
    let peer: LibvirtPeer | undefined
    const clients: RawClient[] = []
    beforeAll(async () => {
      peer = await open()
    })
    afterEach(() => {
      for (const client of clients.splice(0)) client.close()
    })
    afterAll(async () => {
      await peer?.close()
    })

    async function connect(): Promise<RawClient> {
      if (peer === undefined) throw new Error('the suite has not begun')
      const client = new RawClient(await peer.open())
      clients.push(client)
      return client
    }

    async function connectOpen(): Promise<RawClient> {
      const client = await connect()
      expect((await client.call('CONNECT_OPEN', 1, uri)).status).toBe(MessageStatus.OK)
      return client
    }

    async function expectAlive(client: RawClient): Promise<void> {
      const reply = await client.call('CONNECT_GET_HOSTNAME', 777, null)
      expect(decodeRet('CONNECT_GET_HOSTNAME', reply.payload).hostname).not.toBe('')
    }

    it('offers no authentication, and knows its features', async () => {
      const client = await connect()
      expect(decodeRet('AUTH_LIST', (await client.call('AUTH_LIST', 1, null)).payload)).toEqual({ types: [0] })
      const keepalive = await client.call('CONNECT_SUPPORTS_FEATURE', 2, { feature: 10 })
      expect(decodeRet('CONNECT_SUPPORTS_FEATURE', keepalive.payload)).toEqual({ supported: 1 })
      await client.call('CONNECT_OPEN', 3, uri)
      for (const [feature, supported] of [
        [14, 1],
        [15, 1],
        [999, 0],
      ] as const) {
        const reply = await client.call('CONNECT_SUPPORTS_FEATURE', 100 + feature, { feature })
        expect(decodeRet('CONNECT_SUPPORTS_FEATURE', reply.payload)).toEqual({ supported })
      }
    })

    it('serves nothing before the connection is opened', async () => {
      const client = await connect()
      const error = errorOf(await client.call('CONNECT_GET_HOSTNAME', 1, null))
      expect(error).toMatchObject({
        code: ErrorCode.INTERNAL_ERROR,
        message: 'internal error: hypervisor connection not open',
      })
      const driver = errorOf(await client.call('CONNECT_OPEN', 2, { name: 'nope:///system', flags: 0 }))
      expect(driver).toMatchObject({
        code: ErrorCode.NO_CONNECT,
        message: 'no connection driver available for nope:///system',
      })
      const unnamed = errorOf(await client.call('CONNECT_OPEN', 3, { name: null, flags: 0 }))
      expect(unnamed).toMatchObject({
        code: ErrorCode.INTERNAL_ERROR,
        message: 'internal error: connection not open',
      })
    })

    it('drops the first opening when a second one comes', async () => {
      const client = await connectOpen()
      const second = errorOf(await client.call('CONNECT_OPEN', 2, uri))
      expect(second.message).toBe('internal error: connection already open')
      const dropped = errorOf(await client.call('CONNECT_GET_HOSTNAME', 3, null))
      expect(dropped.message).toBe('internal error: hypervisor connection not open')
      expect((await client.call('CONNECT_OPEN', 4, uri)).status).toBe(MessageStatus.OK)
      await expectAlive(client)
    })

    it.each([
      ['an unknown procedure', { procedure: 9999 }, 'unknown procedure: 9999'],
      ['a negative one', { procedure: -1 }, 'unknown procedure: -1'],
      ["an event's number", { procedure: 318 }, 'unknown procedure: 318'],
      ['an unknown program', { program: 0x12345678 }, `Cannot find program 305419896 version 1`],
      ['another version', { version: 2 }, `Cannot find program ${programs.REMOTE.number} version 2`],
      ['a call with status ERROR', { status: 1 }, 'Unexpected message status 1'],
      ['a call with status 99', { status: 99 }, 'Unexpected message status 99'],
    ])('answers %s with an RPC error, and goes on', async (_what, changes, message) => {
      const client = await connectOpen()
      client.write(callPacket('CONNECT_GET_HOSTNAME', 5, null, changes))
      const reply = await client.reply(5)
      expect(errorOf(reply)).toMatchObject({ code: ErrorCode.RPC, domain: 7, message })
      // The header of the answer echoes what was asked, known or not.
      expect(reply).toMatchObject({ program: programs.REMOTE.number, ...changes, type: 1, status: 1 })
      await expectAlive(client)
    })

    it.each([
      ['missing', Buffer.alloc(0)],
      ['cut off', Buffer.from([0, 0, 0, 9, 65])],
      ['longer than any string may be', Buffer.from([0x7f, 0xff, 0xff, 0xff])],
    ])('answers arguments that are %s with an RPC error, and goes on', async (_what, payload) => {
      const client = await connectOpen()
      client.write(encodeFrame(headerOf('DOMAIN_LOOKUP_BY_NAME', 6), payload))
      expect(errorOf(await client.reply(6))).toMatchObject({
        code: ErrorCode.RPC,
        message: 'Unable to decode message payload',
      })
      await expectAlive(client)
    })

    it('is lax about left-over bytes and a NUL in a string', async () => {
      const client = await connectOpen()
      const name = Buffer.from([0, 0, 0, 8, ...Buffer.from('nope\0xyz'), 1, 2, 3, 4])
      client.write(encodeFrame(headerOf('DOMAIN_LOOKUP_BY_NAME', 7), name))
      expect(errorOf(await client.reply(7)).message).toBe("Domain not found: no domain with matching name 'nope'")
    })

    it('passes over replies, messages, unknown types and packets of unknown streams', async () => {
      const client = await connectOpen()
      for (const type of [MessageType.REPLY, MessageType.MESSAGE, 99]) {
        client.write(callPacket('CONNECT_GET_HOSTNAME', 8, null, { type }))
      }
      for (const status of ['CONTINUE', 'OK', 'ERROR'] as const) {
        client.write(
          streamPacket('STORAGE_VOL_UPLOAD', 4711, status, status === 'CONTINUE' ? Buffer.from('x') : undefined),
        )
      }
      await expectAlive(client)
      expect(client.received.map(({ serial }) => serial)).toEqual([1, 777])
    })

    it('answers twenty calls of one write, and packets cut anywhere', async () => {
      const client = await connectOpen()
      const calls = Array.from({ length: 20 }, (_, n) => callPacket('CONNECT_GET_HOSTNAME', 1000 + n, null))
      const bytes = Buffer.concat(calls)
      for (let at = 0; at < bytes.length; at += 13) client.write(bytes.subarray(at, at + 13))
      for (let n = 0; n < 20; n++) expect((await client.reply(1000 + n)).status).toBe(MessageStatus.OK)
    })

    it('answers pings, with and without being asked for keepalives', async () => {
      const client = await connectOpen()
      client.write(keepaliveFrame('PING'))
      const pong = await client.next('a pong', ({ program }) => program === programs.KEEPALIVE.number)
      expect(pong).toMatchObject({
        procedure: KeepaliveProcedure.PONG,
        type: MessageType.MESSAGE,
        serial: 0,
        status: 0,
      })
    })

    it.each([0, 4, 27, 33_554_437, 0xffffffff])('hangs up on a length word of %d', async (length) => {
      const client = await connectOpen()
      const packet = callPacket('CONNECT_GET_HOSTNAME', 9, null)
      packet.writeUInt32BE(length, 0)
      client.write(packet)
      await client.end()
    })

    it('hangs up after CONNECT_CLOSE was answered', async () => {
      const client = await connectOpen()
      expect((await client.call('CONNECT_CLOSE', 10, null)).status).toBe(MessageStatus.OK)
      await client.end()
    })
  })
}

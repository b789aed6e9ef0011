// The recorded conversations once more, as a daemon for the real client: same calls, same answers, same packets of data.
import { createHash } from 'node:crypto'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { eventName, procedureName, replyFrame } from '../../../src/wire/libvirt/codec.ts'
import type { LibvirtConnection } from '../../../src/wire/libvirt/connection.ts'
import { LibvirtError } from '../../../src/wire/libvirt/errors.ts'
import type { LibvirtEvent } from '../../../src/wire/libvirt/events.ts'
import {
  MessageStatus,
  MessageType,
  encodeFrame,
  streamPacketBytes,
  type Frame,
} from '../../../src/wire/libvirt/frame.ts'
import {
  procedures,
  type ProcedureName,
  type Procedures,
  type RemoteError,
} from '../../../src/wire/libvirt/protocol.gen.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { readConversation, readConversations, type RecordedPacket } from '../../unit/wire/libvirt/captures.ts'
import { TestDaemon, type Peer } from './libvirt-daemon.ts'
import { TestSource, pattern } from './libvirt-source.ts'

let daemon: TestDaemon
let connection: LibvirtConnection
let peer: Peer

beforeEach(async () => {
  daemon = await TestDaemon.listen()
  ;({ connection, peer } = await daemon.open(new ManualClock()))
})
afterEach(async () => await daemon.close())

const budget = { timeoutMs: 600_000 }

interface Exchange {
  readonly procedure: ProcedureName
  readonly call: RecordedPacket
  readonly reply: RecordedPacket
  /** Events between the answer before and this one. */
  readonly events: readonly RecordedPacket[]
}

function field(packet: RecordedPacket, name: 'program' | 'procedure' | 'type' | 'serial' | 'status'): number {
  const index = { program: 0, procedure: 2, type: 3, serial: 4, status: 5 }[name]
  return packet.fields[index] ?? Number.NaN
}

function nameOf(packet: RecordedPacket): ProcedureName | undefined {
  return procedureName(field(packet, 'program'), field(packet, 'procedure'))
}

/** What a client like ours could have said: plain calls that were answered, in the order of their answers. */
function plainExchanges(packets: readonly RecordedPacket[]): readonly Exchange[] {
  const exchanges: Exchange[] = []
  let events: RecordedPacket[] = []
  for (const [index, reply] of packets.entries()) {
    if (reply.dir !== 's2c') continue
    const isEvent = eventName(field(reply, 'program'), field(reply, 'procedure')) !== undefined
    if (isEvent && field(reply, 'type') === MessageType.MESSAGE) events.push(reply)
    if (field(reply, 'type') !== MessageType.REPLY || reply.malformed) continue
    const call = packets
      .slice(0, index)
      .findLast(
        (packet) =>
          packet.dir === 'c2s' &&
          packet.conn === reply.conn &&
          field(packet, 'type') === MessageType.CALL &&
          field(packet, 'serial') === field(reply, 'serial') &&
          field(packet, 'procedure') === field(reply, 'procedure'),
      )
    const procedure = call === undefined ? undefined : nameOf(call)
    if (call === undefined || procedure === undefined || !isPlain(procedure, call)) continue
    exchanges.push({ procedure, call, reply, events })
    events = []
  }
  return exchanges
}

function isPlain(procedure: ProcedureName, call: RecordedPacket): boolean {
  if (procedures[procedure].stream !== null || procedure === 'CONNECT_OPEN' || procedure === 'CONNECT_CLOSE')
    return false
  if (call.malformed || call.payload.kind !== 'whole') return false
  // Versions, statuses and texts that a correct client never sends were recorded, too.
  if (call.fields[1] !== 1 || field(call, 'status') !== MessageStatus.OK) return false
  return !call.payload.bytes.toString('latin1').includes('labvm\0xx')
}

/** The packet as the daemon sent it, with the serial our client chose, or its own for an event. */
function resend(packet: RecordedPacket, serial: number): Buffer | undefined {
  if (packet.payload.kind !== 'whole') return undefined
  const [program = 0, version = 0, procedure = 0, type = 0, , status = 0] = packet.fields
  return encodeFrame({ program, version, procedure, type, serial, status }, packet.payload.bytes)
}

describe('recorded calls', () => {
  it('get the recorded answers through the client, errors and events included', async () => {
    const heard: LibvirtEvent[] = []
    connection.onEvent((event) => heard.push(event))
    const counts = { conversations: 0, ok: 0, error: 0, events: 0 }
    for (const { name, records } of readConversations()) {
      const exchanges = plainExchanges(records.filter((record) => record.kind === 'packet'))
      if (exchanges.length > 0) counts.conversations++
      for (const { procedure, call, reply, events } of exchanges) {
        daemon.on(procedure, (to, frame) => {
          expect(frame.payload.toString('hex'), `${name} ${call.where}`).toBe(
            call.payload.kind === 'whole' ? call.payload.bytes.toString('hex') : '',
          )
          for (const event of events) to.send(resend(event, 1) ?? Buffer.alloc(0))
          const answer = resend(reply, frame.serial) ?? longReply(procedure, frame, reply)
          to.send(answer)
        })
        heard.length = 0
        const result = await connection.call(procedure, call.meaning as never, budget).catch((error: unknown) => error)
        if (field(reply, 'status') === MessageStatus.ERROR) {
          const meaning = reply.meaning as RemoteError
          const { code, domain, level, str1, str2, str3, int1, int2 } = meaning
          expect(result, reply.where).toBeInstanceOf(LibvirtError)
          expect(result, reply.where).toMatchObject({ code, domain, level, str1, str2, str3, int1, int2, procedure })
          expect(result, reply.where).toMatchObject({ message: meaning.message })
          counts.error++
        } else {
          expect(result, reply.where).toEqual(reply.meaning)
          counts.ok++
        }
        expect(heard.map((event) => event.message)).toEqual(events.map((event) => event.meaning))
        counts.events += heard.length
      }
    }
    expect(counts).toEqual({ conversations: 85, ok: 369, error: 102, events: 25 })
    expect(connection.load).toEqual({ active: 0, queued: 0 })
  })
})

/** A reply that is kept as a digest only: written anew from its meaning, and the digest agrees. */
function longReply(procedure: ProcedureName, call: Frame, reply: RecordedPacket): Buffer {
  const { program, ret } = procedures[procedure]
  if (program !== 'REMOTE' || ret === null || reply.payload.kind !== 'digest')
    throw new Error(`${reply.where} has no text`)
  const frame = replyFrame(procedure, call.serial, reply.meaning as Procedures[ProcedureName]['ret'])
  expect(createHash('sha256').update(frame.subarray(28)).digest('hex')).toBe(reply.payload.sha256)
  return frame
}

/** Fields, size and digest of a packet with data, but not its serial. */
function shape(fields: readonly number[], size: number, sha256: string): string {
  const [program, version, procedure, type, , status] = fields
  return [program, version, procedure, type, status, size, sha256].join(' ')
}

function digest(bytes: Buffer): string {
  return createHash('sha256').update(bytes).digest('hex')
}

function recordedShape(packet: RecordedPacket): string {
  return packet.payload.kind === 'whole'
    ? shape(packet.fields, packet.payload.bytes.length, digest(packet.payload.bytes))
    : shape(packet.fields, packet.payload.size, packet.payload.sha256)
}

function frameShape(frame: Frame): string {
  const { program, version, procedure, type, serial, status, payload } = frame
  return shape([program, version, procedure, type, serial, status], payload.length, digest(payload))
}

/** Packets of one recorded transfer: its call and all that carries the call's serial. */
function transfer(name: string, procedure: 'STORAGE_VOL_UPLOAD' | 'STORAGE_VOL_DOWNLOAD'): readonly RecordedPacket[] {
  const packets = readConversation(name).records.filter((record) => record.kind === 'packet')
  const call = packets.find((packet) => nameOf(packet) === procedure && field(packet, 'type') === MessageType.CALL)
  if (call === undefined) throw new Error(`${name} has no ${procedure}`)
  return packets.filter((packet) => field(packet, 'serial') === field(call, 'serial') && nameOf(packet) === procedure)
}

/** Plays the daemon's side: sends its packets, with `content` for the data, as soon as the client sent all that came before. */
async function play(packets: readonly RecordedPacket[], content: Buffer): Promise<void> {
  let sent = 0
  let position = 0
  let serial: number | undefined
  const ofTransfer = (frame: Frame) => frame.procedure === packets[0]?.fields[2]
  for (const packet of packets) {
    if (packet.dir === 'c2s') {
      sent++
      continue
    }
    const [first] = await peer.received(ofTransfer, sent)
    serial ??= first?.serial
    let bytes = resend(packet, serial ?? 0)
    if (packet.payload.kind === 'digest') {
      const data = content.subarray(position, position + packet.payload.size)
      expect(digest(data)).toBe(packet.payload.sha256)
      const [program = 0, version = 0, procedure = 0, type = 0, , status = 0] = packet.fields
      bytes = encodeFrame({ program, version, procedure, type, serial: serial ?? 0, status }, data)
    }
    if (field(packet, 'status') === MessageStatus.CONTINUE) {
      position += packet.payload.kind === 'digest' ? packet.payload.size : packet.payload.bytes.length
    }
    if (bytes !== undefined) peer.send(bytes)
  }
}

function sentShapes(): readonly string[] {
  const numbers = [procedures.STORAGE_VOL_UPLOAD.number, procedures.STORAGE_VOL_DOWNLOAD.number]
  return peer.frames.filter((frame) => numbers.includes(frame.procedure)).map(frameShape)
}

function recordedByClient(packets: readonly RecordedPacket[]): readonly string[] {
  return packets.filter((packet) => packet.dir === 'c2s').map(recordedShape)
}

describe('recorded transfers', () => {
  it.each([
    ['05-upload-1k', 3],
    ['05-upload-300k', 4],
    ['05-upload-2m', 11],
    ['05-upload-empty', 2],
  ])('%s: our client sends the very same packets', async (name, count) => {
    const packets = transfer(name, 'STORAGE_VOL_UPLOAD')
    const { vol, offset, length } = packets[0]?.meaning as Procedures['STORAGE_VOL_UPLOAD']['args']
    const playing = play(packets, Buffer.alloc(0))
    const content = pattern(Number(length))
    const source = new TestSource([content.subarray(0, 1), content.subarray(1)])
    const result = await connection.upload(vol, source, { ...budget, offset, length })
    await playing
    expect(result).toEqual({ bytes: Number(length) })
    expect(sentShapes()).toEqual(recordedByClient(packets))
    expect(sentShapes().length).toBe(count)
  })

  it('22-upload-full-pool: the late error ends the upload, and the connection goes on', async () => {
    const packets = transfer('22-upload-full-pool', 'STORAGE_VOL_UPLOAD')
    const { vol, length } = packets[0]?.meaning as Procedures['STORAGE_VOL_UPLOAD']['args']
    const playing = play(packets, Buffer.alloc(0))
    const endless = new TestSource(zeros(Number(length)), 'hang after the last')
    const error = await connection.upload(vol, endless, { ...budget, length }).catch((thrown: unknown) => thrown)
    await playing
    expect(error).toMatchObject({ name: 'LibvirtError', code: 38, int1: 28, domain: 38 })
    expect(endless.released).toBe(true)
    daemon.answer('CONNECT_GET_HOSTNAME', { hostname: 'vm' })
    expect(await connection.call('CONNECT_GET_HOSTNAME', null, budget)).toEqual({ hostname: 'vm' })
  })

  it('05-upload-refused: our client sends no data after the refusal', async () => {
    const packets = transfer('05-upload-refused', 'STORAGE_VOL_UPLOAD')
    const { vol, length } = packets[0]?.meaning as Procedures['STORAGE_VOL_UPLOAD']['args']
    const [reply] = packets.filter((packet) => packet.dir === 's2c')
    if (reply === undefined) throw new Error('no refusal recorded')
    daemon.on('STORAGE_VOL_UPLOAD', (to, call) => to.send(resend(reply, call.serial) ?? Buffer.alloc(0)))
    const error = await connection
      .upload(vol, new TestSource([]), { ...budget, length })
      .catch((thrown: unknown) => thrown)
    expect(error).toMatchObject({ name: 'LibvirtError', codeName: 'NO_STORAGE_VOL' })
    expect(sentShapes()).toEqual(recordedByClient(packets).slice(0, 1))
  })

  it.each([
    ['06-download-small', 3000],
    ['06-download-1m', 1_048_576],
  ])('%s: our client gets the bytes and closes the stream as recorded', async (name, bytes) => {
    const packets = transfer(name, 'STORAGE_VOL_DOWNLOAD')
    const { vol, offset, length } = packets[0]?.meaning as Procedures['STORAGE_VOL_DOWNLOAD']['args']
    const content = Buffer.concat([pattern(3000), Buffer.alloc(bytes - 3000)])
    const playing = play(packets, content)
    const got = await connection.downloadAll(vol, { ...budget, offset, length, maxBytes: bytes })
    await playing
    expect(got.equals(content)).toBe(true)
    expect(sentShapes()).toEqual(recordedByClient(packets))
  })

  it('06-download-abort: our client leaves after the first packet as recorded', async () => {
    const packets = transfer('06-download-abort', 'STORAGE_VOL_DOWNLOAD')
    const { vol, offset, length } = packets[0]?.meaning as Procedures['STORAGE_VOL_DOWNLOAD']['args']
    const playing = play(packets, Buffer.concat([pattern(3000), Buffer.alloc(1_048_576 - 3000)]))
    for await (const piece of connection.download(vol, { ...budget, offset, length })) {
      expect(piece.length).toBeLessThanOrEqual(streamPacketBytes)
      break
    }
    await playing
    expect(sentShapes()).toEqual(recordedByClient(packets))
    expect(connection.load).toEqual({ active: 0, queued: 0 })
  })
})

function* zeros(length: number): Generator<Buffer> {
  for (let rest = length; rest > 0; rest -= 1_000_000) yield Buffer.alloc(Math.min(rest, 1_000_000))
}

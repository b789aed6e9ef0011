// Every recorded packet, both ways: bytes to meaning and meaning to the same bytes.
import { createHash } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import {
  decodeArgs,
  decodeError,
  decodeEvent,
  decodeRet,
  decodeStreamHole,
  encodeArgs,
  encodeError,
  encodeEvent,
  encodeRet,
  encodeStreamHole,
  eventName,
  procedureName,
} from '../../../../src/wire/libvirt/codec.ts'
import {
  FrameDecoder,
  MessageStatus,
  MessageType,
  encodeFrame,
  frameHeaderBytes,
  writeFrameHeader,
  type Frame,
  type FrameHeader,
} from '../../../../src/wire/libvirt/frame.ts'
import { procedures, type RemoteError, type StreamHole } from '../../../../src/wire/libvirt/protocol.gen.ts'
import { XdrError, type XdrMode } from '../../../../src/wire/libvirt/xdr.ts'
import { readConversations, type RecordedPacket } from './captures.ts'

interface Codec {
  readonly struct: string | undefined
  decode(payload: Uint8Array, mode?: XdrMode): unknown
  encode(meaning: unknown): Buffer
}

/** The codec that our tables pick for a packet by its header alone; undefined for raw data and what we do not speak. */
function codecFor(packet: RecordedPacket): Codec | undefined {
  const header = headerOf(packet)
  if (header.type === MessageType.STREAM_HOLE) {
    return { struct: 'virNetStreamHole', decode: decodeStreamHole, encode: (m) => encodeStreamHole(m as StreamHole) }
  }
  if (header.status === MessageStatus.ERROR && packet.dir === 's2c') {
    return { struct: 'virNetMessageError', decode: decodeError, encode: (m) => encodeError(m as RemoteError) }
  }
  const event = eventName(header.program, header.procedure)
  if (event !== undefined && header.type === MessageType.MESSAGE) {
    return {
      struct: `remote_${event.toLowerCase()}_msg`,
      decode: (payload) => decodeEvent(event, payload),
      encode: (meaning) => encodeEvent(event, meaning as never),
    }
  }
  const procedure = procedureName(header.program, header.procedure)
  if (procedure === undefined) return undefined
  const { program, args, ret } = procedures[procedure]
  const prefix = `${program.toLowerCase()}_${procedure.toLowerCase()}`
  if (header.type === MessageType.CALL || header.type === MessageType.MESSAGE) {
    return {
      struct: args === null ? undefined : `${prefix}_args`,
      decode: (payload, mode) => decodeArgs(procedure, payload, mode),
      encode: (meaning) => encodeArgs(procedure, meaning as never),
    }
  }
  if (header.type === MessageType.REPLY) {
    return {
      struct: ret === null ? undefined : `${prefix}_ret`,
      decode: (payload, mode) => decodeRet(procedure, payload, mode),
      encode: (meaning) => encodeRet(procedure, meaning as never),
    }
  }
  return undefined
}

function headerOf(packet: RecordedPacket): FrameHeader {
  const [program = 0, version = 0, procedure = 0, type = 0, serial = 0, status = 0] = packet.fields
  return { program, version, procedure, type, serial, status }
}

function payloadBytes(packet: RecordedPacket): number {
  return packet.payload.kind === 'whole' ? packet.payload.bytes.length : packet.payload.size
}

const conversations = readConversations()
const packets = conversations.flatMap(({ records }) => records.filter((record) => record.kind === 'packet'))

describe('recorded conversations', () => {
  it('are all there', () => {
    expect({ conversations: conversations.length, packets: packets.length }).toEqual({
      conversations: 88,
      packets: 1460,
    })
  })

  it('have headers that we read and write as recorded', () => {
    for (const packet of packets) {
      const written = Buffer.alloc(frameHeaderBytes)
      writeFrameHeader(written, headerOf(packet), payloadBytes(packet))
      expect(written.toString('hex'), packet.where).toBe(packet.header.toString('hex'))
    }
    const frames: Frame[] = []
    const decoder = new FrameDecoder()
    const whole = packets.filter((packet) => packet.payload.kind === 'whole')
    for (const packet of whole) {
      const bytes = packet.payload.kind === 'whole' ? packet.payload.bytes : Buffer.alloc(0)
      decoder.push(packet.header, (frame) => frames.push(frame))
      decoder.push(bytes, (frame) => frames.push(frame))
    }
    expect(frames.length).toBe(whole.length)
    frames.forEach((frame, index) => {
      const packet = whole[index]
      if (packet === undefined) throw new Error('more frames than packets')
      const { payload, ...header } = frame
      expect(header, packet.where).toEqual(headerOf(packet))
      expect(payload.length).toBe(payloadBytes(packet))
    })
  })

  it('mean what was recorded, both ways', () => {
    const seen = { both: 0, byDigest: 0, empty: 0, raw: 0, foreign: 0, malformed: 0, nul: 0 }
    for (const packet of packets) {
      const { payload, meaning, where } = packet
      const codec = codecFor(packet)
      if (codec === undefined) {
        expect(packet.struct, where).toBeUndefined()
        seen[headerOf(packet).type === MessageType.STREAM ? 'raw' : 'foreign']++
        continue
      }
      expect(codec.struct, where).toBe(packet.struct)
      if (packet.malformed) {
        seen.malformed++
        continue
      }
      if (payload.kind === 'digest') {
        const bytes = codec.encode(meaning)
        expect(bytes.length, where).toBe(payload.size)
        expect(createHash('sha256').update(bytes).digest('hex'), where).toBe(payload.sha256)
        expect(bytes.subarray(0, payload.head.length), where).toEqual(payload.head)
        expect(bytes.subarray(-payload.tail.length), where).toEqual(payload.tail)
        expect(codec.decode(bytes), where).toEqual(meaning)
        seen.byDigest++
        continue
      }
      expect(codec.decode(payload.bytes), where).toEqual(meaning)
      if (JSON.stringify(meaning, (_key, v: unknown) => (typeof v === 'bigint' ? String(v) : v)).includes('\\u0000')) {
        expect(codec.decode(payload.bytes, 'lenient'), where).toEqual({ name: 'labvm' })
        expect(() => codec.encode(meaning), where).toThrow(expect.objectContaining({ code: 'NUL' }))
        seen.nul++
        continue
      }
      expect(codec.encode(meaning).toString('hex'), where).toBe(payload.bytes.toString('hex'))
      seen[payload.bytes.length === 0 ? 'empty' : 'both']++
    }
    expect(seen).toEqual({ both: 883, byDigest: 3, empty: 332, foreign: 44, malformed: 8, nul: 1, raw: 189 })
  })

  it('are read as the daemon read them where they are malformed', () => {
    const read = packets
      .filter((packet) => packet.malformed)
      .map((packet) => {
        const codec = codecFor(packet)
        if (codec === undefined || packet.payload.kind !== 'whole') throw new Error(`${packet.where} has no codec`)
        const bytes = packet.payload.bytes
        return {
          where: packet.where.replace(/:\d+$/, ''),
          strict: attempt(codec, bytes),
          lenient: attempt(codec, bytes, 'lenient'),
        }
      })
    const echo = { code: 42, str2: "no domain with matching name '\ufffd\ufffd\ufffd\ufffd'" }
    expect(read).toEqual([
      { where: '32-type-reply', strict: 'TRUNCATED', lenient: 'TRUNCATED' },
      { where: '33-args-missing', strict: 'TRUNCATED', lenient: 'TRUNCATED' },
      { where: '33-args-not-utf8', strict: { name: '\ufffd'.repeat(4) }, lenient: { name: '\ufffd'.repeat(4) } },
      {
        where: '33-args-not-utf8',
        strict: expect.objectContaining(echo) as unknown,
        lenient: expect.objectContaining(echo) as unknown,
      },
      { where: '33-args-optional-2', strict: 'OPTIONAL', lenient: { name: 'abc', flags: 0 } },
      { where: '33-args-pad-nonzero', strict: 'PADDING', lenient: { name: 'labvm' } },
      { where: '33-args-string-too-long', strict: 'LENGTH', lenient: 'LENGTH' },
      { where: '33-args-trailing', strict: 'TRAILING', lenient: { name: 'labvm' } },
    ])
  })
})

function attempt(codec: Codec, bytes: Buffer, mode?: XdrMode): unknown {
  try {
    return codec.decode(bytes, mode)
  } catch (error) {
    if (error instanceof XdrError) return error.code
    throw error
  }
}

describe('frames cut anywhere', () => {
  it('come out the same for every packet at every offset, and byte by byte', () => {
    let cuts = 0
    for (const packet of packets) {
      if (packet.payload.kind !== 'whole') continue
      const bytes = encodeFrame(headerOf(packet), packet.payload.bytes)
      const twice = Buffer.concat([bytes, bytes])
      const expected = packet.payload.bytes
      for (let offset = 0; offset <= bytes.length; offset++) {
        const decoder = new FrameDecoder()
        const frames: Frame[] = []
        decoder.push(twice.subarray(0, offset), (frame) => frames.push(frame))
        decoder.push(twice.subarray(offset), (frame) => frames.push(frame))
        if (frames.length !== 2 || !frames.every((frame) => frame.payload.equals(expected))) {
          throw new Error(`${packet.where} cut at ${offset} gave ${frames.length} frames`)
        }
        cuts++
      }
      expect(byteByByte(twice)).toBe(2)
    }
    expect(cuts).toBe(121_760)
  })
})

function byteByByte(bytes: Buffer): number {
  const decoder = new FrameDecoder()
  let frames = 0
  for (let i = 0; i < bytes.length; i++) decoder.push(bytes.subarray(i, i + 1), () => frames++)
  expect(decoder.bufferedBytes).toBe(0)
  return frames
}

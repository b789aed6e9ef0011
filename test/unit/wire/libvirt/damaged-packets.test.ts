// Recorded packets of a real libvirtd, damaged: a decoder and a whole connection end in their own errors, and reserve nothing.
import fc from 'fast-check'
import { duplexPair, type Duplex } from 'node:stream'
import { describe, expect, it } from 'vitest'
import {
  decodeArgs,
  decodeError,
  decodeEvent,
  decodeRet,
  eventName,
  procedureName,
} from '../../../../src/wire/libvirt/codec.ts'
import { encodeArgs, encodeError, encodeEvent, encodeRet, replyFrame } from '../../../../src/wire/libvirt/codec.ts'
import { LibvirtConnection } from '../../../../src/wire/libvirt/connection.ts'
import { LibvirtConnectionError, LibvirtError } from '../../../../src/wire/libvirt/errors.ts'
import {
  FrameDecoder,
  FrameError,
  frameHeaderBytes,
  MessageStatus,
  MessageType,
  frameMaxBytes,
  type Frame,
} from '../../../../src/wire/libvirt/frame.ts'
import { XdrError } from '../../../../src/wire/libvirt/xdr.ts'
import { ManualClock } from '../../../support/manual-clock.ts'
import { damaged } from '../../../support/mutations.ts'
import { readConversations } from './captures.ts'

/** Whole packets as they were on the wire. */
const packets = readConversations()
  .flatMap(({ records }) => records)
  .filter((record) => record.kind === 'packet')
  .flatMap(({ dir, header, payload }) =>
    payload.kind === 'whole' ? [{ dir, bytes: Buffer.concat([header, payload.bytes]) }] : [],
  )

/** Decodes a payload by what the header says it is; what was read is written again and read again, and must be the same. */
function decode(frame: Frame): void {
  const both = (read: (payload: Uint8Array) => unknown, write: (value: never) => Buffer) => {
    const value = read(frame.payload)
    expect(read(write(value as never))).toEqual(value)
  }
  const event = eventName(frame.program, frame.procedure)
  if (frame.type === MessageType.MESSAGE && event !== undefined) {
    both(
      (payload) => decodeEvent(event, payload),
      (value) => encodeEvent(event, value),
    )
  }
  const procedure = procedureName(frame.program, frame.procedure)
  if (procedure === undefined) return
  if (frame.status === MessageStatus.ERROR) both(decodeError, encodeError)
  else if (frame.type === MessageType.CALL)
    both(
      (payload) => decodeArgs(procedure, payload),
      (args) => encodeArgs(procedure, args),
    )
  else if (frame.type === MessageType.REPLY)
    both(
      (payload) => decodeRet(procedure, payload),
      (ret) => encodeRet(procedure, ret),
    )
}

describe('a damaged packet', () => {
  it('is read as another one or refused with a typed error', () => {
    expect(packets.length).toBeGreaterThan(1000)
    const seen = { decoded: 0, waiting: 0, frame: 0, xdr: 0 }
    const all = damaged(packets.map(({ bytes }) => bytes))
    fc.assert(
      fc.property(all, fc.constantFrom(1, 7, 64, 65_536), ({ bytes }, step) => {
        const decoder = new FrameDecoder()
        const frames: Frame[] = []
        try {
          for (let at = 0; at < bytes.length; at += step) {
            decoder.push(bytes.subarray(at, at + step), (frame) => frames.push(frame))
          }
          if (frames.length === 0) seen.waiting++
        } catch (error) {
          expect(error).toBeInstanceOf(FrameError)
          seen.frame++
        }
        for (const frame of frames) {
          try {
            decode(frame)
            seen.decoded++
          } catch (error) {
            if (!(error instanceof XdrError)) throw error
            // `NUL`: what came may have one, what we write may not
            seen.xdr++
          }
        }
      }),
      { numRuns: 4000 },
    )
    for (const [outcome, count] of Object.entries(seen)) expect(count, outcome).toBeGreaterThan(0)
  })

  it('reserves no room for what it only announces', () => {
    const word = Buffer.alloc(4)
    word.writeUInt32BE(frameMaxBytes)
    const before = process.memoryUsage().arrayBuffers
    const decoders = Array.from({ length: 200 }, () => {
      const decoder = new FrameDecoder()
      decoder.push(word, () => undefined)
      return decoder
    })
    // 200 packets as announced would be 6.7 GB
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(64 * 2 ** 20)
    expect(decoders.reduce((sum, { bufferedBytes }) => sum + bufferedBytes, 0)).toBe(800)
  })
})

const never = new AbortController().signal

/**
 * Answers the handshake as libvirtd does, and the call behind it with `bytes` and the end of the connection.
 * @param addressed as the answer to that very procedure, whatever `bytes` are the answer to
 */
function serve(socket: Duplex, bytes: Buffer, addressed: boolean): void {
  const decoder = new FrameDecoder()
  socket.on('data', (chunk: Buffer) =>
    decoder.push(chunk, (frame) => {
      switch (procedureName(frame.program, frame.procedure)) {
        case 'AUTH_LIST':
          socket.write(replyFrame('AUTH_LIST', frame.serial, { types: [0] }))
          return
        case 'CONNECT_SUPPORTS_FEATURE':
          socket.write(replyFrame('CONNECT_SUPPORTS_FEATURE', frame.serial, { supported: 1 }))
          return
        case 'CONNECT_OPEN':
          socket.write(replyFrame('CONNECT_OPEN', frame.serial, null))
          return
        default:
          if (bytes.length >= frameHeaderBytes) {
            bytes.writeUInt32BE(frame.serial, 20)
            if (addressed) bytes.writeInt32BE(frame.procedure, 12)
          }
          socket.end(bytes)
      }
    }),
  )
  socket.on('error', () => undefined)
}

it('a connection that gets one ends in a classified error, at once', async () => {
  const seen = { answered: 0, refused: 0, ended: 0 }
  const replies = packets.filter(({ dir }) => dir === 's2c').map(({ bytes }) => bytes)
  const name = (bytes: Buffer) =>
    bytes.length < 16 ? undefined : procedureName(bytes.readUInt32BE(4), bytes.readInt32BE(12))
  const lookups = replies.filter((bytes) =>
    /^(DOMAIN_LOOKUP|STORAGE_POOL_LOOKUP|STORAGE_VOL_LOOKUP)/.test(name(bytes) ?? ''),
  )
  const refusals = replies.filter((bytes) => bytes.readInt32BE(24) === MessageStatus.ERROR)
  const listed = fc.oneof(damaged(lookups), damaged(refusals), damaged(replies))
  await fc.assert(
    fc.asyncProperty(listed, fc.boolean(), async ({ bytes }, addressed) => {
      const [client, server] = duplexPair()
      serve(server, Buffer.from(bytes), addressed)
      const connection = await LibvirtConnection.open(client, {
        clock: new ManualClock(),
        signal: never,
        timeoutMs: 1000,
      })
      try {
        const procedure =
          name(bytes) === 'DOMAIN_LOOKUP_BY_NAME' ? 'DOMAIN_LOOKUP_BY_NAME' : 'STORAGE_POOL_LOOKUP_BY_NAME'
        await connection.call(procedure, { name: 'x' }, { timeoutMs: 1000 })
        seen.answered++
      } catch (error) {
        if (error instanceof LibvirtError) seen.refused++
        else if (error instanceof LibvirtConnectionError) seen.ended++
        else throw error
      }
      await connection.closed
    }),
    { numRuns: 1500 },
  )
  for (const [outcome, count] of Object.entries(seen)) expect(count, outcome).toBeGreaterThan(0)
})

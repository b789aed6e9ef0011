// Packets out of arbitrary cuts of arbitrary bytes; the recorded ones are in captures.test.ts.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  FrameDecoder,
  FrameError,
  encodeFrame,
  frameHeaderBytes,
  frameMaxBytes,
  type Frame,
} from '../../../../src/wire/libvirt/frame.ts'
import { readConversation } from './captures.ts'

const u32 = fc.nat(0xffff_ffff)
const i32 = fc.integer({ min: -0x8000_0000, max: 0x7fff_ffff })
const frames = fc.array(
  fc.record({
    program: u32,
    version: u32,
    procedure: i32,
    type: i32,
    serial: u32,
    status: i32,
    payload: fc.uint8Array({ maxLength: 300 }).map((bytes) => Buffer.from(bytes)),
  }),
  { maxLength: 6 },
)

/** The bytes in pieces of the given sizes, then the rest. */
function* cut(bytes: Buffer, sizes: readonly number[]): Generator<Buffer> {
  let offset = 0
  for (const size of sizes) {
    yield bytes.subarray(offset, offset + size)
    offset += size
  }
  yield bytes.subarray(offset)
}

describe('the frame decoder', () => {
  it('gives back what was written, however it was cut', () => {
    fc.assert(
      fc.property(frames, fc.array(fc.nat(120)), (written, sizes) => {
        const decoder = new FrameDecoder()
        const read: Frame[] = []
        const bytes = Buffer.concat(written.map((frame) => encodeFrame(frame, frame.payload)))
        for (const piece of cut(bytes, sizes)) decoder.push(piece, (frame) => read.push(frame))
        expect(read).toEqual(written)
        expect(decoder.bufferedBytes).toBe(0)
      }),
    )
  })

  it('takes arbitrary bytes as packets, waits for more, or fails for good', () => {
    const seen = { waiting: 0, failed: 0 }
    const small = fc.uint8Array({ maxLength: 200 })
    const plausible = fc.tuple(fc.nat(64), small).map(([length, rest]) => {
      const head = Buffer.alloc(4)
      head.writeUInt32BE(length)
      return Buffer.concat([head, rest])
    })
    fc.assert(
      fc.property(fc.oneof(small, plausible), fc.array(fc.nat(9)), (bytes, sizes) => {
        const decoder = new FrameDecoder()
        let delivered = 0
        let failure: unknown
        for (const piece of cut(Buffer.from(bytes), sizes)) {
          try {
            decoder.push(piece, (frame) => (delivered += frameHeaderBytes + frame.payload.length))
          } catch (error) {
            failure = error
            break
          }
        }
        if (failure === undefined) {
          seen.waiting++
          expect(delivered + decoder.bufferedBytes).toBe(bytes.length)
        } else {
          seen.failed++
          expect(failure).toBeInstanceOf(FrameError)
          expect(decoder.bufferedBytes).toBe(0)
          expect(() => decoder.push(Buffer.from([1]), () => undefined)).toThrow(FrameError)
        }
      }),
    )
    expect(seen.waiting).toBeGreaterThan(0)
    expect(seen.failed).toBeGreaterThan(0)
  })

  it.each([0, 4, 27, frameMaxBytes + 1, 0xffff_ffff])('refuses length word %d as soon as it is there', (length) => {
    const word = Buffer.alloc(4)
    word.writeUInt32BE(length)
    const decoder = new FrameDecoder()
    decoder.push(word.subarray(0, 3), () => undefined)
    expect(() => decoder.push(word.subarray(3), () => undefined)).toThrow(expect.objectContaining({ length }))
  })

  it('waits for the bytes of the largest packet, holding only what came', () => {
    const word = Buffer.alloc(4)
    word.writeUInt32BE(frameMaxBytes)
    const decoder = new FrameDecoder()
    decoder.push(word, () => undefined)
    expect(decoder.bufferedBytes).toBe(4)
  })

  it('delivers the packets in front of a bad length', () => {
    const good = encodeFrame({ program: 1, version: 1, procedure: 1, type: 0, serial: 7, status: 0 })
    const serials: number[] = []
    const decoder = new FrameDecoder()
    expect(() => decoder.push(Buffer.concat([good, Buffer.alloc(4)]), (frame) => serials.push(frame.serial))).toThrow(
      FrameError,
    )
    expect(serials).toEqual([7])
  })

  it('ends where the real daemon ended the connection', () => {
    const ended: string[] = []
    for (const name of ['0', '27', '28-two-writes', '33554436', '33554437', '4', 'ffffffff'].map(
      (n) => `34-length-${n}`,
    )) {
      const conversation = readConversation(name)
      const decoder = new FrameDecoder()
      for (const record of conversation.records) {
        if (record.dir !== 'c2s') continue
        const bytes = record.kind === 'event' ? record.bytes : record.header
        try {
          decoder.push(bytes, () => undefined)
          if (record.kind === 'packet' && record.payload.kind === 'whole')
            decoder.push(record.payload.bytes, () => undefined)
        } catch (error) {
          expect(error).toBeInstanceOf(FrameError)
          ended.push(name)
          break
        }
      }
    }
    expect(ended).toEqual(['34-length-0', '34-length-27', '34-length-33554437', '34-length-4', '34-length-ffffffff'])
  })
})

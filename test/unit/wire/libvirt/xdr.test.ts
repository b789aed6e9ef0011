// XDR values at their limits, and arbitrary bytes: only typed errors, nothing beyond the input, never a hang.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { decodeArgs, decodeError, decodeEvent, decodeRet } from '../../../../src/wire/libvirt/codec.ts'
import { events, procedures, type EventName, type ProcedureName } from '../../../../src/wire/libvirt/protocol.gen.ts'
import { readValue, writeValue, type XdrStruct, type XdrType } from '../../../../src/wire/libvirt/schema.ts'
import { XdrError, XdrReader, XdrWriter, type XdrErrorCode } from '../../../../src/wire/libvirt/xdr.ts'

function encode(type: XdrType, value: unknown): Buffer {
  const writer = new XdrWriter()
  writeValue(writer, type, value)
  return writer.finish()
}

function codeOf(work: () => unknown): XdrErrorCode | 'none' {
  try {
    work()
    return 'none'
  } catch (error) {
    if (error instanceof XdrError) return error.code
    throw error
  }
}

const int: XdrType = { kind: 'int' }
const uint: XdrType = { kind: 'uint' }
const hyper: XdrType = { kind: 'hyper' }
const uhyper: XdrType = { kind: 'uhyper' }
const string: XdrType = { kind: 'string' }
const uuid: XdrType = { kind: 'uuid' }
const typedValue: XdrType = { kind: 'typedValue' }

describe('values that a type cannot carry', () => {
  it.each<[string, XdrType, unknown, XdrErrorCode | 'none']>([
    ['int, largest', int, 0x7fff_ffff, 'none'],
    ['int, one more', int, 0x8000_0000, 'RANGE'],
    ['int, smallest', int, -0x8000_0000, 'none'],
    ['int, one less', int, -0x8000_0001, 'RANGE'],
    ['int, half', int, 0.5, 'RANGE'],
    ['int, not a number', int, Number.NaN, 'RANGE'],
    ['int, text', int, '1', 'TYPE'],
    ['int, missing', int, undefined, 'TYPE'],
    ['uint, largest', uint, 0xffff_ffff, 'none'],
    ['uint, one more', uint, 0x1_0000_0000, 'RANGE'],
    ['uint, negative', uint, -1, 'RANGE'],
    ['hyper, largest', hyper, 2n ** 63n - 1n, 'none'],
    ['hyper, one more', hyper, 2n ** 63n, 'RANGE'],
    ['hyper, number', hyper, 1, 'TYPE'],
    ['uhyper, largest', uhyper, 2n ** 64n - 1n, 'none'],
    ['uhyper, one more', uhyper, 2n ** 64n, 'RANGE'],
    ['uhyper, negative', uhyper, -1n, 'RANGE'],
    ['string, longest', string, 'x'.repeat(4_194_304), 'none'],
    ['string, one more', string, 'x'.repeat(4_194_305), 'LENGTH'],
    ['string, longest in bytes', string, 'ä'.repeat(2_097_153), 'LENGTH'],
    ['string with a NUL', string, 'a\0b', 'NUL'],
    ['string, null', string, null, 'TYPE'],
    ['uuid', uuid, 'A0000000-0000-0000-0000-00000000000f', 'none'],
    ['uuid without dashes', uuid, 'a000000000000000000000000000000f', 'UUID'],
    ['chars, full', { kind: 'chars', length: 3 }, 'abc', 'none'],
    ['chars, one more', { kind: 'chars', length: 3 }, 'abcd', 'LENGTH'],
    ['array, full', { kind: 'array', of: int, max: 2 }, [1, 2], 'none'],
    ['array, one more', { kind: 'array', of: int, max: 2 }, [1, 2, 3], 'LENGTH'],
    ['array, not one', { kind: 'array', of: int, max: 2 }, 'no', 'TYPE'],
    ['struct, field missing', { kind: 'struct', fields: [{ name: 'a', type: int }] }, {}, 'TYPE'],
    ['typed value of no kind', typedValue, { kind: 'text', value: '' }, 'TYPE'],
    ['typed value, wrong value', typedValue, { kind: 'boolean', value: 1 }, 'TYPE'],
  ])('%s', (_name, type, value, expected) => {
    expect(codeOf(() => encode(type, value))).toBe(expected)
  })
})

describe('bytes that are no value', () => {
  it.each<[string, XdrType, string, XdrErrorCode]>([
    ['int, three bytes', int, '000000', 'TRUNCATED'],
    ['hyper, four bytes', hyper, '00000000', 'TRUNCATED'],
    ['string, shorter than said', string, '0000000561626364', 'TRUNCATED'],
    ['string, padding missing', string, '0000000161', 'TRUNCATED'],
    ['string, padding not zero', string, '0000000161000001', 'PADDING'],
    ['string, too long', string, '0040000161626364', 'LENGTH'],
    ['optional, marker 2', { kind: 'optional', of: int }, '0000000200000000', 'OPTIONAL'],
    ['array, too many', { kind: 'array', of: int, max: 1 }, '000000020000000000000000', 'LENGTH'],
    ['array, more said than there', { kind: 'array', of: int, max: 9 }, '0000000200000000', 'TRUNCATED'],
    ['typed value, type 8', typedValue, '0000000800000000', 'UNION'],
    ['left-over bytes', int, '0000000000000000', 'TRAILING'],
  ])('%s', (_name, type, hex, expected) => {
    expect(
      codeOf(() => {
        const reader = new XdrReader(Buffer.from(hex, 'hex'))
        readValue(reader, type)
        reader.end()
      }),
    ).toBe(expected)
  })

  it('never become text that throws: what is not UTF-8 reads as U+FFFD', () => {
    expect(new XdrReader(Buffer.from('00000003ff61fe00', 'hex')).string()).toBe('\ufffda\ufffd')
    expect(new XdrReader(Buffer.from('00000003efbbbf00', 'hex')).string()).toBe('\ufeff')
  })
})

/** Values of a described type. */
function valueOf(type: XdrType): fc.Arbitrary<unknown> {
  switch (type.kind) {
    case 'int':
      return fc.integer({ min: -0x8000_0000, max: 0x7fff_ffff })
    case 'uint':
      return fc.integer({ min: 0, max: 0xffff_ffff })
    case 'hyper':
      return fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n })
    case 'uhyper':
      return fc.bigInt({ min: 0n, max: 2n ** 64n - 1n })
    case 'double':
      return fc.double({ noNaN: true })
    case 'string':
      return fc.string({ unit: 'grapheme' }).map((text) => text.replaceAll('\0', ''))
    case 'uuid':
      return fc.uuid()
    case 'chars':
      return fc.string({ unit: 'grapheme-ascii', maxLength: type.length })
    case 'typedValue':
      return fc.oneof(
        fc.record({ kind: fc.constant('int'), value: valueOf(int) }),
        fc.record({ kind: fc.constant('uint'), value: valueOf(uint) }),
        fc.record({ kind: fc.constant('hyper'), value: valueOf(hyper) }),
        fc.record({ kind: fc.constant('uhyper'), value: valueOf(uhyper) }),
        fc.record({ kind: fc.constant('double'), value: valueOf({ kind: 'double' }) }),
        fc.record({ kind: fc.constant('boolean'), value: fc.boolean() }),
        fc.record({ kind: fc.constant('string'), value: valueOf(string) }),
      )
    case 'optional':
      return fc.option(valueOf(type.of), { nil: null })
    case 'array':
      return fc.array(valueOf(type.of), { maxLength: 5 })
    case 'struct':
      return fc.record(Object.fromEntries(type.fields.map(({ name, type: field }) => [name, valueOf(field)])))
  }
}

const procedureNames = Object.keys(procedures) as ProcedureName[]
const eventNames = Object.keys(events) as EventName[]
const structs: readonly XdrStruct[] = [
  ...procedureNames.flatMap((name) => [procedures[name].args, procedures[name].ret]),
  ...eventNames.map((name) => events[name].msg),
].filter((struct) => struct !== null)

describe('every struct of the protocol', () => {
  it('comes back as it was written, and any cut of it is an error', () => {
    expect(structs.length).toBeGreaterThan(120)
    for (const struct of structs) {
      fc.assert(
        fc.property(valueOf(struct), fc.nat(), (value, cut) => {
          const bytes = encode(struct, value)
          const reader = new XdrReader(bytes)
          expect(readValue(reader, struct)).toEqual(value)
          reader.end()
          const shorter = bytes.subarray(0, cut % bytes.length)
          expect(codeOf(() => readValue(new XdrReader(shorter), struct))).not.toBe('none')
        }),
        { numRuns: 20 },
      )
    }
  })

  it('reads arbitrary bytes or throws an XdrError, in either mode', () => {
    const word = fc.oneof(
      fc.constantFrom(0, 1, 2, 7, 0xff, 0x4000, 0x40_0000, 0x40_0001, 0x7fff_ffff, 0xffff_ffff),
      fc.nat(0xffff_ffff),
    )
    const bytes = fc.tuple(fc.array(word, { maxLength: 40 }), fc.uint8Array({ maxLength: 3 })).map(([words, rest]) => {
      const head = Buffer.alloc(words.length * 4)
      words.forEach((value, index) => head.writeUInt32BE(value, index * 4))
      return Buffer.concat([head, rest])
    })
    const outcomes = { read: 0, refused: 0 }
    fc.assert(
      fc.property(bytes, fc.constantFrom('strict', 'lenient'), (payload, mode) => {
        for (const name of procedureNames) {
          outcomes[codeOf(() => decodeArgs(name, payload, mode)) === 'none' ? 'read' : 'refused']++
          outcomes[codeOf(() => decodeRet(name, payload, mode)) === 'none' ? 'read' : 'refused']++
        }
        for (const name of eventNames) codeOf(() => decodeEvent(name, payload, mode))
        codeOf(() => decodeError(payload, mode))
      }),
      { numRuns: 500 },
    )
    expect(outcomes.read).toBeGreaterThan(100)
    expect(outcomes.refused).toBeGreaterThan(100)
  })

  it('does not reserve room for elements that are only announced', () => {
    const announced = Buffer.from('0004000000000000', 'hex')
    const stats: XdrType = { kind: 'array', of: { kind: 'array', of: int, max: 0x4_0000 }, max: 0x4_0000 }
    expect(codeOf(() => readValue(new XdrReader(announced), stats))).toBe('TRUNCATED')
  })
})

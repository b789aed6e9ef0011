// The pure parts of the libvirt stub: bytes of volumes, headers of images, documents.
import { createHash } from 'node:crypto'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { probeFormat, qcow2Header, readQcow2 } from '../../support/libvirt-stub/model/formats.ts'
import { VolumeContent } from '../../support/libvirt-stub/model/volume-content.ts'
import { isProblem, parseXmlTree, printXml } from '../../support/libvirt-stub/model/xml.ts'

describe('the bytes of a volume', () => {
  it('read, measure and hash like a file, whatever is written where', () => {
    const write = fc.record({ offset: fc.nat(300_000), data: fc.uint8Array({ maxLength: 70_000 }) })
    fc.assert(
      fc.property(
        fc.nat(100_000),
        fc.array(write, { maxLength: 6 }),
        fc.nat(400_000),
        fc.nat(200_000),
        (size, writes, at, length) => {
          const content = new VolumeContent(size, 2 ** 20)
          let file = Buffer.alloc(size)
          for (const { offset, data } of writes) {
            content.write(offset, data)
            file = Buffer.concat([file, Buffer.alloc(Math.max(0, offset + data.length - file.length))])
            file.set(data, offset)
          }
          expect(content.length).toBe(file.length)
          expect(content.read(at, length).equals(file.subarray(at, at + length))).toBe(true)
          expect(content.sha256()).toBe(createHash('sha256').update(file).digest('hex'))
        },
      ),
      { numRuns: 60 },
    )
  })

  it('take whole blocks, and none where nothing was written', () => {
    const content = new VolumeContent(10_000_000, 2 ** 24)
    expect(content.allocation).toBe(0)
    content.write(0, Buffer.alloc(5000))
    expect(content.allocation).toBe(8192)
    content.write(5000, Buffer.alloc(300_000))
    expect(content.allocation).toBe(307_200)
  })
})

describe('formats', () => {
  it('are told from the first bytes', () => {
    const content = new VolumeContent(0, 2 ** 20)
    expect(probeFormat(content)).toBe('raw')
    content.write(32_769, Buffer.from('CD001'))
    expect(probeFormat(content)).toBe('iso')
    content.write(0, qcow2Header({ capacity: 7 * 2 ** 30, backingPath: '/a/b.qcow2', backingFormat: 'qcow2' }))
    expect(probeFormat(content)).toBe('qcow2')
    expect(readQcow2(content)).toEqual({ capacity: 7 * 2 ** 30, backingPath: '/a/b.qcow2', backingFormat: 'qcow2' })
  })
})

describe('documents', () => {
  it('survive being read and printed', () => {
    const text = fc.string({ minLength: 1, maxLength: 20 }).map((value) => `x${value.replaceAll(/[^ -~]/g, '')}x`)
    fc.assert(
      fc.property(text, text, (attribute, content) => {
        const printed = printXml({
          name: 'a',
          attributes: new Map([['b', attribute]]),
          children: [{ name: 'c:d', attributes: new Map(), children: [content] }],
        })
        const parsed = parseXmlTree(printed)
        if (isProblem(parsed)) throw new Error(parsed.message)
        expect(parsed.attributes.get('b')).toBe(attribute)
        expect(printXml(parsed)).toBe(printed)
      }),
    )
  })

  it('that are not well-formed say where', () => {
    for (const broken of ['', '<a', '<a><b></a>', 'text', '<a/>x']) expect(isProblem(parseXmlTree(broken))).toBe(true)
  })
})

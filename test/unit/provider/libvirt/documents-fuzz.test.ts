// Documents that no libvirt writes: real ones damaged, and hostile ones. Readers say "unreadable" or read, and never throw.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { domainUuid, domainXml, parseDomainXml } from '../../../../src/provider/libvirt/domain-xml.ts'
import { markXml, readMark } from '../../../../src/provider/libvirt/mark.ts'
import { backingPath, modifiedMs, overlayVolumeXml, rawVolumeXml } from '../../../../src/provider/libvirt/volume-xml.ts'
import { buildXml, parseXml } from '../../../../src/provider/libvirt/xml.ts'
import { damaged } from '../../../support/mutations.ts'
import { readConversations } from '../../wire/libvirt/captures.ts'

const runs = 1500

/** Documents that a real libvirtd sent: of domains, volumes, pools, capabilities and marks. */
const recorded = [
  ...new Set(
    readConversations()
      .flatMap(({ records }) => records)
      .filter((record) => record.kind === 'packet')
      .flatMap(({ meaning }) => documentsIn(meaning)),
  ),
]

function documentsIn(meaning: unknown): string[] {
  if (typeof meaning !== 'object' || meaning === null) return []
  const values: unknown[] = Object.values(meaning)
  return values.filter((value) => typeof value === 'string').filter((text) => text.startsWith('<'))
}

const mark = { uid: 'u-1', installation: 'home', namespace: 'default', name: 'a', specHash: 'v1:aa' }
const own = [
  markXml(mark),
  rawVolumeXml({ name: 'a', capacityBytes: 1 }),
  overlayVolumeXml({ name: 'a', capacityBytes: 1, backingPath: '/p/b', backingFormat: 'qcow2' }),
  '<volume><target><timestamps><mtime>1790000000.123456789</mtime></timestamps></target></volume>',
  domainXml({
    name: 'proxy-abc',
    uuid: domainUuid('proxy-abc'),
    mac: '52:54:00:0a:0b:0c',
    vcpus: 2,
    memoryMiB: 1024,
    firmware: 'uefi',
    nic: { kind: 'bridge', bridge: 'br0' },
    overlayPath: '/pool/a & b/proxy-abc.qcow2',
    seedPath: '/pool/proxy-abc-seed.iso',
    markNamespace: 'https://example.org/kvm2',
    mark,
  }),
]
const documents = [...recorded, ...own].map((text) => Buffer.from(text))

const fragments = [
  ...['<', '>', '</', '/>', '&', '&amp;', '&#0;', '&#xffffffff;', '&a;', '"', "'", '=', ']]>', '-->', '<!--', '\0'],
  ...[
    '<![CDATA[',
    '<?xml',
    '<!DOCTYPE a [<!ENTITY a "b">]>',
    ' xmlns:x="y"',
    '<__proto__>',
    '<constructor/>',
    '\ufeff',
  ],
]

/** What every reader makes of a text; the answers' shapes are what callers rely on. */
function readAll(text: string): 'read' | 'unreadable' {
  const domain = parseDomainXml(text)
  for (const value of [...(domain?.macs ?? []), ...(domain?.files ?? [])]) expect(value).toBeTypeOf('string')
  const reading = readMark(text)
  if (reading.kind === 'marked') for (const value of Object.values(reading.mark)) expect(value).toMatch(/\S/)
  expect(backingPath(text) ?? 'none').not.toBe('')
  expect(modifiedMs(text)).not.toBeNaN()
  return parseXml(text) === undefined ? 'unreadable' : 'read'
}

describe('readers of libvirt documents', () => {
  it('read what the real daemon wrote', () => {
    expect(recorded.length).toBeGreaterThan(40)
    for (const text of recorded.filter((each) => each.startsWith('<domain') && each.includes('<devices>'))) {
      expect(parseDomainXml(text), text).toBeDefined()
    }
  })

  it('take damaged ones for unreadable or read them, and never throw', () => {
    const seen = { read: 0, unreadable: 0 }
    fc.assert(
      fc.property(damaged(documents, fragments), ({ bytes }) => {
        seen[readAll(bytes.toString('utf8'))]++
      }),
      { numRuns: runs },
    )
    for (const count of Object.values(seen)) expect(count).toBeGreaterThan(0)
  })

  it('take any text', () => {
    const soup = fc.array(fc.oneof(fc.constantFrom(...fragments, '<a', 'a', ' '), fc.string({ maxLength: 4 })))
    const any = fc.oneof(
      soup.map((parts) => parts.join('')),
      fc.string({ unit: 'binary' }),
    )
    fc.assert(
      fc.property(any, (text) => {
        readAll(text)
      }),
      { numRuns: runs },
    )
  })

  it('never hand out what JavaScript gives every object', () => {
    const names = ['__proto__', 'constructor', 'hasOwnProperty', 'toString', 'prototype']
    for (const name of names) {
      const root = parseXml(`<domain ${name}="x"><${name}>x</${name}></domain>`)?.child('domain')
      expect(root?.child('valueOf')).toBeUndefined()
      expect(root?.attribute('valueOf')).toBeUndefined()
    }
    expect(Reflect.get({}, 'x')).toBeUndefined()
  })

  const tenfold = Array.from('bcdefghij', (name, i) => `<!ENTITY ${name} "${`&${'abcdefghi'.charAt(i)};`.repeat(10)}">`)
  it.each([
    ['100 000 levels', '<a>'.repeat(100_000) + '</a>'.repeat(100_000)],
    ['1 000 levels', `<domain>${'<devices>'.repeat(1000)}${'</devices>'.repeat(1000)}</domain>`],
    ['entities of entities', `<!DOCTYPE l [<!ENTITY a "aaaaaaaaaa">${tenfold.join('')}]><l>&j;</l>`],
    ['one entity over and over', `<!DOCTYPE l [<!ENTITY a "${'a'.repeat(50_000)}">]><l>${'&a;'.repeat(5000)}</l>`],
    [
      'a file as an entity',
      '<!DOCTYPE l [<!ENTITY a SYSTEM "file:///etc/passwd">]><instance><uid>&a;</uid></instance>',
    ],
    ['tags that never end', '<a '.repeat(50_000)],
    ['a quote that never ends', `<a b="${'x'.repeat(1_000_000)}`],
    ['only angles', '<'.repeat(100_000)],
    ['only ampersands', `<a>${'&'.repeat(100_000)}</a>`],
  ])('do not grow or crash with %s', (_what, text) => {
    readAll(text)
    expect(parseXml(text)?.child('l')?.text?.length ?? 0).toBeLessThan(1_000_000)
    expect(JSON.stringify(readMark(text))).not.toContain('root:')
  })
})

describe('documents of ours', () => {
  const text = fc.string({
    unit: fc.oneof(fc.constantFrom('<', '&', '"', "'", ']', '>', 'ä', '𝄞'), fc.constantFrom('a', 'b')),
  })

  it('carry any mark and any path there and back', () => {
    const value = text.filter((each) => each.trim() === each && each !== '')
    const anyMark = fc.record({ uid: value, installation: value, namespace: value, name: value, specHash: value })
    fc.assert(
      fc.property(anyMark, value, (written, path) => {
        expect(readMark(markXml(written))).toEqual({ kind: 'marked', mark: written })
        const volume = { name: 'a', capacityBytes: 1, backingPath: path, backingFormat: 'raw' } as const
        expect(backingPath(overlayVolumeXml(volume))).toBe(path)
        expect(
          parseXml(buildXml({ a: { '@b': path } }))
            ?.child('a')
            ?.attribute('b'),
        ).toBe(path)
      }),
      { numRuns: 500 },
    )
  })
})

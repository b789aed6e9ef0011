// known_hosts: which lines speak of a host, what they say about its key, and that no input breaks the parser.
import { createHmac, randomBytes } from 'node:crypto'
import fc from 'fast-check'
import { beforeAll, describe, expect, it } from 'vitest'
import { matchesGlob } from '../../../../src/wire/ssh/host-pattern.ts'
import { KnownHosts } from '../../../../src/wire/ssh/known-hosts.ts'
import { generateTestKey, type TestKeyPair } from '../../../support/ssh/keys.ts'
import { quoted } from '../../../support/ssh/quotes.ts'

let ed: TestKeyPair
let other: TestKeyPair
let ecdsa: TestKeyPair
let rsa: TestKeyPair

beforeAll(() => {
  ed = generateTestKey()
  other = generateTestKey()
  ecdsa = generateTestKey('ecdsa')
  rsa = generateTestKey('rsa')
})

function hashed(name: string): string {
  const salt = randomBytes(20)
  return `|1|${salt.toString('base64')}|${createHmac('sha1', salt).update(name).digest('base64')}`
}

function kindOf(text: string, host: string, port: number, key: Buffer): string {
  return KnownHosts.parse(text).host(host, port).check(key).kind
}

describe('which lines speak of a host', () => {
  it('takes the plain name for port 22 and [name]:port for others', () => {
    const text = `a.example ${ed.publicKey}\n[b.example]:2222 ${ed.publicKey}\n[c.example]:22 ${ed.publicKey}\n`
    expect(kindOf(text, 'a.example', 22, ed.publicBlob)).toBe('trusted')
    expect(kindOf(text, 'b.example', 2222, ed.publicBlob)).toBe('trusted')
    expect(kindOf(text, 'b.example', 22, ed.publicBlob)).toBe('unknown')
    expect(kindOf(text, 'b.example', 2223, ed.publicBlob)).toBe('unknown')
    expect(kindOf(text, 'c.example', 22, ed.publicBlob)).toBe('trusted')
  })

  it('takes a line without a port for any port, unless a line names the port', () => {
    const portless = `a.example ${ed.publicKey}\n`
    expect(kindOf(portless, 'a.example', 2222, ed.publicBlob)).toBe('trusted')
    expect(kindOf(`${portless}[a.example]:2222 ${other.publicKey}\n`, 'a.example', 2222, ed.publicBlob)).toBe('changed')
  })

  it('reads hashed names, with and without a port', () => {
    const text = `${hashed('a.example')} ${ed.publicKey}\n${hashed('[b.example]:2222')} ${ed.publicKey}\n`
    expect(kindOf(text, 'a.example', 22, ed.publicBlob)).toBe('trusted')
    expect(kindOf(text, 'b.example', 2222, ed.publicBlob)).toBe('trusted')
    expect(kindOf(text, 'c.example', 22, ed.publicBlob)).toBe('unknown')
    expect(kindOf(text, 'a.example', 22, other.publicBlob)).toBe('changed')
  })

  it('ignores the case of names, hashed ones included', () => {
    const text = `A.Example ${ed.publicKey}\n${hashed('b.example')} ${ed.publicKey}\n`
    expect(kindOf(text, 'a.eXample', 22, ed.publicBlob)).toBe('trusted')
    expect(kindOf(text, 'B.EXAMPLE', 22, ed.publicBlob)).toBe('trusted')
  })

  it('knows wildcards, lists and negation in any place of the list', () => {
    const text = `*.lab.example,10.0.0.?,!bad.lab.example ${ed.publicKey}\n`
    expect(kindOf(text, 'h1.lab.example', 22, ed.publicBlob)).toBe('trusted')
    expect(kindOf(text, '10.0.0.7', 22, ed.publicBlob)).toBe('trusted')
    expect(kindOf(text, '10.0.0.77', 22, ed.publicBlob)).toBe('unknown')
    expect(kindOf(text, 'bad.lab.example', 22, ed.publicBlob)).toBe('unknown')
  })

  it('knows IPv6 addresses', () => {
    const text = `fd00::1 ${ed.publicKey}\n[fd00::2]:2222 ${ed.publicKey}\n`
    expect(kindOf(text, 'fd00::1', 22, ed.publicBlob)).toBe('trusted')
    expect(kindOf(text, 'fd00::2', 2222, ed.publicBlob)).toBe('trusted')
    expect(kindOf(text, 'fd00::2', 22, ed.publicBlob)).toBe('unknown')
  })
})

describe('what they say about the key', () => {
  it('names the lines of other keys when the key changed', () => {
    const text = `# comment\na ${other.publicKey}\na ${rsa.publicKey}\n`
    expect(KnownHosts.parse(text).host('a', 22).check(ed.publicBlob)).toEqual({ kind: 'changed', lines: [2, 3] })
  })

  it('lets a revoked key win over a trusted one, wherever it stands and whatever the port', () => {
    expect(kindOf(`a ${ed.publicKey}\n@revoked * ${ed.publicKey}\n`, 'a', 22, ed.publicBlob)).toBe('revoked')
    expect(kindOf(`@revoked a ${ed.publicKey}\n[a]:22 ${ed.publicKey}`, 'a', 22, ed.publicBlob)).toBe('revoked')
    expect(kindOf(`@revoked a ${ed.publicKey}\n[a]:99 ${ed.publicKey}`, 'a', 99, ed.publicBlob)).toBe('revoked')
    expect(kindOf(`a ${ed.publicKey}\n@revoked * ${other.publicKey}\n`, 'a', 22, ed.publicBlob)).toBe('trusted')
  })

  it('passes over certificate authorities, and says when there is nothing else', () => {
    const authority = `@cert-authority *.example ${other.publicKey}\n`
    expect(kindOf(`${authority}a.example ${ed.publicKey}\n`, 'a.example', 22, ed.publicBlob)).toBe('trusted')
    expect(KnownHosts.parse(authority).host('a.example', 22).check(other.publicBlob)).toEqual({
      kind: 'unknown',
      authorityLine: 1,
    })
  })

  it('lists the known key types, most wanted first', () => {
    const text = `a ${rsa.publicKey}\na ${ecdsa.publicKey}\na ${ed.publicKey}\nb ${rsa.publicKey}\n`
    const hosts = KnownHosts.parse(text)
    expect(hosts.host('a', 22).keyTypes).toEqual(['ssh-ed25519', 'ecdsa-sha2-nistp256', 'ssh-rsa'])
    expect(hosts.host('b', 22).keyTypes).toEqual(['ssh-rsa'])
    expect(hosts.host('c', 22).keyTypes).toEqual([])
  })
})

describe('the file', () => {
  it('may have Windows line ends, a byte order mark, tabs, comments, empty lines and no last newline', () => {
    const text = `\uFEFF# head\r\n\r\n  a\t${ed.publicKey.replace(' ', '\t')} me@laptop\r\nb ${ed.publicKey}`
    const hosts = KnownHosts.parse(text)
    expect(hosts.badLines).toEqual([])
    expect(hosts.host('a', 22).check(ed.publicBlob)).toEqual({ kind: 'trusted', line: 3 })
    expect(hosts.host('b', 22).check(ed.publicBlob)).toEqual({ kind: 'trusted', line: 4 })
  })

  it('keeps the good lines beside bad ones, and reports those without their content', () => {
    const [type = '', encoded = ''] = ed.publicKey.split(' ')
    const bad = [
      'onlyhost',
      `|1|c2hvcnQ=|c2hvcnQ= ${ed.publicKey}`,
      `a 1024 65537 1234567890`,
      `a ssh-rsa ${encoded}`,
      `a ${type} not*base64`,
      `@bogus a ${ed.publicKey}`,
      `a,! ${ed.publicKey}`,
      `a Typ* ${encoded}`,
    ]
    const hosts = KnownHosts.parse([...bad, `good ${ed.publicKey}`].join('\n'))
    expect(hosts.badLines.map(({ line }) => line)).toEqual([1, 2, 3, 4, 5, 6, 7, 8])
    expect(hosts.size).toBe(1)
    expect(hosts.host('good', 22).check(ed.publicBlob).kind).toBe('trusted')
    const problems = hosts.badLines.map(({ problem }) => problem).join('\n')
    for (const line of bad) {
      for (const word of line.split(/\s+/).filter((part) => part.length > 5)) expect(problems).not.toContain(word)
    }
  })

  it('survives any text, and never trusts a key that is not in it', () => {
    const piece = fc.oneof(
      fc.string({ unit: 'binary', maxLength: 40 }),
      fc.constantFrom('@revoked', '@cert-authority', '|1|', '*', '!', ',', ' ', '\n', '\r\n', '#', '[a]:22', 'a', '\0'),
      fc.constantFrom('ssh-ed25519', 'ssh-rsa', 'AAAAC3NzaC1lZDI1NTE5', 'AAAA'),
    )
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 40 }), fc.domain(), (pieces, host) => {
        const hosts = KnownHosts.parse(pieces.join(''))
        expect(['unknown', 'changed']).toContain(hosts.host(host, 22).check(ed.publicBlob).kind)
      }),
      { numRuns: 2000 },
    )
  })

  it('that was damaged trusts no key that was not in it, and quotes nothing', () => {
    const whole = [
      `${hashed('a.example')} ${ed.publicKey} comment`,
      `[a.example]:2222,*.lab.example,!b.lab.example ${rsa.publicKey}`,
      `@revoked * ${ecdsa.publicKey}`,
      `@cert-authority *.example ${ecdsa.publicKey}`,
      '# comment',
      `10.0.0.? ${ed.publicKey}`,
    ].join('\n')
    const wound = fc.tuple(fc.nat(), fc.nat(30), fc.string({ unit: 'binary', maxLength: 20 }))
    const port = fc.constantFrom(22, 2222)
    fc.assert(
      fc.property(fc.array(wound, { minLength: 1, maxLength: 4 }), fc.domain(), port, (wounds, host, askedPort) => {
        let text = whole
        for (const [at, cut, insert] of wounds) {
          const start = at % (text.length + 1)
          text = text.slice(0, start) + insert + text.slice(start + cut)
        }
        const hosts = KnownHosts.parse(text)
        for (const name of [host, 'a.example', 'b.lab.example', '10.0.0.1']) {
          expect(['unknown', 'changed']).toContain(hosts.host(name, askedPort).check(other.publicBlob).kind)
        }
        for (const { problem } of hosts.badLines) expect(quoted(problem, text)).toBeUndefined()
      }),
      { numRuns: 1500 },
    )
  })

  it('as large as it may be is read and asked quickly', () => {
    const size = 1024 * 1024
    const times = (piece: string) => piece.repeat(Math.floor(size / piece.length))
    const hostile = [
      times('\n'),
      times(' \t'),
      `${times(' ')}x`,
      times('@revoked '),
      times('|1|'),
      times(`* ${ed.publicKey}\n`),
      times(`${'*a,'.repeat(5000)}b ${ed.publicKey}\n`),
      times(`${hashed('a.example')} ${ed.publicKey}\n`),
      `a ssh-ed25519 ${times('A')}`,
      `${times('[')} ${ed.publicKey}`,
      times('\r'),
    ]
    const began = performance.now()
    for (const text of hostile) {
      const host = KnownHosts.parse(text).host('a'.repeat(200), 2222)
      expect(host.check(other.publicBlob).kind).not.toBe('trusted')
    }
    // A quadratic step takes minutes.
    expect(performance.now() - began).toBeLessThan(30_000)
  })

  it('finds a line among any others exactly when the name is that line’s', () => {
    fc.assert(
      fc.property(
        fc.domain(),
        fc.domain(),
        fc.boolean(),
        fc.integer({ min: 1, max: 65_535 }),
        (mine, asked, hash, port) => {
          const name = port === 22 ? mine : `[${mine}]:${port}`
          const text = `# x\n${hash ? hashed(name.toLowerCase()) : name} ${ed.publicKey}\n`
          expect(kindOf(text, mine, port, ed.publicBlob)).toBe('trusted')
          expect(kindOf(text, asked, port, ed.publicBlob)).toBe(
            asked.toLowerCase() === mine.toLowerCase() ? 'trusted' : 'unknown',
          )
        },
      ),
      { numRuns: 200 },
    )
  })
})

describe('matchesGlob', () => {
  it('agrees with a regular expression', () => {
    const text = fc.string({ unit: fc.constantFrom('a', 'b', '.'), maxLength: 8 })
    const glob = fc.string({ unit: fc.constantFrom('a', 'b', '.', '*', '?'), maxLength: 6 })
    fc.assert(
      fc.property(text, glob, (name, pattern) => {
        const source = pattern.replaceAll('.', '\\.').replaceAll('*', '.*').replaceAll('?', '.')
        expect(matchesGlob(name, pattern)).toBe(new RegExp(`^${source}$`).test(name))
      }),
      { numRuns: 1000 },
    )
  })

  it('is quick on the pattern that ruins naive matchers', () => {
    expect(matchesGlob('a'.repeat(20_000), `${'*a'.repeat(20)}*b`)).toBe(false)
  })
})

// Private key texts: every common form and every blemish is read, and no text does more harm than a PrivateKeyError.
import { createPrivateKey, generateKeyPairSync, type KeyObject } from 'node:crypto'
import { inspect } from 'node:util'
import fc from 'fast-check'
import ssh2 from 'ssh2'
import { describe, expect, it } from 'vitest'
import { loginsWith } from '../../../../src/wire/ssh/login.ts'
import { parsePrivateKey, PrivateKeyError } from '../../../../src/wire/ssh/private-key.ts'
import { blemishes, generateTestKey } from '../../../support/ssh/keys.ts'
import { quoted } from '../../../support/ssh/quotes.ts'

const pkcs8 = { format: 'pem', type: 'pkcs8' } as const

function pem(key: KeyObject, type: 'pkcs1' | 'pkcs8' | 'sec1'): string {
  return key.export({ format: 'pem', type }).toString()
}

const rsa = generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey
const ed25519 = generateKeyPairSync('ed25519')
const ec = (namedCurve: string) => generateKeyPairSync('ec', { namedCurve }).privateKey
const parameters = '-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n'

const texts: [string, string, string][] = [
  ['ed25519 OpenSSH', 'ssh-ed25519', ssh2.utils.generateKeyPairSync('ed25519').private],
  ['RSA OpenSSH', 'ssh-rsa', ssh2.utils.generateKeyPairSync('rsa', { bits: 2048 }).private],
  ['ECDSA 256 OpenSSH', 'ecdsa-sha2-nistp256', ssh2.utils.generateKeyPairSync('ecdsa', { bits: 256 }).private],
  ['ECDSA 384 OpenSSH', 'ecdsa-sha2-nistp384', ssh2.utils.generateKeyPairSync('ecdsa', { bits: 384 }).private],
  ['ECDSA 521 OpenSSH', 'ecdsa-sha2-nistp521', ssh2.utils.generateKeyPairSync('ecdsa', { bits: 521 }).private],
  ['RSA PKCS#1', 'ssh-rsa', pem(rsa, 'pkcs1')],
  ['RSA PKCS#8', 'ssh-rsa', pem(rsa, 'pkcs8')],
  ['ECDSA 256 SEC1', 'ecdsa-sha2-nistp256', pem(ec('prime256v1'), 'sec1')],
  ['ECDSA 384 SEC1', 'ecdsa-sha2-nistp384', pem(ec('secp384r1'), 'sec1')],
  ['ECDSA 521 SEC1', 'ecdsa-sha2-nistp521', pem(ec('secp521r1'), 'sec1')],
  ['ECDSA 256 PKCS#8', 'ecdsa-sha2-nistp256', pem(ec('prime256v1'), 'pkcs8')],
  ['ECDSA 384 PKCS#8', 'ecdsa-sha2-nistp384', pem(ec('secp384r1'), 'pkcs8')],
  ['ECDSA 521 PKCS#8', 'ecdsa-sha2-nistp521', pem(ec('secp521r1'), 'pkcs8')],
  ['ed25519 PKCS#8', 'ssh-ed25519', pem(ed25519.privateKey, 'pkcs8')],
  [
    'ECDSA after its parameters, as openssl ecparam writes it',
    'ecdsa-sha2-nistp256',
    parameters + pem(ec('prime256v1'), 'sec1'),
  ],
]

describe('parsePrivateKey', () => {
  it.each(texts)('reads %s, whatever the editor or the clipboard did to it', (_name, type, text) => {
    const whole = parsePrivateKey(text)
    expect(whole.type).toBe(type)
    for (const [blemish, spoil] of blemishes) {
      const key = parsePrivateKey(spoil(text))
      expect(key.isPrivateKey(), blemish).toBe(true)
      expect(key.getPublicSSH(), blemish).toEqual(whole.getPublicSSH())
    }
  })

  it('keeps the public half of an ed25519 key that came as PKCS#8', () => {
    const blob = parsePrivateKey(pem(ed25519.privateKey, 'pkcs8')).getPublicSSH()
    expect(blob.subarray(-32)).toEqual(Buffer.from(ed25519.publicKey.export({ format: 'jwk' }).x ?? '', 'base64url'))
  })

  it('notices halves that do not belong together', () => {
    const blob = Buffer.from(generateTestKey().privateKey.replace(/-----.*-----/g, ''), 'base64')
    // The seed is the last 64 bytes before the (short) comment and padding, its public copy after it.
    const at = blob.lastIndexOf(Buffer.from([0, 0, 0, 64])) + 4
    blob.writeUInt8(blob.readUInt8(at) ^ 1, at)
    const broken = `-----BEGIN OPENSSH PRIVATE KEY-----\n${blob.toString('base64')}\n-----END OPENSSH PRIVATE KEY-----\n`
    expect(() => parsePrivateKey(broken)).toThrow(PrivateKeyError)
  })

  it('notices a scalar longer than its curve, which OpenSSL reads and cannot write', () => {
    const der = ec('prime256v1').export({ format: 'der', type: 'pkcs8' })
    // The length of the scalar's octets, and the first of them.
    expect(der.readUInt8(35)).toBe(32)
    der.writeUInt8(102, 35)
    der.writeUInt8(0, 36)
    const broken = `-----BEGIN PRIVATE KEY-----\n${der.toString('base64')}\n-----END PRIVATE KEY-----\n`
    expect(() => parsePrivateKey(broken)).toThrow(PrivateKeyError)
  })
})

describe('an RSA key', () => {
  it('logs in with SHA-2 only, whatever hash is asked for', () => {
    const key = parsePrivateKey(pem(rsa, 'pkcs1'))
    const sample = Buffer.from('sample')
    const offered = loginsWith('operator', key).map(({ key: login }) => {
      if (typeof login === 'string' || Buffer.isBuffer(login)) throw new Error('not a parsed key')
      const signature = login.sign(sample, 'sha1')
      return [login.type, ...['sha1', 'sha256', 'sha512'].filter((hash) => key.verify(sample, signature, hash))]
    })
    expect(offered).toEqual([
      ['rsa-sha2-512', 'sha512'],
      ['rsa-sha2-256', 'sha256'],
    ])
    expect(key.type).toBe('ssh-rsa')
  })

  it.each([512, 1023])('of %i bits is refused: no sshd takes it', (modulusLength) => {
    const short = generateKeyPairSync('rsa', { modulusLength }).privateKey
    expect(() => parsePrivateKey(pem(short, 'pkcs1'))).toThrow(`is an RSA key of ${modulusLength} bits`)
  })

  it('of 16,385 bits and more is refused before anything is computed with it', () => {
    const number = (bits: number) => Buffer.alloc(bits / 8, 0xff).toString('base64url')
    const [n, half, e] = [number(48_000), number(24_000), 'AQAB']
    const huge = createPrivateKey({
      key: { kty: 'RSA', n, e, d: n, p: half, q: half, dp: half, dq: half, qi: half },
      format: 'jwk',
    })
    const began = performance.now()
    expect(() => parsePrivateKey(pem(huge, 'pkcs1'))).toThrow('is an RSA key of 48000 bits')
    expect(performance.now() - began).toBeLessThan(10_000)
  })
})

describe('arbitrary text', () => {
  const surely = (text: string) => {
    try {
      expect(parsePrivateKey(text).isPrivateKey()).toBe(true)
    } catch (error) {
      if (!(error instanceof PrivateKeyError)) throw error
      expect(error.message).toMatch(/^(?:is|holds) /)
      expect(error.remedy('FILE')).not.toBe('')
      expect(quoted(`${error.message} ${error.remedy('FILE')} ${inspect(error.cause)}`, text)).toBeUndefined()
    }
  }

  it('would be caught if it were quoted', () => {
    const { privateKey } = generateTestKey()
    const line = privateKey.split('\n')[2] ?? ''
    expect(quoted(`is malformed near ${line.slice(20, 28)}`, privateKey)).toBe(line.slice(20, 28))
  })

  it('that was a key once is a key or a PrivateKeyError', () => {
    fc.assert(
      fc.property(
        fc.constantFrom(...texts.map(([, , text]) => text)),
        fc.array(fc.tuple(fc.nat(), fc.nat(20), fc.string({ maxLength: 20 })), { minLength: 1, maxLength: 3 }),
        (text, wounds) => {
          let damaged = text
          for (const [at, cut, insert] of wounds) {
            const start = at % (damaged.length + 1)
            damaged = damaged.slice(0, start) + insert + damaged.slice(start + cut)
          }
          surely(damaged)
        },
      ),
      { numRuns: 1500 },
    )
  })

  it('whose decoded bytes were changed is a key or a PrivateKeyError', () => {
    fc.assert(
      fc.property(
        fc.constantFrom(...texts.map(([, , text]) => text)),
        fc.array(fc.tuple(fc.nat(), fc.nat(255)), { minLength: 1, maxLength: 4 }),
        fc.nat(),
        (text, changes, length) => {
          const [head = '', foot = ''] = text.match(/-----(?:BEGIN|END) (?:[A-Z0-9]+ )*PRIVATE KEY-----/g) ?? []
          const body = text.slice(text.indexOf(head) + head.length, text.indexOf(foot))
          let blob = Buffer.from(body, 'base64')
          for (const [at, value] of changes) blob.writeUInt8(value, at % blob.length)
          if (length % 4 === 0) blob = blob.subarray(0, length % blob.length)
          surely(`${head}\n${blob.toString('base64')}\n${foot}\n`)
        },
      ),
      { numRuns: 1500 },
    )
  })

  it('between the markers of a key is a PrivateKeyError', () => {
    const label = fc.constantFrom('', 'OPENSSH ', 'RSA ', 'EC ', 'DSA ', 'ENCRYPTED ', 'ANY ')
    fc.assert(
      fc.property(label, fc.string({ unit: 'binary', maxLength: 300 }), (name, body) => {
        const text = `-----BEGIN ${name}PRIVATE KEY-----\n${body}\n-----END ${name}PRIVATE KEY-----`
        expect(() => parsePrivateKey(text)).toThrow(PrivateKeyError)
        surely(text)
      }),
      { numRuns: 1000 },
    )
  })

  it('as large as a key file may be is judged quickly', () => {
    const size = 64 * 1024
    const hostile = [
      ' '.repeat(size) + 'x',
      '\t '.repeat(size / 2) + '.',
      '-----BEGIN RSA PRIVATE KEY-----\n'.repeat(size / 32),
      '-----BEGIN ' + 'A '.repeat(size / 2),
      'ssh-' + 'a'.repeat(size),
      'a '.repeat(size / 2),
      'Proc-Type:' + ' '.repeat(size),
      '-----BEGIN OPENSSH PRIVATE KEY-----\n' + 'A'.repeat(size) + '\n-----END OPENSSH PRIVATE KEY-----\n',
      '-----BEGIN PRIVATE KEY-----\n' + 'MIIB'.repeat(size / 4) + '\n-----END PRIVATE KEY-----\n',
    ]
    const began = performance.now()
    for (const text of hostile) expect(() => parsePrivateKey(text)).toThrow(PrivateKeyError)
    // A quadratic step takes seconds for each.
    expect(performance.now() - began).toBeLessThan(10_000)
  })

  it('with a key that needs no passphrase is never taken for an encrypted one', () => {
    const plain = generateKeyPairSync('rsa', {
      modulusLength: 1024,
      privateKeyEncoding: pkcs8,
      publicKeyEncoding: { format: 'pem', type: 'spki' },
    }).privateKey
    expect(parsePrivateKey(`Proc-Type: 4,ENCRYPTED is not in this one\n${plain}`).type).toBe('ssh-rsa')
  })
})

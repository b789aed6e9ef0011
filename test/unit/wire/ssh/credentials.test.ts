// Credential files: every common key form works, every common mistake is named with its way out, no key byte is shown.
import { execFileSync } from 'node:child_process'
import { generateKeyPairSync } from 'node:crypto'
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { inspect } from 'node:util'
import fc from 'fast-check'
import ssh2 from 'ssh2'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { loadCredentials } from '../../../../src/wire/ssh/credentials.ts'
import { SshError } from '../../../../src/wire/ssh/errors.ts'
import { parsePrivateKey, PrivateKeyError } from '../../../../src/wire/ssh/private-key.ts'
import { generateTestKey } from '../../../support/ssh/keys.ts'

let folder: string

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'ssh-credentials-'))
})
afterEach(async () => {
  await rm(folder, { recursive: true })
})

async function keyFile(text: string): Promise<string> {
  const file = join(folder, 'id_test')
  await writeFile(file, text)
  return file
}

async function failure(files: { keyFile: string; knownHostsFile?: string }): Promise<SshError> {
  const result = await loadCredentials({ insecureIgnoreHostKey: files.knownHostsFile === undefined, ...files }).catch(
    (error: unknown) => error,
  )
  expect(result).toBeInstanceOf(SshError)
  return result as SshError
}

const pkcs8 = { format: 'pem', type: 'pkcs8' } as const
const spki = { format: 'pem', type: 'spki' } as const

describe('private keys', () => {
  const ec = (namedCurve: string, type: 'sec1' | 'pkcs8') =>
    generateKeyPairSync('ec', { namedCurve, privateKeyEncoding: { format: 'pem', type }, publicKeyEncoding: spki })
  const rsa = (type: 'pkcs1' | 'pkcs8') =>
    generateKeyPairSync('rsa', {
      modulusLength: 2048,
      privateKeyEncoding: { format: 'pem', type },
      publicKeyEncoding: spki,
    })

  it.each([
    ['ed25519 OpenSSH', 'ssh-ed25519', () => generateTestKey().privateKey],
    ['RSA OpenSSH', 'ssh-rsa', () => ssh2.utils.generateKeyPairSync('rsa', { bits: 2048 }).private],
    ['ECDSA 256 OpenSSH', 'ecdsa-sha2-nistp256', () => ssh2.utils.generateKeyPairSync('ecdsa', { bits: 256 }).private],
    ['ECDSA 384 OpenSSH', 'ecdsa-sha2-nistp384', () => ssh2.utils.generateKeyPairSync('ecdsa', { bits: 384 }).private],
    ['ECDSA 521 OpenSSH', 'ecdsa-sha2-nistp521', () => ssh2.utils.generateKeyPairSync('ecdsa', { bits: 521 }).private],
    ['RSA PKCS#1', 'ssh-rsa', () => rsa('pkcs1').privateKey],
    ['RSA PKCS#8', 'ssh-rsa', () => rsa('pkcs8').privateKey],
    ['ECDSA SEC1', 'ecdsa-sha2-nistp256', () => ec('prime256v1', 'sec1').privateKey],
    ['ECDSA PKCS#8', 'ecdsa-sha2-nistp384', () => ec('secp384r1', 'pkcs8').privateKey],
    [
      'ed25519 PKCS#8',
      'ssh-ed25519',
      () => generateKeyPairSync('ed25519', { privateKeyEncoding: pkcs8, publicKeyEncoding: spki }).privateKey,
    ],
    [
      'ECDSA after its parameters, as openssl ecparam writes it',
      'ecdsa-sha2-nistp256',
      () =>
        `-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n${ec('prime256v1', 'sec1').privateKey}`,
    ],
  ])('reads %s, also with Windows line ends, a byte order mark and no last newline', (_name, type, make) => {
    const text = make()
    const variants = [
      text,
      text.replaceAll('\n', '\r\n'),
      text.trimEnd(),
      `\uFEFF${text}`,
      `\n\n  ${text.trim()}  \n\n`,
    ]
    for (const variant of variants) {
      const key = parsePrivateKey(variant)
      expect(key.type).toBe(type)
      expect(key.isPrivateKey()).toBe(true)
    }
  })

  it('keeps the public half of an ed25519 key that came as PKCS#8', () => {
    const pair = generateKeyPairSync('ed25519')
    const blob = parsePrivateKey(pair.privateKey.export(pkcs8).toString()).getPublicSSH()
    expect(blob.subarray(-32)).toEqual(Buffer.from(pair.publicKey.export({ format: 'jwk' }).x ?? '', 'base64url'))
  })

  it.each([
    ['is empty', () => ' \n', 'ssh-keygen -t ed25519'],
    ['holds a public key', () => `${generateTestKey().publicKey} me@laptop\n`, 'without .pub'],
    ['holds a public key', () => rsa('pkcs8').publicKey, 'without .pub'],
    ['holds no private key', () => 'hello\n', 'ssh-keygen -t ed25519'],
    ['is a PuTTY key', () => 'PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\n', 'puttygen'],
    [
      'is encrypted',
      () => ssh2.utils.generateKeyPairSync('ed25519', { passphrase: 'x', cipher: 'aes256-ctr', rounds: 16 }).private,
      'ssh-keygen -p',
    ],
    [
      'is encrypted',
      () =>
        generateKeyPairSync('rsa', {
          modulusLength: 2048,
          privateKeyEncoding: { ...pkcs8, cipher: 'aes-256-cbc', passphrase: 'x' },
          publicKeyEncoding: spki,
        }).privateKey,
      'openssl pkey -in',
    ],
    [
      'is encrypted',
      () =>
        generateKeyPairSync('rsa', {
          modulusLength: 2048,
          privateKeyEncoding: { format: 'pem', type: 'pkcs1', cipher: 'aes-256-cbc', passphrase: 'x' },
          publicKeyEncoding: spki,
        }).privateKey,
      'openssl pkey -in',
    ],
    [
      'is of a type that is not supported',
      () => generateKeyPairSync('ed448', { privateKeyEncoding: pkcs8, publicKeyEncoding: spki }).privateKey,
      'ed25519',
    ],
    ['is malformed', () => rsa('pkcs1').privateKey.replace(/\n.{64}\n/, '\n'), 'copy it again'],
    ['is malformed', () => generateTestKey().privateKey.replace(/\n(.{20})[^\n]+\n/, '\n$1\n'), 'copy it again'],
    ['is of a type that is not supported', () => ec('secp256k1', 'pkcs8').privateKey, 'ed25519'],
  ])('says that a file %s, and what to do', async (problem, make, remedy) => {
    const text = make()
    const error = await failure({ keyFile: await keyFile(text) })
    expect(error.code).toBe('CREDENTIALS_INVALID')
    expect(error.stage).toBe('credentials')
    expect(error.message).toContain(join(folder, 'id_test'))
    expect(error.message).toContain(problem)
    expect(error.message).toContain(remedy)
    expectNoKeyBytes(error, text)
  })

  it('notices halves that do not belong together', () => {
    const text = generateTestKey().privateKey
    const blob = Buffer.from(text.replace(/-----.*-----/g, ''), 'base64')
    // The seed is the last 64 bytes before the (short) comment and padding, its public copy after it.
    const at = blob.lastIndexOf(Buffer.from([0, 0, 0, 64])) + 4
    blob.writeUInt8(blob.readUInt8(at) ^ 1, at)
    const broken = `-----BEGIN OPENSSH PRIVATE KEY-----\n${blob.toString('base64')}\n-----END OPENSSH PRIVATE KEY-----\n`
    expect(() => parsePrivateKey(broken)).toThrow(PrivateKeyError)
  })

  it('reads what ssh-keygen and openssl write, where they are installed', () => {
    let made = 0
    for (const args of [
      ['-t', 'ed25519'],
      ['-t', 'rsa', '-b', '2048'],
      ['-t', 'rsa', '-b', '2048', '-m', 'PEM'],
      ['-t', 'rsa', '-b', '2048', '-m', 'PKCS8'],
      ['-t', 'ecdsa', '-b', '384'],
      ['-t', 'ecdsa', '-m', 'PEM'],
    ]) {
      const file = join(folder, `key${made}`)
      try {
        execFileSync('ssh-keygen', [...args, '-q', '-N', '', '-f', file])
      } catch (error) {
        if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return
        throw error
      }
      made++
      expect(parsePrivateKey(execFileSync('cat', [file], { encoding: 'utf8' })).isPrivateKey()).toBe(true)
    }
    expect(made).toBe(6)
  })

  it('survives any damage: either a working key or a PrivateKeyError', () => {
    const texts = [generateTestKey().privateKey, ec('prime256v1', 'sec1').privateKey, rsa('pkcs8').privateKey]
    fc.assert(
      fc.property(
        fc.constantFrom(...texts),
        fc.nat(),
        fc.nat(20),
        fc.string({ maxLength: 20 }),
        (text, at, cut, insert) => {
          const start = at % text.length
          const damaged = text.slice(0, start) + insert + text.slice(start + cut)
          try {
            expect(parsePrivateKey(damaged).isPrivateKey()).toBe(true)
          } catch (error) {
            if (!(error instanceof PrivateKeyError)) throw error
          }
        },
      ),
      { numRuns: 300 },
    )
    fc.assert(
      fc.property(fc.string({ unit: 'binary', maxLength: 200 }), (text) => {
        expect(() =>
          parsePrivateKey(`-----BEGIN OPENSSH PRIVATE KEY-----\n${text}\n-----END OPENSSH PRIVATE KEY-----`),
        ).toThrow(PrivateKeyError)
      }),
      { numRuns: 200 },
    )
  })
})

describe('files', () => {
  it('are missing, not invalid, while the Secret has not been mounted', async () => {
    const missing = join(folder, 'nowhere', 'id_ed25519')
    const error = await failure({ keyFile: missing })
    expect(error.code).toBe('CREDENTIALS_MISSING')
    expect(error.message).toContain(missing)
    const key = await keyFile(generateTestKey().privateKey)
    const noHosts = await failure({ keyFile: key, knownHostsFile: missing })
    expect(noHosts.code).toBe('CREDENTIALS_MISSING')
    expect(noHosts.message).toContain('known_hosts')
  })

  it('must be regular files of a sane size', async () => {
    await mkdir(join(folder, 'dir'))
    expect((await failure({ keyFile: join(folder, 'dir') })).code).toBe('CREDENTIALS_UNREADABLE')
    const device = await failure({ keyFile: '/dev/zero' })
    expect(device.message).toContain('/dev/zero is not a regular file')
    expect((await failure({ keyFile: await keyFile('x'.repeat(70_000)) })).message).toContain('larger than 64 KiB')
    const pipe = join(folder, 'pipe')
    execFileSync('mkfifo', [pipe])
    expect((await failure({ keyFile: pipe })).message).toContain('not a regular file')
  })

  it('need a known_hosts file unless host keys are ignored', async () => {
    const key = await keyFile(generateTestKey().privateKey)
    const result = await loadCredentials({ keyFile: key, insecureIgnoreHostKey: false }).catch(
      (error: unknown) => error,
    )
    expect(result).toBeInstanceOf(SshError)
    const loose = await loadCredentials({ keyFile: key, insecureIgnoreHostKey: true })
    expect(loose.trust.kind).toBe('anyKey')
  })

  it('refuses a known_hosts file without one usable line, and takes an empty one', async () => {
    const key = await keyFile(generateTestKey().privateKey)
    const hosts = join(folder, 'known_hosts')
    await writeFile(hosts, 'garbage-secret-token\n')
    const error = await failure({ keyFile: key, knownHostsFile: hosts })
    expect(error.code).toBe('CREDENTIALS_INVALID')
    expect(error.message).toContain(hosts)
    expect(error.message).toContain('line 1')
    expect(error.message).not.toContain('garbage')
    await writeFile(hosts, '')
    const loaded = await loadCredentials({ keyFile: key, knownHostsFile: hosts, insecureIgnoreHostKey: false })
    expect(loaded.trust.kind).toBe('knownHosts')
  })

  it('are read again every time, and never print the key', async () => {
    const first = generateTestKey()
    const second = generateTestKey()
    const file = await keyFile(first.privateKey)
    const before = await loadCredentials({ keyFile: file, insecureIgnoreHostKey: true })
    await keyFile(second.privateKey)
    const after = await loadCredentials({ keyFile: file, insecureIgnoreHostKey: true })
    expect(before.key.reveal().getPublicSSH()).toEqual(first.publicBlob)
    expect(after.key.reveal().getPublicSSH()).toEqual(second.publicBlob)
    expect(inspect(after, { depth: 10, showHidden: true })).not.toContain('PRIVATE KEY')
    expect(JSON.stringify(after)).toContain('[redacted]')
  })
})

function expectNoKeyBytes(error: Error, text: string): void {
  const shown = inspect(error, { depth: 10 }) + (error.stack ?? '')
  for (const line of text.split('\n').filter((part) => /^[A-Za-z0-9+/=]{16,}$/.test(part))) {
    expect(shown).not.toContain(line.slice(0, 16))
  }
}

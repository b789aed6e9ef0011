// Credential files: every common mistake is named with its file and way out, no key byte is shown, nothing is cached.
import { execFileSync } from 'node:child_process'
import { generateKeyPairSync } from 'node:crypto'
import { chmod, mkdir, mkdtemp, rename, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { inspect } from 'node:util'
import fc from 'fast-check'
import ssh2 from 'ssh2'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { loadCredentials } from '../../../../src/wire/ssh/credentials.ts'
import { SshError } from '../../../../src/wire/ssh/errors.ts'
import { sshString, uint32 } from '../../../../src/wire/ssh/wire-form.ts'
import { asNobody } from '../../../support/as-nobody.ts'
import { generateTestKey, knownHostsLine } from '../../../support/ssh/keys.ts'
import { quoted } from '../../../support/ssh/quotes.ts'

let folder: string

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'ssh-credentials-'))
})
afterEach(async () => {
  await rm(folder, { recursive: true })
})

async function keyFile(content: string | Buffer): Promise<string> {
  const file = join(folder, 'id_test')
  await writeFile(file, content)
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
const pkcs1 = { format: 'pem', type: 'pkcs1' } as const
const spki = { format: 'pem', type: 'spki' } as const
const lock = { cipher: 'aes-256-cbc', passphrase: 'x' } as const
const modulusLength = 2048

/** An OpenSSH container of a type that lives on a security token, without a usable private half. */
function tokenKey(): string {
  const type = Buffer.from('sk-ssh-ed25519@openssh.com')
  const none = Buffer.from('none')
  const blob = Buffer.concat([
    Buffer.from('openssh-key-v1\0'),
    ...[sshString(none), sshString(none), sshString(), uint32(1)],
    ...[sshString(sshString(type), sshString(Buffer.alloc(32))), sshString(Buffer.alloc(64))],
  ])
  return `-----BEGIN OPENSSH PRIVATE KEY-----\n${blob.toString('base64')}\n-----END OPENSSH PRIVATE KEY-----\n`
}

const ed = generateTestKey()
const rsaPkcs1 = generateKeyPairSync('rsa', { modulusLength, privateKeyEncoding: pkcs1, publicKeyEncoding: spki })

describe('a wrong key file', () => {
  it.each<[string, string, string, string]>([
    ['nothing', 'is empty', '', 'ssh-keygen -t ed25519'],
    ['blanks', 'is empty', ' \r\n\t\n', 'ssh-keygen -t ed25519'],
    ['a .pub file', 'holds a public key', `${ed.publicKey} me@laptop\n`, 'without .pub'],
    ['a PEM public key', 'holds a public key', rsaPkcs1.publicKey, 'without .pub'],
    [
      'an exported public key',
      'holds a public key',
      '---- BEGIN SSH2 PUBLIC KEY ----\nAAAAC3NzaC1lZDI1NTE5\n---- END SSH2 PUBLIC KEY ----\n',
      'without .pub',
    ],
    [
      'an SSH certificate',
      'holds an SSH certificate',
      'ssh-ed25519-cert-v01@openssh.com AAAAIHNzaC1lZDI1NTE5LWNlcnQt me@laptop\n',
      'without -cert.pub',
    ],
    [
      'a TLS certificate',
      'holds a TLS certificate',
      '-----BEGIN CERTIFICATE-----\nMIIBszCCAVmgAwIBAgIU\n-----END CERTIFICATE-----\n',
      'ssh-keygen -t ed25519',
    ],
    [
      'a known_hosts file',
      'is a known_hosts or authorized_keys file',
      `# host:22 SSH-2.0-OpenSSH\n${knownHostsLine('h', 22, ed.publicKey)}\n`,
      'name the private key',
    ],
    ['anything else', 'holds no private key', 'hello\n', 'ssh-keygen -t ed25519'],
    ['binary', 'holds no private key', '\0\x01\x02', 'ssh-keygen -t ed25519'],
    ['a PuTTY key', 'is a PuTTY key', 'PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\n', 'puttygen'],
    [
      'a key of SSH.com',
      'is a key in the form of SSH.com',
      '---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\nAAAA\n---- END SSH2 ENCRYPTED PRIVATE KEY ----\n',
      'ssh-keygen -i -f',
    ],
    [
      'a key in base64 once more',
      'was encoded in base64 once more',
      Buffer.from(ed.privateKey).toString('base64'),
      'base64 -d',
    ],
    [
      'an encrypted OpenSSH key',
      'is encrypted',
      ssh2.utils.generateKeyPairSync('ed25519', { passphrase: 'x', cipher: 'aes256-ctr', rounds: 16 }).private,
      'ssh-keygen -p',
    ],
    [
      'an encrypted PKCS#8 key',
      'is encrypted',
      generateKeyPairSync('rsa', {
        modulusLength,
        privateKeyEncoding: { ...pkcs8, ...lock },
        publicKeyEncoding: spki,
      }).privateKey,
      'openssl pkey -in',
    ],
    [
      'an encrypted PKCS#1 key',
      'is encrypted',
      generateKeyPairSync('rsa', {
        modulusLength,
        privateKeyEncoding: { ...pkcs1, ...lock },
        publicKeyEncoding: spki,
      }).privateKey,
      'openssl pkey -in',
    ],
    [
      'an encrypted SEC1 key',
      'is encrypted',
      generateKeyPairSync('ec', {
        namedCurve: 'prime256v1',
        privateKeyEncoding: { format: 'pem', type: 'sec1', ...lock },
        publicKeyEncoding: spki,
      }).privateKey,
      'openssl pkey -in',
    ],
    [
      'an Ed448 key',
      'is of a type that is not supported',
      generateKeyPairSync('ed448').privateKey.export(pkcs8).toString(),
      'ed25519',
    ],
    [
      'an X25519 key',
      'is of a type that is not supported',
      generateKeyPairSync('x25519').privateKey.export(pkcs8).toString(),
      'ed25519',
    ],
    [
      'a DSA key',
      'is of a type that is not supported',
      generateKeyPairSync('dsa', { modulusLength: 1024, divisorLength: 160 }).privateKey.export(pkcs8).toString(),
      'ed25519',
    ],
    [
      'a key on another curve',
      'is of a type that is not supported',
      generateKeyPairSync('ec', { namedCurve: 'secp256k1', privateKeyEncoding: pkcs8, publicKeyEncoding: spki })
        .privateKey,
      'ed25519',
    ],
    ['a key on a security token', 'is of a type that is not supported', tokenKey(), 'ed25519'],
    ['a PKCS#1 key without a line', 'is malformed', rsaPkcs1.privateKey.replace(/\n.{64}\n/, '\n'), 'copy it again'],
    [
      'an OpenSSH key with a cut line',
      'is malformed',
      ed.privateKey.replace(/\n(.{20})[^\n]+\n/, '\n$1\n'),
      'copy it again',
    ],
    ['a key without its last line', 'is malformed', ed.privateKey.replace(/-----END.*/, ''), 'copy it again'],
    ['a key without its first line', 'is malformed', ed.privateKey.replace(/-----BEGIN.*\n/, ''), 'copy it again'],
    ['a key on one line', 'is malformed', ed.privateKey.replaceAll('\n', ' '), 'copy it again'],
    ['a key with written-out line ends', 'is malformed', ed.privateKey.replaceAll('\n', '\\n'), 'copy it again'],
  ])('of %s %s, and the message says what to do', async (_what, problem, text, remedy) => {
    const error = await failure({ keyFile: await keyFile(text) })
    expect(error.code).toBe('CREDENTIALS_INVALID')
    expect(error.stage).toBe('credentials')
    expect(error.message).toContain(join(folder, 'id_test'))
    expect(error.message).toContain(problem)
    expect(error.message).toContain(remedy)
    expectNoKeyBytes(error, text)
  })
})

describe('files', () => {
  it('are missing, not invalid, while the Secret has not been mounted', async () => {
    const missing = join(folder, 'nowhere', 'id_ed25519')
    const error = await failure({ keyFile: missing })
    expect(error.code).toBe('CREDENTIALS_MISSING')
    expect(error.message).toContain(missing)
    const key = await keyFile(ed.privateKey)
    const noHosts = await failure({ keyFile: key, knownHostsFile: missing })
    expect(noHosts.code).toBe('CREDENTIALS_MISSING')
    expect(noHosts.message).toContain('known_hosts')
    expect((await failure({ keyFile: join(key, 'below-a-file') })).code).toBe('CREDENTIALS_MISSING')
  })

  it('must be regular files of a sane size', async () => {
    await mkdir(join(folder, 'dir'))
    const pipe = join(folder, 'pipe')
    execFileSync('mkfifo', [pipe])
    const key = await keyFile(ed.privateKey)
    for (const file of [join(folder, 'dir'), pipe, '/dev/zero']) {
      for (const files of [{ keyFile: file }, { keyFile: key, knownHostsFile: file }]) {
        const error = await failure(files)
        expect(error.code).toBe('CREDENTIALS_UNREADABLE')
        expect(error.message).toContain(`${file} is not a regular file`)
      }
    }
    const hosts = join(folder, 'known_hosts')
    await writeFile(hosts, '#'.repeat(1024 * 1024 + 1))
    expect((await failure({ keyFile: key, knownHostsFile: hosts })).message).toContain('larger than 1024 KiB')
    const large = await failure({ keyFile: await keyFile('x'.repeat(70_000)) })
    expect(large.code).toBe('CREDENTIALS_INVALID')
    expect(large.message).toContain('larger than 64 KiB')
  })

  it('that may not be read say who must be let in', async () => {
    const file = await keyFile(ed.privateKey)
    await chmod(folder, 0o755)
    await chmod(file, 0)
    const error = await asNobody(() => failure({ keyFile: file }))
    expect(error.code).toBe('CREDENTIALS_UNREADABLE')
    expect(error.message).toContain(file)
    expect(error.message).toMatch(/permission denied.*uid \d+/)
  })

  it('need a known_hosts file unless host keys are ignored', async () => {
    const key = await keyFile(ed.privateKey)
    const result = await loadCredentials({ keyFile: key, insecureIgnoreHostKey: false }).catch(
      (error: unknown) => error,
    )
    expect(result).toBeInstanceOf(SshError)
    const loose = await loadCredentials({ keyFile: key, insecureIgnoreHostKey: true })
    expect(loose.trust.kind).toBe('anyKey')
  })

  it.each([
    ['garbage-secret-token\n', 'fewer than three fields'],
    [`\n${ed.privateKey}`, 'belongs to a private key, not to known_hosts'],
    [`${ed.publicKey} me@laptop\n`, 'has no host name before the key'],
  ])('refuses a known_hosts file without one usable line, and does not quote it', async (text, problem) => {
    const hosts = join(folder, 'known_hosts')
    await writeFile(hosts, text)
    const error = await failure({ keyFile: await keyFile(ed.privateKey), knownHostsFile: hosts })
    expect(error.code).toBe('CREDENTIALS_INVALID')
    expect(error.message).toContain(hosts)
    expect(error.message).toContain(problem)
    expect(error.message).toContain('ssh-keyscan')
    expect(error.message).not.toContain('garbage')
    expectNoKeyBytes(error, text)
  })

  it('takes an empty known_hosts file, which trusts nobody', async () => {
    const hosts = join(folder, 'known_hosts')
    await writeFile(hosts, '')
    const loaded = await loadCredentials({
      keyFile: await keyFile(ed.privateKey),
      knownHostsFile: hosts,
      insecureIgnoreHostKey: false,
    })
    expect(loaded.trust).toMatchObject({ kind: 'knownHosts', file: hosts, hosts: { size: 0 } })
  })

  it.each(['utf16le', 'utf16be'])('are read as %s, which Windows PowerShell writes', async (encoding) => {
    const encode = (text: string) => {
      const little = Buffer.from(`\uFEFF${text.replaceAll('\n', '\r\n')}`, 'utf16le')
      return encoding === 'utf16le' ? little : little.swap16()
    }
    const hosts = join(folder, 'known_hosts')
    await writeFile(hosts, encode(`${knownHostsLine('h', 22, ed.publicKey)}\n`))
    const loaded = await loadCredentials({
      keyFile: await keyFile(encode(ed.privateKey)),
      knownHostsFile: hosts,
      insecureIgnoreHostKey: false,
    })
    expect(loaded.key.reveal().getPublicSSH()).toEqual(ed.publicBlob)
    if (loaded.trust.kind !== 'knownHosts') throw new Error('known_hosts was not read')
    expect(loaded.trust.hosts.host('h', 22).check(ed.publicBlob).kind).toBe('trusted')
  })

  it('are read again every time, also when a mounted Secret changes under them, and never print the key', async () => {
    const keys = [generateTestKey(), generateTestKey()]
    // As kubelet does it: the files are links through a folder that is replaced as a whole.
    for (const [generation, key] of keys.entries()) {
      await mkdir(join(folder, `generation${generation}`))
      await writeFile(join(folder, `generation${generation}`, 'id_ed25519'), key.privateKey)
      await writeFile(join(folder, `generation${generation}`, 'known_hosts'), knownHostsLine('h', 22, key.publicKey))
    }
    await symlink('generation0', join(folder, '..data'))
    for (const name of ['id_ed25519', 'known_hosts']) await symlink(join('..data', name), join(folder, name))
    const load = () =>
      loadCredentials({
        keyFile: join(folder, 'id_ed25519'),
        knownHostsFile: join(folder, 'known_hosts'),
        insecureIgnoreHostKey: false,
      })
    const before = await load()
    await symlink('generation1', join(folder, '..data_tmp'))
    await rename(join(folder, '..data_tmp'), join(folder, '..data'))
    const after = await load()
    for (const [generation, loaded] of [before, after].entries()) {
      const blob = keys[generation]?.publicBlob ?? Buffer.alloc(0)
      expect(loaded.key.reveal().getPublicSSH()).toEqual(blob)
      if (loaded.trust.kind !== 'knownHosts') throw new Error('known_hosts was not read')
      expect(loaded.trust.hosts.host('h', 22).check(blob).kind).toBe('trusted')
    }
    expect(inspect(after, { depth: 10, showHidden: true })).not.toContain('PRIVATE KEY')
    expect(JSON.stringify(after)).toContain('[redacted]')
  })

  it('of any content are credentials or an SshError', async () => {
    const piece = fc.oneof(
      fc.uint8Array({ maxLength: 60 }).map((bytes) => Buffer.from(bytes)),
      fc
        .constantFrom(ed.privateKey, ed.publicKey, '\n', '\r\n', ' ', '\uFEFF', '-----BEGIN ', 'PRIVATE KEY-----', 'h ')
        .map((text) => Buffer.from(text)),
      fc.constantFrom('fffe', 'feff').map((hex) => Buffer.from(hex, 'hex')),
    )
    const content = fc.array(piece, { maxLength: 6 }).map((pieces) => Buffer.concat(pieces))
    const hosts = join(folder, 'known_hosts')
    await fc.assert(
      fc.asyncProperty(content, content, async (key, known) => {
        const file = await keyFile(key)
        await writeFile(hosts, known)
        for (const keyFile of [file, await goodKeyFile(ed.privateKey)]) {
          try {
            await loadCredentials({ keyFile, knownHostsFile: hosts, insecureIgnoreHostKey: false })
          } catch (error) {
            if (!(error instanceof SshError)) throw error
            expect(error.stage).toBe('credentials')
            const said = `${error.message} ${inspect(error.cause)}`.replaceAll(folder, '')
            expect(quoted(said, `${key.toString()}\n${known.toString()}`)).toBeUndefined()
          }
        }
      }),
      { numRuns: 500 },
    )
  })
})

async function goodKeyFile(content: string): Promise<string> {
  const file = join(folder, 'id_good')
  await writeFile(file, content)
  return file
}

function expectNoKeyBytes(error: Error, text: string): void {
  const shown = inspect(error, { depth: 10 }) + (error.stack ?? '')
  for (const word of text.split(/\s|\\n/).filter((part) => /^[A-Za-z0-9+/=]{16,}$/.test(part))) {
    expect(shown).not.toContain(word.slice(0, 16))
  }
}

// Every key form that ssh-keygen and openssl write, with every blemish, let in by the real sshd; and that the ways out which
// the messages of the others name do lead out.
import { execFile } from 'node:child_process'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { systemClock } from '../../../src/lib/clock.ts'
import { loadCredentials } from '../../../src/wire/ssh/credentials.ts'
import { dialSsh } from '../../../src/wire/ssh/dial.ts'
import { SshError } from '../../../src/wire/ssh/errors.ts'
import { canRun, type Availability } from '../../support/e2e/availability.ts'
import { blemishes } from '../../support/ssh/keys.ts'
import { hasSshd, startSshd, type Sshd } from '../../support/ssh/sshd.ts'

const run = promisify(execFile)
const openssh: Availability = (await hasSshd())
  ? { kind: 'yes' }
  : { kind: 'no', reason: '/usr/sbin/sshd is not installed (package openssh-server)' }
const installed = canRun('SSH keys against OpenSSH', [openssh])
const passphrase = 'horse staple'

/** How to make each key; `FILE` is where it goes. */
const forms: readonly (readonly [string, readonly string[]])[] = [
  ['ed25519 OpenSSH', ['ssh-keygen', '-t', 'ed25519']],
  ['ed25519 PKCS#8', ['openssl', 'genpkey', '-algorithm', 'ed25519', '-out', 'FILE']],
  ['RSA 2048 OpenSSH', ['ssh-keygen', '-t', 'rsa', '-b', '2048']],
  ['RSA 2048 PKCS#1', ['ssh-keygen', '-t', 'rsa', '-b', '2048', '-m', 'PEM']],
  ['RSA 2048 PKCS#8', ['ssh-keygen', '-t', 'rsa', '-b', '2048', '-m', 'PKCS8']],
  ['RSA 1024 PKCS#8', ['openssl', 'genpkey', '-algorithm', 'rsa', '-pkeyopt', 'rsa_keygen_bits:1024', '-out', 'FILE']],
  ['RSA 3072 PKCS#8', ['openssl', 'genpkey', '-algorithm', 'rsa', '-pkeyopt', 'rsa_keygen_bits:3072', '-out', 'FILE']],
  ...['256', '384', '521'].flatMap((bits) => [
    [`ECDSA ${bits} OpenSSH`, ['ssh-keygen', '-t', 'ecdsa', '-b', bits]] as const,
    [`ECDSA ${bits} SEC1`, ['ssh-keygen', '-t', 'ecdsa', '-b', bits, '-m', 'PEM']] as const,
    [`ECDSA ${bits} PKCS#8`, ['ssh-keygen', '-t', 'ecdsa', '-b', bits, '-m', 'PKCS8']] as const,
  ]),
  [
    'ECDSA 256 SEC1 after its parameters',
    ['openssl', 'ecparam', '-name', 'prime256v1', '-genkey', '-noout', '-out', 'FILE'],
  ],
  ['ECDSA 384 PKCS#8 by name', ['openssl', 'genpkey', '-algorithm', 'EC', '-pkeyopt', 'group:P-384', '-out', 'FILE']],
]

const encryptedForms: readonly (readonly [string, readonly string[]])[] = [
  ['ed25519 OpenSSH', ['ssh-keygen', '-t', 'ed25519']],
  ['ECDSA OpenSSH', ['ssh-keygen', '-t', 'ecdsa']],
  ['RSA OpenSSH', ['ssh-keygen', '-t', 'rsa', '-b', '2048']],
  ['RSA PKCS#1', ['ssh-keygen', '-t', 'rsa', '-b', '2048', '-m', 'PEM']],
  ['ECDSA SEC1', ['ssh-keygen', '-t', 'ecdsa', '-m', 'PEM']],
  ['RSA PKCS#8', ['ssh-keygen', '-t', 'rsa', '-b', '2048', '-m', 'PKCS8']],
  ['ECDSA PKCS#8', ['ssh-keygen', '-t', 'ecdsa', '-m', 'PKCS8']],
  [
    'ed25519 PKCS#8',
    ['openssl', 'genpkey', '-algorithm', 'ed25519', '-aes256', '-pass', `pass:${passphrase}`, '-out', 'FILE'],
  ],
]

describe.skipIf(!installed)('keys', () => {
  let folder: string
  let sshd: Sshd
  let made = 0

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'ssh-keys-'))
    sshd = await startSshd({ authorizedKeys: [] })
  })
  afterAll(async () => {
    await sshd.stop()
    await rm(folder, { recursive: true })
  })

  async function make(form: readonly string[], secret = ''): Promise<string> {
    const file = join(folder, `key${made++}`)
    const [program = '', ...args] = form
    const rest = args.map((arg) => (arg === 'FILE' ? file : arg))
    await run(program, program === 'ssh-keygen' ? [...rest, '-q', '-N', secret, '-f', file] : rest)
    return file
  }

  async function write(name: string, content: string): Promise<string> {
    const file = join(folder, name)
    await writeFile(file, content)
    return file
  }

  /** Authorizes what is read from the file, so that only the holder of the private half gets in. */
  async function authorize(keyFile: string, at: Sshd = sshd): Promise<void> {
    const { key } = await loadCredentials({ keyFile, insecureIgnoreHostKey: true })
    const { type } = key.reveal()
    await writeFile(join(at.folder, 'authorized_keys'), `${type} ${key.reveal().getPublicSSH().toString('base64')}\n`)
  }

  async function login(keyFile: string, at: Sshd = sshd): Promise<void> {
    const knownHostsFile = await write('known_hosts', at.knownHosts)
    const connection = await dialSsh({
      address: `127.0.0.1:${at.port}`,
      user: at.user,
      credentials: await loadCredentials({ keyFile, knownHostsFile, insecureIgnoreHostKey: false }),
      signal: new AbortController().signal,
      clock: systemClock,
      timeoutMs: 60_000,
    })
    await connection.close()
  }

  async function refusal(work: Promise<unknown>): Promise<SshError> {
    const error = await work.then(
      () => undefined,
      (thrown: unknown) => thrown,
    )
    expect(error).toBeInstanceOf(SshError)
    return error as SshError
  }

  it.each(forms)('lets a key in: %s', async (_name, form) => {
    const file = await make(form)
    await authorize(file)
    await login(file)
    // The public half that a person would put there, where ssh-keygen reads the form at all.
    const shown = await run('ssh-keygen', ['-y', '-P', '', '-f', file]).catch(() => undefined)
    if (shown === undefined) return
    await writeFile(join(sshd.folder, 'authorized_keys'), shown.stdout)
    await login(file)
  })

  it.each([
    ['OpenSSH', ['ssh-keygen', '-t', 'ed25519']],
    ['PEM', ['ssh-keygen', '-t', 'rsa', '-b', '2048', '-m', 'PEM']],
    ['PKCS#8', ['ssh-keygen', '-t', 'ecdsa', '-m', 'PKCS8']],
  ])('lets it in whatever was done to the text: %s', async (_name, form) => {
    const file = await make(form)
    await authorize(file)
    const text = await readFile(file, 'utf8')
    for (const [, spoil] of blemishes) await login(await write('blemished', spoil(text)))
  })

  it.each(encryptedForms)('an encrypted key (%s) is refused with the command that opens it', async (_name, form) => {
    const file = await make(form, passphrase)
    const error = await refusal(loadCredentials({ keyFile: file, insecureIgnoreHostKey: true }))
    expect(error.code).toBe('CREDENTIALS_INVALID')
    expect(error.message).toContain(`${file} is encrypted with a passphrase`)
    const command = /remove the passphrase with (.*)$/.exec(error.message)?.[1] ?? ''
    const opened = command.includes('NEWFILE') ? join(folder, `opened${made++}`) : file
    const answer = command.startsWith('ssh-keygen') ? `-P '${passphrase}'` : `-passin 'pass:${passphrase}'`
    await run('bash', ['-c', `${command.replace('NEWFILE', opened)} ${answer}`])
    await authorize(opened)
    await login(opened)
  })

  it('a public key, a certificate, a key encoded once more: the way out leads to a key that is let in', async () => {
    const file = await make(['ssh-keygen', '-t', 'ed25519'])
    await authorize(file)
    const authority = await make(['ssh-keygen', '-t', 'ed25519'])
    await run('ssh-keygen', ['-q', '-s', authority, '-I', 'test', '-n', sshd.user, `${file}.pub`])
    for (const suffix of ['.pub', '-cert.pub']) {
      const error = await refusal(loadCredentials({ keyFile: file + suffix, insecureIgnoreHostKey: true }))
      const without = /the file of the same name without (\S+)$/.exec(error.message)?.[1] ?? 'nothing'
      expect(without).toBe(suffix)
      await login((file + suffix).slice(0, -without.length))
    }
    const twice = await write('twice', (await run('base64', [file])).stdout)
    const error = await refusal(loadCredentials({ keyFile: twice, insecureIgnoreHostKey: true }))
    const decode = /decode it \((.*)\)/.exec(error.message)?.[1] ?? ''
    const once = join(folder, 'once')
    await run('bash', ['-c', decode.replace('NEWFILE', once)])
    await login(once)
  })

  describe('RSA signatures', () => {
    const rsa = ['ssh-keygen', '-t', 'rsa', '-b', '2048']

    it.each(['rsa-sha2-512', 'rsa-sha2-256'])('are made as %s where the host takes no other', async (algorithm) => {
      const only = await startSshd({ authorizedKeys: [], config: [`PubkeyAcceptedAlgorithms ${algorithm}`] })
      try {
        const file = await make(rsa)
        await authorize(file, only)
        await login(file, only)
      } finally {
        await only.stop()
      }
    })

    it('are never made with SHA-1, also where the host takes no other', async () => {
      const old = await startSshd({ authorizedKeys: [], config: ['PubkeyAcceptedAlgorithms ssh-rsa'] })
      try {
        const file = await make(rsa)
        await authorize(file, old)
        const options = [
          'BatchMode=yes',
          'StrictHostKeyChecking=no',
          'UserKnownHostsFile=/dev/null',
          'IdentitiesOnly=yes',
        ]
        const ssh = (more: string[]) =>
          run('ssh', [
            ...['-F', 'none', '-i', file, '-p', `${old.port}`, `${old.user}@127.0.0.1`],
            ...[...options, ...more].flatMap((option) => ['-o', option]),
            'true',
          ])
        // The host is as old as it is meant to be: it lets the key in by SHA-1.
        await ssh(['PubkeyAcceptedAlgorithms=ssh-rsa'])
        const error = await refusal(login(file, old))
        expect(error).toMatchObject({ code: 'UNAUTHORIZED', stage: 'ssh' })
        expect(error.message).toContain('rsa-sha2-512')
      } finally {
        await old.stop()
      }
    })
  })
})

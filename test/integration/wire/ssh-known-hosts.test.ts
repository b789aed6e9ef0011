// known_hosts held against OpenSSH: ssh-keygen -F says which lines speak of a host, the real client whom it lets in.
import { execFile } from 'node:child_process'
import { createHmac } from 'node:crypto'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { connect as netConnect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { systemClock } from '../../../src/lib/clock.ts'
import { loadCredentials } from '../../../src/wire/ssh/credentials.ts'
import { dialSsh } from '../../../src/wire/ssh/dial.ts'
import { SshError } from '../../../src/wire/ssh/errors.ts'
import { parseHostField } from '../../../src/wire/ssh/host-pattern.ts'
import { canRun, type Availability } from '../../support/e2e/availability.ts'
import { generateTestKey } from '../../support/ssh/keys.ts'
import { hasSshd, sshKeygen, startSshd, type Sshd } from '../../support/ssh/sshd.ts'

const run = promisify(execFile)
const openssh: Availability = (await hasSshd())
  ? { kind: 'yes' }
  : { kind: 'no', reason: '/usr/sbin/sshd is not installed (package openssh-server)' }
const installed = canRun('known_hosts against OpenSSH', [openssh])

/** Connects ssh's pipes with a port; ends with either side. */
const proxyProgram = `
import { connect } from 'node:net'
const socket = connect(Number(process.argv[2]), '127.0.0.1')
process.stdin.pipe(socket).pipe(process.stdout)
process.stdin.on('end', () => process.exit())
socket.on('close', () => process.exit()).on('error', () => process.exit(1))
`

function hashed(name: string): string {
  const salt = Buffer.alloc(20, name)
  return `|1|${salt.toString('base64')}|${createHmac('sha1', salt).update(name).digest('base64')}`
}

describe.skipIf(!installed)('known_hosts', () => {
  let folder: string
  let sshd: Sshd
  let clientKey: string
  let proxy: string
  /** The host's own keys, as known_hosts has them. */
  const own = new Map<string, string>()
  const [stranger, strangerRsa] = [generateTestKey().publicKey, generateTestKey('rsa').publicKey]

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'ssh-known-'))
    const { file, publicKey } = await sshKeygen(folder, 'id', ['-t', 'ed25519'])
    clientKey = file
    proxy = join(folder, 'proxy.mjs')
    await writeFile(proxy, proxyProgram)
    sshd = await startSshd({ authorizedKeys: [publicKey] })
    for (const line of sshd.knownHosts.split('\n')) {
      const [, type = '', key = ''] = line.split(' ')
      if (key !== '') own.set(type, `${type} ${key}`)
    }
  })
  afterAll(async () => {
    await sshd.stop()
    await rm(folder, { recursive: true })
  })

  type Outcome = 'in' | 'unknown' | 'changed' | 'revoked'

  /** Whom the name stands for is not asked: both reach the one sshd, as if it had that name and port. */
  async function byUs(host: string, port: number, knownHosts: string): Promise<Outcome> {
    const knownHostsFile = join(folder, 'known_hosts_ours')
    await writeFile(knownHostsFile, knownHosts)
    try {
      const credentials = await loadCredentials({ keyFile: clientKey, knownHostsFile, insecureIgnoreHostKey: false })
      const connection = await dialSsh({
        address: host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`,
        user: sshd.user,
        credentials,
        signal: new AbortController().signal,
        clock: systemClock,
        timeoutMs: 60_000,
        connect: () =>
          new Promise((resolve, reject) => {
            const socket = netConnect(sshd.port, '127.0.0.1', () => resolve(socket)).once('error', reject)
          }),
      })
      await connection.close()
      return 'in'
    } catch (error) {
      if (!(error instanceof SshError)) throw error
      const [, outcome] = /^HOST_KEY_(.*)$/.exec(error.code) ?? []
      // A file without one usable line knows nobody.
      if (error.code === 'CREDENTIALS_INVALID') return 'unknown'
      if (outcome === undefined) throw error
      return outcome.toLowerCase() as Outcome
    }
  }

  async function bySsh(host: string, port: number, knownHosts: string): Promise<Outcome> {
    const file = join(folder, 'known_hosts_ssh')
    await writeFile(file, knownHosts)
    const options = [
      `ProxyCommand=${process.execPath} ${proxy} ${sshd.port}`,
      'BatchMode=yes',
      'StrictHostKeyChecking=yes',
      `UserKnownHostsFile=${file}`,
      'GlobalKnownHostsFile=/dev/null',
      'IdentitiesOnly=yes',
      'UpdateHostKeys=no',
    ]
    const args = [...['-F', 'none', '-i', clientKey, '-p', `${port}`], ...options.flatMap((option) => ['-o', option])]
    try {
      await run('ssh', [...args, `${sshd.user}@${host}`, 'true'], { timeout: 60_000 })
      return 'in'
    } catch (error) {
      const { stderr } = error as { stderr: string }
      if (stderr.includes('REVOKED HOST KEY')) return 'revoked'
      if (stderr.includes('IDENTIFICATION HAS CHANGED')) return 'changed'
      if (/No .* host key is known for/.test(stderr)) return 'unknown'
      throw error
    }
  }

  const ed = () => own.get('ssh-ed25519') ?? ''
  const rsa = () => own.get('ssh-rsa') ?? ''
  const ecdsa = () => own.get('ecdsa-sha2-nistp256') ?? ''

  /** Name, outcome of both, host, port, file. */
  const agreed: [string, Outcome, string, number, () => string][] = [
    ['a plain name', 'in', 'h.test', 22, () => `h.test ${ed()}`],
    ['another name', 'unknown', 'g.test', 22, () => `h.test ${ed()}`],
    ['names in any case', 'in', 'H.Test', 22, () => `h.tESt ${ed()}`],
    ['a name with its port', 'in', 'h.test', 2222, () => `[h.test]:2222 ${ed()}`],
    ['a name with another port', 'unknown', 'h.test', 2222, () => `[h.test]:2223 ${ed()}`],
    ['a name with a port, at port 22', 'unknown', 'h.test', 22, () => `[h.test]:2222 ${ed()}`],
    ['a plain name, at another port', 'in', 'h.test', 2222, () => `h.test ${ed()}`],
    ['another key of the plain name, at another port', 'unknown', 'h.test', 2222, () => `h.test ${stranger}`],
    [
      'another key with the port beside the plain name',
      'changed',
      'h.test',
      2222,
      () => `h.test ${ed()}\n[h.test]:2222 ${stranger}`,
    ],
    ['a hashed name', 'in', 'h.test', 22, () => `${hashed('h.test')} ${ed()}`],
    ['a hashed name with its port', 'in', 'h.test', 2222, () => `${hashed('[h.test]:2222')} ${ed()}`],
    ['another hashed name', 'unknown', 'h.test', 22, () => `${hashed('g.test')} ${ed()}`],
    ['a wildcard', 'in', 'h.test', 22, () => `*.test ${ed()}`],
    ['a wildcard for every port', 'in', 'h.test', 2222, () => `[*.test]:* ${ed()}`],
    ['a question mark', 'in', '10.0.0.7', 22, () => `10.0.0.? ${ed()}`],
    ['a question mark for two', 'unknown', '10.0.0.77', 22, () => `10.0.0.? ${ed()}`],
    ['a negation after the wildcard', 'unknown', 'h.test', 22, () => `*.test,!h.test ${ed()}`],
    ['a negation before the wildcard', 'unknown', 'h.test', 22, () => `!h.test,*.test ${ed()}`],
    ['a negation of another', 'in', 'h.test', 22, () => `*.test,!g.test ${ed()}`],
    ['nothing but a negation', 'unknown', 'h.test', 22, () => `!g.test ${ed()}`],
    ['a negated line beside another', 'in', 'h.test', 22, () => `*.test,!h.test ${stranger}\nh.test ${ed()}`],
    ['an IPv6 address', 'in', 'fd00::1', 22, () => `fd00::1 ${ed()}`],
    ['an IPv6 address with its port', 'in', 'fd00::1', 2222, () => `[fd00::1]:2222 ${ed()}`],
    ['an IPv6 address dialled in its long form', 'in', 'fd00:0:0:0:0:0:0:1', 22, () => `fd00::1 ${ed()}`],
    ['an IPv6 address dialled in capitals, with its port', 'in', 'FD00:0::1', 2222, () => `[fd00::1]:2222 ${ed()}`],
    ['a changed key', 'changed', 'h.test', 22, () => `h.test ${stranger}`],
    ['a changed key of another type', 'changed', 'h.test', 22, () => `h.test ${strangerRsa}\nh.test ${stranger}`],
    ['several keys, the last of them right', 'in', 'h.test', 22, () => `h.test ${stranger}\nh.test ${ed()}`],
    ['the RSA key alone', 'in', 'h.test', 22, () => `h.test ${rsa()}`],
    ['the ECDSA key alone', 'in', 'h.test', 22, () => `h.test ${ecdsa()}`],
    ['all keys', 'in', 'h.test', 22, () => `h.test ${rsa()}\nh.test ${ecdsa()}\nh.test ${ed()}`],
    ['a revoked key', 'revoked', 'h.test', 22, () => `h.test ${ed()}\n@revoked h.test ${ed()}`],
    ['a key revoked for all', 'revoked', 'h.test', 22, () => `@revoked * ${ed()}\nh.test ${ed()}`],
    ['another revoked key', 'in', 'h.test', 22, () => `@revoked * ${stranger}\nh.test ${ed()}`],
    ['a key revoked for another host', 'in', 'h.test', 22, () => `@revoked g.test ${ed()}\nh.test ${ed()}`],
    [
      'a revoked key beside one that is not',
      'in',
      'h.test',
      22,
      () => `h.test ${ed()}\n@revoked h.test ${ed()}\nh.test ${rsa()}`,
    ],
    ['an authority beside the key', 'in', 'h.test', 22, () => `@cert-authority * ${stranger}\nh.test ${ed()}`],
    ['an authority with the same key', 'in', 'h.test', 22, () => `@cert-authority * ${ed()}\nh.test ${ed()}`],
    ['an authority alone', 'unknown', 'h.test', 22, () => `@cert-authority * ${stranger}`],
    ['an unknown marker', 'unknown', 'h.test', 22, () => `@trusted h.test ${ed()}`],
    ['two markers', 'unknown', 'h.test', 22, () => `@cert-authority @revoked h.test ${ed()}`],
    ['comments, blanks, tabs, CRLF', 'in', 'h.test', 22, () => `# x\r\n\r\n \t h.test \t ${ed()} me@laptop\r\n`],
    ['a commented line', 'unknown', 'h.test', 22, () => `#h.test ${ed()}`],
    [
      'bad lines around it',
      'in',
      'h.test',
      22,
      () => `h.test\nh.test ssh-ed25519 AAAA\n|1|x|y ${ed()}\nh.test ${ed()}`,
    ],
    ['a key that was cut off', 'unknown', 'h.test', 22, () => `h.test ${ed().slice(0, -12)}`],
    ['a key of another type than it says', 'unknown', 'h.test', 22, () => `h.test ssh-rsa ${ed().split(' ')[1] ?? ''}`],
    ['no last newline', 'in', 'h.test', 22, () => `g.test ${stranger}\nh.test ${ed()}`],
    ['an empty file', 'unknown', 'h.test', 22, () => ''],
  ]

  it.each(agreed)('as ssh does: %s → %s', async (_name, outcome, host, port, knownHosts) => {
    expect({ ssh: await bySsh(host, port, knownHosts()), we: await byUs(host, port, knownHosts()) }).toEqual({
      ssh: outcome,
      we: outcome,
    })
  })

  /** Name, ssh's outcome, ours, host, port, file. */
  const apart: [string, Outcome, Outcome, string, number, () => string][] = [
    ['people write the default port', 'unknown', 'in', 'h.test', 22, () => `[h.test]:22 ${ed()}`],
    [
      'a revocation without a port counts for every port',
      'in',
      'revoked',
      'h.test',
      2222,
      () => `@revoked h.test ${ed()}\n[h.test]:2222 ${ed()}`,
    ],
    ['an address is also looked up as it is written', 'unknown', 'in', 'fd00:0:0::1', 22, () => `fd00:0:0::1 ${ed()}`],
    [
      // ssh puts the types it knows first and offers the others too, so it meets a key of a type that it does not know.
      'a host without a key of a known type is unknown, not changed',
      'changed',
      'unknown',
      'h.test',
      22,
      () => `h.test ${generateTestKey('ecdsa521').publicKey}`,
    ],
  ]

  it.each(apart)('unlike ssh: %s → %s there, %s here', async (_name, there, here, host, port, knownHosts) => {
    const text = knownHosts()
    expect({ ssh: await bySsh(host, port, text), we: await byUs(host, port, text) }).toEqual({ ssh: there, we: here })
  })

  it('finds the lines that ssh-keygen -F finds, in any file', async () => {
    const names = ['h.test', 'g.test', '[h.test]:2222', '10.0.0.7', 'fd00::1', '[fd00::1]:2222']
    const pattern = fc.oneof(
      fc.constantFrom(
        ...names,
        'H.TEST',
        '*',
        '*.test',
        '?.test',
        '[*]:2222',
        '[h.*]:*',
        '10.0.0.?',
        'fd00::*',
        '[h.test',
      ),
      fc.string({ unit: fc.constantFrom('h', '.', 't', '*', '?', '[', ']', ':', '2'), minLength: 1, maxLength: 8 }),
    )
    const list = fc
      .array(fc.tuple(fc.boolean(), pattern), { minLength: 1, maxLength: 3 })
      .map((patterns) => patterns.map(([negated, text]) => (negated ? `!${text}` : text)).join(','))
    const field = fc.oneof(list, fc.constantFrom(...names).map(hashed))
    const file = join(folder, 'known_hosts_random')
    let found = 0
    await fc.assert(
      fc.asyncProperty(
        fc.array(field, { minLength: 1, maxLength: 8 }),
        fc.constantFrom(...names),
        async (fields, name) => {
          await writeFile(file, fields.map((text) => `${text} ${stranger}\n`).join(''))
          const { stdout } = await run('ssh-keygen', ['-F', name, '-f', file]).catch((error: unknown) => {
            // Its exit status when it finds none.
            if (error instanceof Error && 'code' in error && error.code === 1) return { stdout: '' }
            throw error
          })
          const theirs = [...stdout.matchAll(/found: line (\d+)/g)].map(([, line]) => Number(line))
          const ours = fields.flatMap((text, index) => (parseHostField(text)?.(name) === true ? [index + 1] : []))
          found += theirs.length
          expect(ours).toEqual(theirs)
        },
      ),
      { numRuns: 80 },
    )
    expect(found).toBeGreaterThan(25)
  })

  it('judges as ssh does in any file', async () => {
    const key = fc.constantFrom(
      () => ed(),
      () => rsa(),
      () => ecdsa(),
      () => stranger,
      () => strangerRsa,
    )
    const marker = fc.constantFrom('', '', '', '@revoked ', '@cert-authority ')
    const name = fc.constantFrom('h.test', '*.test', '*.test,!h.test', 'g.test', hashed('h.test'), '*')
    const line = fc.tuple(marker, name, key)
    let entered = 0
    await fc.assert(
      fc.asyncProperty(fc.array(line, { minLength: 1, maxLength: 5 }), async (lines) => {
        const text = lines.map(([mark, hosts, of]) => `${mark}${hosts} ${of()}\n`).join('')
        const [ssh, we] = [await bySsh('h.test', 22, text), await byUs('h.test', 22, text)]
        if (we === 'in') entered++
        expect({ in: we === 'in', text }).toEqual({ in: ssh === 'in', text })
      }),
      { numRuns: 25 },
    )
    expect(entered).toBeGreaterThan(2)
  })
})

// The SSH dialer against the real OpenSSH server: real keys, a real ssh-keyscan -H file, a real unix socket behind it.
import { once } from 'node:events'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { buffer } from 'node:stream/consumers'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { systemClock } from '../../../src/lib/clock.ts'
import { loadCredentials } from '../../../src/wire/ssh/credentials.ts'
import { dialSsh, type SshConnection } from '../../../src/wire/ssh/dial.ts'
import { canRun, type Availability } from '../../support/e2e/availability.ts'
import { hasSshd, sshKeygen, startSshd, type Sshd } from '../../support/ssh/sshd.ts'

const openssh: Availability = (await hasSshd())
  ? { kind: 'yes' }
  : { kind: 'no', reason: '/usr/sbin/sshd is not installed (package openssh-server)' }
const installed = canRun('SSH against OpenSSH', [openssh])
const never = new AbortController().signal
const opening = { signal: never, timeoutMs: 60_000 }

const clientKeys: [string, string[]][] = [
  ['ed25519', ['-t', 'ed25519']],
  ['rsa', ['-t', 'rsa', '-b', '2048']],
  ['rsa-pem', ['-t', 'rsa', '-b', '2048', '-m', 'PEM']],
  ['rsa-pkcs8', ['-t', 'rsa', '-b', '2048', '-m', 'PKCS8']],
  ['ecdsa', ['-t', 'ecdsa']],
]

describe.skipIf(!installed)('OpenSSH sshd', () => {
  let folder: string
  let keyFiles: Map<string, string>
  let authorizedKeys: string[]
  let sshd: Sshd
  let cleanups: (() => unknown)[] = []

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'ssh-real-'))
    keyFiles = new Map()
    authorizedKeys = []
    for (const [name, args] of clientKeys) {
      const { file, publicKey } = await sshKeygen(folder, name, args)
      keyFiles.set(name, file)
      authorizedKeys.push(publicKey)
    }
    sshd = await startSshd({ authorizedKeys })
  })
  afterEach(async () => {
    for (const cleanup of cleanups.reverse()) await cleanup()
    cleanups = []
  })
  afterAll(async () => {
    await sshd.stop()
    await rm(folder, { recursive: true })
  })

  async function dial(
    target: Sshd,
    options: { keyFile?: string; knownHosts?: string; user?: string } = {},
  ): Promise<SshConnection> {
    const knownHostsFile = join(target.folder, 'known_hosts')
    await writeFile(knownHostsFile, options.knownHosts ?? target.knownHosts)
    const credentials = await loadCredentials({
      keyFile: options.keyFile ?? join(folder, 'ed25519'),
      knownHostsFile,
      insecureIgnoreHostKey: false,
    })
    const connection = await dialSsh({
      address: `127.0.0.1:${target.port}`,
      user: options.user ?? target.user,
      credentials,
      signal: never,
      clock: systemClock,
      timeoutMs: 60_000,
    })
    cleanups.push(() => connection.close())
    return connection
  }

  async function echoSocket(): Promise<string> {
    const path = join(folder, 'echo.sock')
    const server = createServer({ allowHalfOpen: true }, (socket) => {
      socket.on('error', () => undefined)
      socket.pipe(socket)
    })
    server.listen(path)
    await once(server, 'listening')
    cleanups.push(() => server.close())
    return path
  }

  it.each(clientKeys.map(([name]) => name))(
    'lets a %s key in by a hashed known_hosts line with a port',
    async (name) => {
      expect(sshd.knownHosts).toContain('|1|')
      const path = await echoSocket()
      const connection = await dial(sshd, { keyFile: keyFiles.get(name) ?? '' })
      const stream = await connection.openStreamLocal(path, opening)
      const sent = Buffer.alloc(5_000_000, 'egress')
      stream.end(sent)
      expect((await buffer(stream)).equals(sent)).toBe(true)
    },
  )

  it.each(['ssh-ed25519', 'ssh-rsa', 'ecdsa-sha2-nistp256'])(
    'takes the host’s %s key when only that one is known',
    async (type) => {
      const knownHosts = sshd.knownHosts
        .split('\n')
        .filter((line) => line.includes(` ${type} `))
        .join('\n')
      expect(knownHosts).not.toBe('')
      const connection = await dial(sshd, { knownHosts })
      await connection.close()
      expect((await connection.closed).code).toBe('CLOSED')
    },
  )

  it('is unauthorized with another key, and as a user that does not exist', async () => {
    const { file } = await sshKeygen(folder, 'stranger', ['-t', 'ed25519'])
    await expect(dial(sshd, { keyFile: file })).rejects.toMatchObject({ code: 'UNAUTHORIZED', stage: 'ssh' })
    await expect(dial(sshd, { user: 'nobody-here' })).rejects.toMatchObject({ code: 'UNAUTHORIZED' })
  })

  it('refuses a host whose keys were all replaced', async () => {
    const other = await startSshd({ authorizedKeys })
    cleanups.push(() => other.stop())
    const stale = await readFile(join(sshd.folder, 'host_ed25519.pub'), 'utf8')
    await expect(dial(other, { knownHosts: `[127.0.0.1]:${other.port} ${stale}` })).rejects.toMatchObject({
      code: 'HOST_KEY_CHANGED',
      stage: 'ssh',
    })
  })

  it('says what to check when the socket is absent, and when forwarding is off', async () => {
    const connection = await dial(sshd)
    await expect(connection.openStreamLocal(join(folder, 'absent.sock'), opening)).rejects.toMatchObject({
      code: 'FORWARD_REFUSED',
      stage: 'socket',
    })
    const strict = await startSshd({ authorizedKeys, config: ['AllowStreamLocalForwarding no'] })
    cleanups.push(() => strict.stop())
    const refused = await dial(strict)
    await expect(refused.openStreamLocal(await echoSocket(), opening)).rejects.toMatchObject({
      code: 'FORWARD_REFUSED',
    })
  })

  it('ends a forward when the socket’s server does', async () => {
    const path = join(folder, 'short.sock')
    const server = createServer((socket) => socket.end('bye')).listen(path)
    await once(server, 'listening')
    cleanups.push(() => server.close())
    const connection = await dial(sshd)
    const stream = await connection.openStreamLocal(path, opening)
    const closed = once(stream, 'close')
    expect((await buffer(stream)).toString()).toBe('bye')
    await closed
  })
})

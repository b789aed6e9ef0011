// The real OpenSSH server on a free loopback port, with keys and configuration of its own in a temporary folder.
import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { access, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { connect, createServer, type AddressInfo } from 'node:net'
import { tmpdir, userInfo } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'

const run = promisify(execFile)
const binary = '/usr/sbin/sshd'

export interface Sshd {
  readonly port: number
  /** The user that may log in: whoever runs the test. */
  readonly user: string
  /** Scratch folder; removed by `stop`. */
  readonly folder: string
  /** What `ssh-keyscan -H` prints for it. */
  readonly knownHosts: string
  /** What it has logged so far, at the `LogLevel` of its configuration (default ERROR). */
  log(): string
  stop(): Promise<void>
}

export interface SshdOptions {
  /** authorized_keys lines. */
  readonly authorizedKeys: readonly string[]
  /** More sshd_config lines; they win over the ones here. */
  readonly config?: readonly string[]
  /** Default: one of each. */
  readonly hostKeyTypes?: readonly ('ed25519' | 'rsa' | 'ecdsa')[]
}

/** Whether OpenSSH's server and tools are installed. */
export async function hasSshd(): Promise<boolean> {
  try {
    await access(binary)
    return true
  } catch {
    return false
  }
}

export async function startSshd(options: SshdOptions): Promise<Sshd> {
  const folder = await mkdtemp(join(tmpdir(), 'sshd-'))
  const { username, uid } = userInfo()
  // sshd refuses to start as root without the folder that its packages make at boot.
  if (uid === 0) await mkdir('/run/sshd', { recursive: true, mode: 0o755 })
  const hostKeys = options.hostKeyTypes ?? ['ed25519', 'rsa', 'ecdsa']
  for (const type of hostKeys) await run('ssh-keygen', ['-q', '-N', '', '-t', type, '-f', join(folder, `host_${type}`)])
  await writeFile(join(folder, 'authorized_keys'), options.authorizedKeys.join('\n') + '\n')
  const port = await freePort()
  const config = [
    ...(options.config ?? []),
    `Port ${port}`,
    'ListenAddress 127.0.0.1',
    ...hostKeys.map((type) => `HostKey ${join(folder, `host_${type}`)}`),
    `AuthorizedKeysFile ${join(folder, 'authorized_keys')}`,
    'PermitRootLogin prohibit-password',
    'PasswordAuthentication no',
    'KbdInteractiveAuthentication no',
    'StrictModes no',
    'UsePAM no',
    'PidFile none',
    'LogLevel ERROR',
  ]
  const configFile = join(folder, 'sshd_config')
  await writeFile(configFile, config.join('\n') + '\n')
  const child = spawn(binary, ['-D', '-e', '-f', configFile], { stdio: ['ignore', 'ignore', 'pipe'] })
  let output = ''
  child.stderr.setEncoding('utf8').on('data', (text: string) => (output += text))
  const exited = once(child, 'exit')
  const deadline = performance.now() + 60_000
  while (!(await accepts(port))) {
    if (child.exitCode !== null || performance.now() > deadline) throw new Error(`sshd did not start: ${output}`)
  }
  const { stdout: knownHosts } = await run('ssh-keyscan', ['-H', '-T', '30', '-p', `${port}`, '127.0.0.1'])
  return {
    port,
    user: username,
    folder,
    knownHosts,
    log: () => output,
    stop: async () => {
      if (child.exitCode === null && child.signalCode === null) child.kill()
      await exited
      await rm(folder, { recursive: true })
    },
  }
}

/** The private and public text of a new key made by ssh-keygen. */
export async function sshKeygen(
  folder: string,
  name: string,
  args: readonly string[],
): Promise<{ file: string; publicKey: string }> {
  const file = join(folder, name)
  await run('ssh-keygen', ['-q', '-N', '', '-f', file, ...args])
  return { file, publicKey: (await readFile(`${file}.pub`, 'utf8')).trim() }
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  server.close()
  await once(server, 'close')
  return port
}

async function accepts(port: number): Promise<boolean> {
  const socket = connect(port, '127.0.0.1')
  return await new Promise((resolve) => {
    socket.on('connect', () => {
      socket.destroy()
      resolve(true)
    })
    // A short pause before the next try; a refused loopback connect answers at once.
    socket.on('error', () => setTimeout(() => resolve(false), 50))
  })
}

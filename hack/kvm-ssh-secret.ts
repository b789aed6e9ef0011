// Applies the Secret with the operator's SSH key and its known_hosts, unless the operator would refuse them; makes no key.
import { spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { errorMessage } from '../src/lib/errors.ts'
import { loadCredentials, type SshCredentials } from '../src/wire/ssh/credentials.ts'

const namespace = 'egress-proxies-operator-system'
const name = 'kvm-ssh'

interface Files {
  readonly keyFile: string
  readonly knownHostsFile: string
}

function filesOf(env: NodeJS.ProcessEnv): Files {
  return {
    keyFile: pathOf(env['KVM_SSH_KEY'], 'proxy-operator_ed25519'),
    knownHostsFile: pathOf(env['KVM_KNOWN_HOSTS'], 'kvm_known_hosts'),
  }
}

/** Not every shell expands a tilde after an equals sign. */
function pathOf(given: string | undefined, fallback: string): string {
  if (given === undefined || given === '') return join(homedir(), '.ssh', fallback)
  return given.startsWith('~/') ? join(homedir(), given.slice(2)) : given
}

/** The operator's own words for an absent file speak of the Secret, which is yet to be made here. */
function requireFiles({ keyFile, knownHostsFile }: Files): void {
  if (!existsSync(keyFile)) {
    throw new Error(
      `SSH key file ${keyFile} does not exist: make it with ssh-keygen -t ed25519 -N '' -f ${keyFile}, ` +
        `or name another with KVM_SSH_KEY=FILE`,
    )
  }
  if (!existsSync(knownHostsFile)) {
    throw new Error(
      `known_hosts file ${knownHostsFile} does not exist: write it with ssh-keyscan -p PORT HOST >> ${knownHostsFile}, ` +
        `or name another with KVM_KNOWN_HOSTS=FILE`,
    )
  }
}

/** Reads both files as the operator does; says what is in them in words that may be shown. */
async function judge(files: Files): Promise<string[]> {
  const { key, trust } = await loadCredentials({ ...files, insecureIgnoreHostKey: false })
  const { hosts } = knownHosts(trust)
  if (hosts.size === 0) {
    throw new Error(
      `known_hosts file ${files.knownHostsFile} names no host, so the operator would trust none: ` +
        `add each with ssh-keyscan -p PORT HOST >> ${files.knownHostsFile}`,
    )
  }
  const { type } = key.reveal()
  const fingerprint = createHash('sha256').update(key.reveal().getPublicSSH()).digest('base64').replace(/=+$/, '')
  return [
    ...hosts.badLines.map(({ line, problem }) => `${files.knownHostsFile}:${line} will be passed over: ${problem}`),
    `id_ed25519:  ${type} SHA256:${fingerprint} (${files.keyFile})`,
    `known_hosts: ${hosts.size} usable line${hosts.size === 1 ? '' : 's'} (${files.knownHostsFile})`,
  ]
}

function knownHosts(trust: SshCredentials['trust']) {
  if (trust.kind === 'anyKey') throw new Error('known_hosts was not read')
  return trust
}

async function secretDocument({ keyFile, knownHostsFile }: Files): Promise<string> {
  const [key, known] = await Promise.all([readFile(keyFile, 'base64'), readFile(knownHostsFile, 'base64')])
  return JSON.stringify({
    apiVersion: 'v1',
    kind: 'Secret',
    metadata: { name, namespace },
    type: 'Opaque',
    data: { id_ed25519: key, known_hosts: known },
  })
}

/** Server-side, because the other kind of apply keeps a second copy of the key in an annotation. */
async function apply(document: string): Promise<void> {
  const flags = ['--server-side', '--force-conflicts', '--field-manager=kvm-ssh-secret']
  const applied = await kubectl(['apply', ...flags, '-f', '-'], document)
  if (applied.status === 0) return
  // Asked only now: who may write the Secret need not be allowed to read namespaces.
  const found = await kubectl(['get', 'namespace', namespace, '--ignore-not-found', '-o', 'name'])
  const isAbsent = found.status === 0 && found.stdout.trim() === ''
  throw new Error(
    isAbsent
      ? `there is no namespace ${namespace}: install the operator first, or kubectl create namespace ${namespace}`
      : 'kubectl did not apply the Secret',
  )
}

/** What it says to people goes straight to them. */
function kubectl(args: readonly string[], input = ''): Promise<{ status: number | null; stdout: string }> {
  return new Promise((resolve, reject) => {
    const child = spawn('kubectl', args, { stdio: ['pipe', 'pipe', 'inherit'] })
    const stdout: Buffer[] = []
    child.stdout.on('data', (chunk: Buffer) => stdout.push(chunk))
    child.once('error', (cause) => reject(new Error(`kubectl cannot be run (${cause.message})`, { cause })))
    child.once('close', (status) => resolve({ status, stdout: Buffer.concat(stdout).toString() }))
    // It may end without reading all; its status tells what that means.
    child.stdin.on('error', () => undefined)
    child.stdin.end(input)
  })
}

try {
  const files = filesOf(process.env)
  requireFiles(files)
  const findings = await judge(files)
  await apply(await secretDocument(files))
  for (const line of [`Secret ${name} of namespace ${namespace} is applied.`, ...findings]) console.log(line)
} catch (thrown) {
  console.error(`kvm-ssh-secret: ${errorMessage(thrown)}`)
  process.exitCode = 1
}

// make kvm-ssh-secret: the one document that it hands to kubectl, and every file that it hands none for; kubectl is a recording.
import { chmod, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import ssh2 from 'ssh2'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { loadCredentials } from '../../../src/wire/ssh/credentials.ts'
import { runCommand, type CommandResult } from '../../support/command.ts'
import { generateTestKey, knownHostsLine } from '../../support/ssh/keys.ts'

const root = join(import.meta.dirname, '../../..')
const script = join(root, 'hack/kvm-ssh-secret.ts')
const key = generateTestKey()
const hostKey = generateTestKey()
const knownHosts = `${knownHostsLine('kvm-1.test', 22, hostKey.publicKey)}\n`
const encrypted = ssh2.utils.generateKeyPairSync('ed25519', { passphrase: 'x', cipher: 'aes256-ctr', rounds: 16 })

const recordingSchema = z.array(z.object({ args: z.array(z.string()), input: z.string() }))
type Recording = z.output<typeof recordingSchema>

let folder: string
let home: string

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'kvm-ssh-secret-'))
  home = join(folder, 'home')
  await mkdir(join(home, '.ssh'), { recursive: true })
  await mkdir(join(folder, 'bin'))
  await fakeKubectl({ applyStatus: 0, getStatus: 0, namespaces: 'namespace/egress-proxies-operator-system\n' })
})
afterEach(async () => {
  await rm(folder, { recursive: true })
})

/** A kubectl that keeps its arguments and input and answers as told. */
async function fakeKubectl(answers: { applyStatus: number; getStatus: number; namespaces: string }): Promise<void> {
  const file = join(folder, 'bin', 'kubectl')
  const source = `#!${process.execPath}
const fs = require('node:fs')
const log = ${JSON.stringify(join(folder, 'recording.json'))}
const calls = fs.existsSync(log) ? JSON.parse(fs.readFileSync(log, 'utf8')) : []
const args = process.argv.slice(2)
calls.push({ args, input: fs.readFileSync(0, 'utf8') })
fs.writeFileSync(log, JSON.stringify(calls))
if (args.includes('apply')) {
  if (${answers.applyStatus} !== 0) console.error('Error from server: as it says itself')
  process.exitCode = ${answers.applyStatus}
} else {
  process.stdout.write(${JSON.stringify(answers.namespaces)})
  process.exitCode = ${answers.getStatus}
}
`
  await writeFile(file, source)
  await chmod(file, 0o755)
}

async function recording(): Promise<Recording> {
  const text = await readFile(join(folder, 'recording.json'), 'utf8').catch(() => '[]')
  return recordingSchema.parse(JSON.parse(text))
}

function environment(more: Readonly<Record<string, string>>): NodeJS.ProcessEnv {
  return { PATH: [join(folder, 'bin'), process.env['PATH']].join(delimiter), HOME: home, ...more }
}

async function run(more: Readonly<Record<string, string>> = {}): Promise<CommandResult> {
  return await runCommand(process.execPath, [script], { env: environment(more), cwd: folder })
}

async function put(path: string, content: string | Buffer): Promise<string> {
  const file = join(folder, path)
  await writeFile(file, content)
  return file
}

const applyArguments = ['apply', '--server-side', '--force-conflicts', '--field-manager=kvm-ssh-secret', '-f', '-']

function documentOf(keyText: string | Buffer, hosts: string | Buffer): unknown {
  return {
    apiVersion: 'v1',
    kind: 'Secret',
    metadata: { name: 'kvm-ssh', namespace: 'egress-proxies-operator-system' },
    type: 'Opaque',
    data: {
      id_ed25519: Buffer.from(keyText).toString('base64'),
      known_hosts: Buffer.from(hosts).toString('base64'),
    },
  }
}

async function expectApplied(keyText: string | Buffer, hosts: string | Buffer): Promise<void> {
  const calls = await recording()
  expect(calls.map(({ args }) => args)).toEqual([applyArguments])
  expect(calls.map(({ input }): unknown => JSON.parse(input))).toEqual([documentOf(keyText, hosts)])
}

function expectNothingTold({ stdout, stderr }: CommandResult, ...secrets: string[]): void {
  for (const secret of secrets) {
    const words = secret.split(/\s+/).filter((word) => /^[A-Za-z0-9+/=]{16,}$/.test(word))
    const inSecret = Buffer.from(secret).toString('base64')
    for (const word of inSecret.length < 16 ? words : [...words, inSecret]) {
      expect(stdout + stderr).not.toContain(word.slice(0, 16))
    }
  }
}

describe('sound files', () => {
  it('of the default names become the Secret, and only what is public is told', async () => {
    await put('home/.ssh/proxy-operator_ed25519', key.privateKey)
    await put('home/.ssh/kvm_known_hosts', knownHosts)
    const result = await run()
    expect(result).toMatchObject({ exitCode: 0, stderr: '' })
    expect(result.stdout).toContain('Secret kvm-ssh of namespace egress-proxies-operator-system is applied.')
    expect(result.stdout).toContain('known_hosts: 1 usable line (')
    await expectApplied(key.privateKey, knownHosts)
    expectNothingTold(result, key.privateKey, knownHosts)
  })

  it('are named by make, also with a tilde that no shell expanded', async () => {
    const keyFile = await put('other key', key.privateKey)
    await put('home/hosts', knownHosts)
    const args = [
      '-o',
      'node_modules/.installed',
      'kvm-ssh-secret',
      `KVM_SSH_KEY=${keyFile}`,
      'KVM_KNOWN_HOSTS=~/hosts',
    ]
    const result = await runCommand('make', args, { env: environment({}), cwd: root })
    expect(result.exitCode, result.stderr).toBe(0)
    expect(result.stdout).toContain(keyFile)
    await expectApplied(key.privateKey, knownHosts)
  })

  it('go in byte by byte, whatever an editor did to them', async () => {
    const keyText = Buffer.from(`\uFEFF${key.privateKey.replaceAll('\n', '\r\n')}`, 'utf16le')
    const hosts = `# hosts\r\n${knownHosts.trimEnd()}`
    const result = await run({
      KVM_SSH_KEY: await put('key', keyText),
      KVM_KNOWN_HOSTS: await put('hosts', hosts),
    })
    expect(result.exitCode).toBe(0)
    await expectApplied(keyText, hosts)
  })

  it('may have lines that nobody can use, which are named without their content', async () => {
    const hosts = await put('hosts', `not-a-line-at-all\n${knownHosts}`)
    const result = await run({ KVM_SSH_KEY: await put('key', key.privateKey), KVM_KNOWN_HOSTS: hosts })
    expect(result.exitCode).toBe(0)
    expect(result.stdout).toContain(`${hosts}:1 will be passed over: fewer than three fields`)
    expect(result.stdout).not.toContain('not-a-line-at-all')
  })
})

describe('files that the operator would refuse', () => {
  it.each([
    ['a .pub file', `${key.publicKey} me@laptop\n`, knownHosts, 'holds a public key: use the private key'],
    ['an encrypted key', encrypted.private, knownHosts, 'is encrypted with a passphrase'],
    ['a cut key', key.privateKey.slice(0, 200), knownHosts, 'is malformed or cut off'],
    ['an empty key', '', knownHosts, 'is empty'],
    ['a known_hosts without a usable line', key.privateKey, 'nothing-parseable\n', 'has no usable line (line 1: '],
    ['the key as known_hosts', key.privateKey, key.privateKey, 'belongs to a private key, not to known_hosts'],
  ])('reach no cluster, and the words are its own: %s', async (_what, keyText, hosts, words) => {
    const files = { keyFile: join(folder, 'key'), knownHostsFile: join(folder, 'hosts') }
    await put('key', keyText)
    await put('hosts', hosts)
    const result = await run({ KVM_SSH_KEY: files.keyFile, KVM_KNOWN_HOSTS: files.knownHostsFile })
    expect(result).toMatchObject({ exitCode: 1, stdout: '' })
    expect(result.stderr).toContain(words)
    const refusal = await loadCredentials({ ...files, insecureIgnoreHostKey: false }).catch((error: unknown) => error)
    expect(refusal).toBeInstanceOf(Error)
    expect(result.stderr).toBe(`kvm-ssh-secret: ${(refusal as Error).message}\n`)
    expect(await recording()).toEqual([])
    expectNothingTold(result, keyText, hosts)
  })

  it('and absent ones: how each comes into being is told', async () => {
    const first = await run()
    expect(first).toMatchObject({ exitCode: 1, stdout: '' })
    const keyFile = join(home, '.ssh/proxy-operator_ed25519')
    expect(first.stderr).toContain(`${keyFile} does not exist: make it with ssh-keygen -t ed25519 -N '' -f ${keyFile}`)
    await put('home/.ssh/proxy-operator_ed25519', key.privateKey)
    const second = await run()
    expect(second).toMatchObject({ exitCode: 1, stdout: '' })
    const hosts = join(home, '.ssh/kvm_known_hosts')
    expect(second.stderr).toContain(`${hosts} does not exist: write it with ssh-keyscan -p PORT HOST >> ${hosts}`)
    expect(await recording()).toEqual([])
  })

  it.each([
    ['empty', ''],
    ['all comment', '# ssh-keyscan printed nothing\n\n'],
  ])('and a known_hosts that is %s: it would trust nobody', async (_what, hosts) => {
    const file = await put('hosts', hosts)
    const result = await run({ KVM_SSH_KEY: await put('key', key.privateKey), KVM_KNOWN_HOSTS: file })
    expect(result).toMatchObject({ exitCode: 1, stdout: '' })
    expect(result.stderr).toContain(`known_hosts file ${file} names no host`)
    expect(result.stderr).toContain(`ssh-keyscan -p PORT HOST >> ${file}`)
    expect(await recording()).toEqual([])
  })
})

describe('kubectl', () => {
  let sound: Readonly<Record<string, string>>

  beforeEach(async () => {
    sound = { KVM_SSH_KEY: await put('key', key.privateKey), KVM_KNOWN_HOSTS: await put('hosts', knownHosts) }
  })

  it('that finds no namespace: the way out is told', async () => {
    await fakeKubectl({ applyStatus: 1, getStatus: 0, namespaces: '' })
    const result = await run(sound)
    expect(result.exitCode).toBe(1)
    expect(result.stderr).toContain('there is no namespace egress-proxies-operator-system: install the operator first')
    expect(result.stderr).toContain('kubectl create namespace egress-proxies-operator-system')
    expect((await recording()).map(({ args }) => args[0])).toEqual(['apply', 'get'])
    expectNothingTold(result, key.privateKey, knownHosts)
  })

  it.each([
    ['the namespace is there', 0, 'namespace/egress-proxies-operator-system\n'],
    ['namespaces may not be read', 1, ''],
  ])('that fails in another way speaks for itself: %s', async (_what, getStatus, namespaces) => {
    await fakeKubectl({ applyStatus: 1, getStatus, namespaces })
    const result = await run(sound)
    expect(result).toMatchObject({ exitCode: 1, stdout: '' })
    expect(result.stderr).toContain('Error from server: as it says itself')
    expect(result.stderr).toContain('kvm-ssh-secret: kubectl did not apply the Secret')
    expect(result.stderr).not.toContain('there is no namespace')
  })

  it('that is not installed is told apart', async () => {
    await rm(join(folder, 'bin', 'kubectl'))
    const result = await run({ ...sound, PATH: join(folder, 'bin') })
    expect(result.exitCode).toBe(1)
    expect(result.stderr).toContain('kubectl cannot be run')
  })
})

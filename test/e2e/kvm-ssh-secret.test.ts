// hack/kvm-ssh-secret.ts with a real kubectl and API server: the Secret is made, taken over and updated; what it refuses is elsewhere.
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { clusterAvailable, clusterScript, startCluster, type Cluster } from '../support/cluster.ts'
import { runCommand, type CommandResult } from '../support/command.ts'
import { canRun } from '../support/e2e/availability.ts'
import { generateTestKey, knownHostsLine } from '../support/ssh/keys.ts'

const existing = process.env['CLUSTER'] === 'existing'
if (existing) console.warn('left out: make kvm-ssh-secret: CLUSTER=existing names one whose Secret is in use')
const runs = !existing && canRun('make kvm-ssh-secret on a real API server', [clusterAvailable()])
const script = join(import.meta.dirname, '../../hack/kvm-ssh-secret.ts')
const namespace = 'egress-proxies-operator-system'
const secretSchema = z.object({
  type: z.string(),
  metadata: z.object({ annotations: z.record(z.string(), z.string()).optional() }),
  data: z.record(z.string(), z.string()),
})

describe.skipIf(!runs)('make kvm-ssh-secret', () => {
  let cluster: Cluster | undefined
  let folder: string

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'kvm-ssh-secret-'))
    cluster = await startCluster()
    // The cluster's own kubectl, as that of an administrator.
    const wrapper = `#!/bin/sh\nCLUSTER_DIR='${cluster.dir}' exec '${clusterScript}' kubectl "$@"\n`
    await writeFile(join(folder, 'kubectl'), wrapper)
    await chmod(join(folder, 'kubectl'), 0o755)
  })

  afterAll(async () => {
    await cluster?.down()
    await rm(folder, { recursive: true })
  })

  const kubectl = async (args: readonly string[]): Promise<string> => {
    if (cluster === undefined) throw new Error('the cluster did not start')
    return await cluster.kubectl(args)
  }

  /** With a new key and a new host each time. */
  async function run(): Promise<{ result: CommandResult; data: Readonly<Record<string, string>> }> {
    const { privateKey } = generateTestKey()
    const knownHosts = `${knownHostsLine('kvm-1.test', 22, generateTestKey().publicKey)}\n`
    const [KVM_SSH_KEY, KVM_KNOWN_HOSTS] = [join(folder, 'key'), join(folder, 'hosts')]
    await writeFile(KVM_SSH_KEY, privateKey)
    await writeFile(KVM_KNOWN_HOSTS, knownHosts)
    const PATH = [folder, process.env['PATH']].join(delimiter)
    const env = { ...process.env, PATH, KVM_SSH_KEY, KVM_KNOWN_HOSTS }
    const result = await runCommand(process.execPath, [script], { env })
    return { result, data: { id_ed25519: privateKey, known_hosts: knownHosts } }
  }

  async function stored() {
    const text = await kubectl(['-n', namespace, 'get', 'secret', 'kvm-ssh', '-o', 'json'])
    const { type, metadata, data } = secretSchema.parse(JSON.parse(text))
    const entries = Object.entries(data).map(
      ([name, value]) => [name, Buffer.from(value, 'base64').toString()] as const,
    )
    return { type, annotations: metadata.annotations ?? {}, data: Object.fromEntries(entries) }
  }

  it('says what is missing where there is no namespace', async () => {
    const { result } = await run()
    expect(result).toMatchObject({ exitCode: 1, stdout: '' })
    expect(result.stderr).toContain(`there is no namespace ${namespace}`)
  })

  it('makes the Secret, updates it, and takes over one that was made by hand, with no copy of the key beside it', async () => {
    await kubectl(['create', 'namespace', namespace])
    for (const before of ['nothing', 'our own', 'one made by create', 'one made by apply']) {
      if (before.startsWith('one')) {
        await kubectl(['-n', namespace, 'delete', 'secret', 'kvm-ssh'])
        const literals = ['--from-literal=id_ed25519=old', '--from-literal=known_hosts=old']
        const create = ['-n', namespace, 'create', 'secret', 'generic', 'kvm-ssh', ...literals]
        await kubectl(before === 'one made by apply' ? [...create, '--save-config'] : create)
      }
      const { result, data } = await run()
      expect(result, before).toMatchObject({ exitCode: 0, stderr: '' })
      const { annotations, ...secret } = await stored()
      expect(secret, before).toEqual({ type: 'Opaque', data })
      const key = Buffer.from(data['id_ed25519'] ?? '').toString('base64')
      expect(JSON.stringify(annotations), before).not.toContain(key)
    }
  })
})

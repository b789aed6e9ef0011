// hack/cluster with its real processes: what a suite may rely on while it is up, and what is left when it is down.
import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { mkdtemp, readdir, readFile, rm, stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { clusterAvailable, clusterScript, startCluster, type Cluster } from '../support/cluster.ts'
import { CommandError, runChecked, runCommand } from '../support/command.ts'
import { canRun } from '../support/e2e/availability.ts'
import { eventually } from '../support/eventually.ts'

const budgetMs = 300_000
const existing = process.env['CLUSTER'] === 'existing'
if (existing) console.warn('left out: hack/cluster: CLUSTER=existing names one that is not to be stopped and started')
const runs = !existing && canRun('hack/cluster', [clusterAvailable()])

/** Numbers of the processes that carry a state folder in their arguments or their environment. */
async function processesOf(dir: string): Promise<number[]> {
  const found: number[] = []
  for (const entry of await readdir('/proc')) {
    const pid = Number(entry)
    if (!Number.isInteger(pid) || pid === process.pid) continue
    try {
      const [args, environment] = await Promise.all([
        readFile(`/proc/${pid}/cmdline`, 'utf8'),
        readFile(`/proc/${pid}/environ`, 'utf8'),
      ])
      if (args.includes(dir) || environment.includes(dir)) found.push(pid)
    } catch (error) {
      // It ended in between, or is another user's.
      if (!['ENOENT', 'ESRCH', 'EACCES'].includes((error as NodeJS.ErrnoException).code ?? '')) throw error
    }
  }
  return found
}

async function pidOf(dir: string, name: string): Promise<number> {
  return Number.parseInt(await readFile(join(dir, 'run', `${name}.pid`), 'utf8'), 10)
}

const configMap = (name: string, owner?: { name: string; uid: string }) =>
  JSON.stringify({
    apiVersion: 'v1',
    kind: 'ConfigMap',
    metadata: {
      name,
      namespace: 'kept',
      ...(owner === undefined ? {} : { ownerReferences: [{ apiVersion: 'v1', kind: 'ConfigMap', ...owner }] }),
    },
  })

describe.skipIf(!runs)('hack/cluster', () => {
  let cluster: Cluster

  beforeAll(async () => {
    cluster = await startCluster()
  })

  afterAll(async () => {
    await cluster.down()
  })

  it('serves an administrator and keeps the keys from others', async () => {
    expect(await cluster.kubectl(['get', 'namespaces', '-o', 'name'])).toContain('namespace/default\n')
    await cluster.kubectl(['create', 'namespace', 'kept'])
    expect((await stat(cluster.kubeconfigPath)).mode & 0o777).toBe(0o600)
    expect((await stat(cluster.dir)).mode & 0o777).toBe(0o700)
  })

  it('grants only what a role grants', async () => {
    const canI = ['auth', 'can-i', 'list', 'secrets', '--as=system:serviceaccount:default:default']
    const refused = cluster.kubectl(canI)
    await expect(refused).rejects.toThrow(CommandError)
    await cluster.kubectl(['create', 'clusterrole', 'reader', '--verb=list', '--resource=secrets'])
    await cluster.kubectl([
      'create',
      'clusterrolebinding',
      'reader',
      '--clusterrole=reader',
      '--serviceaccount=default:default',
    ])
    await eventually('the role is in force', budgetMs, async () => await cluster.kubectl(canI))
  })

  it('deletes what a deleted object owned', async () => {
    await cluster.kubectl(['apply', '-f', '-'], { input: configMap('owner') })
    const uid = await cluster.kubectl(['-n', 'kept', 'get', 'configmap', 'owner', '-o', 'jsonpath={.metadata.uid}'])
    await cluster.kubectl(['apply', '-f', '-'], { input: configMap('owned', { name: 'owner', uid }) })
    await cluster.kubectl(['apply', '-f', '-'], { input: configMap('free') })
    await cluster.kubectl(['-n', 'kept', 'delete', 'configmap', 'owner'])
    const names = ['-n', 'kept', 'get', 'configmap', 'owned', 'free', '--ignore-not-found', '-o', 'name']
    await eventually('the owned object is gone, the other is not', budgetMs, async () => {
      return (await cluster.kubectl(names)) === 'configmap/free\n' ? true : undefined
    })
  })

  it('keeps what it stored, and its address, while the API server is stopped and started', async () => {
    const before = await readFile(cluster.kubeconfigPath, 'utf8')
    const uid = ['get', 'namespace', 'kept', '-o', 'jsonpath={.metadata.uid}']
    const kept = await cluster.kubectl(uid)
    await cluster.stopApiServer()
    await expect(cluster.kubectl(['get', 'namespaces', '--request-timeout=10s'])).rejects.toThrow(CommandError)
    await cluster.stopApiServer()
    await cluster.startApiServer()
    expect(await cluster.kubectl(uid)).toBe(kept)
    expect(await readFile(cluster.kubeconfigPath, 'utf8')).toBe(before)
  })

  it('is left as it is by a second start', async () => {
    const pids = () =>
      Promise.all(['etcd', 'kube-apiserver', 'kube-controller-manager'].map((name) => pidOf(cluster.dir, name)))
    const before = await pids()
    const again = await startCluster({ dir: cluster.dir })
    expect(again.kubeconfigPath).toBe(cluster.kubeconfigPath)
    expect(await pids()).toEqual(before)
  })

  it('comes back with what it stored after its processes were killed', async () => {
    for (const name of ['kube-apiserver', 'etcd', 'kube-controller-manager'])
      process.kill(await pidOf(cluster.dir, name), 'SIGKILL')
    const env = { ...process.env, CLUSTER_DIR: cluster.dir }
    await eventually('it is known that none runs', budgetMs, async () => {
      const { exitCode, stdout } = await runCommand(clusterScript, ['status'], { env })
      return exitCode === 3 && !stdout.includes('running') ? true : undefined
    })
    await startCluster({ dir: cluster.dir })
    expect(await cluster.kubectl(['get', 'namespace', 'kept', '-o', 'name'])).toBe('namespace/kept\n')
    // Only the namespace controller empties and removes it, so this ends only when all three work.
    await cluster.kubectl(['delete', 'namespace', 'kept'], { timeoutMs: budgetMs })
  })

  it('runs beside another one, which leaves no process and no folder', async () => {
    const other = await startCluster()
    try {
      expect(await other.kubectl(['config', 'view', '--minify', '-o', 'jsonpath={..server}'])).not.toBe(
        await cluster.kubectl(['config', 'view', '--minify', '-o', 'jsonpath={..server}']),
      )
      expect(await processesOf(other.dir)).not.toEqual([])
    } finally {
      await other.down()
    }
    expect(await processesOf(other.dir)).toEqual([])
    expect(existsSync(other.dir)).toBe(false)
    await other.down()
    expect(await cluster.kubectl(['get', '--raw', '/readyz'])).toBe('ok')
  })

  it('names the log and shows its end when a process does not start', async () => {
    const failing = startCluster({ apiServerFlags: ['--no-such-flag'] })
    await expect(failing).rejects.toThrow(/kube-apiserver\.log:[^]*unknown flag: --no-such-flag/)
  })

  describe('whose owner is killed', () => {
    let owner: ChildProcess
    let dir: string

    beforeAll(async () => {
      dir = await mkdtemp(join(tmpdir(), 'egress-owned-'))
      owner = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)'], { stdio: 'ignore' })
      await once(owner, 'spawn')
    })

    afterAll(async () => {
      owner.kill('SIGKILL')
      await runChecked(clusterScript, ['down'], { env: { ...process.env, CLUSTER_DIR: dir } })
      await rm(dir, { recursive: true, force: true })
    })

    it('goes down by itself', async () => {
      const env = { ...process.env, CLUSTER_DIR: dir, CLUSTER_OWNER_PID: String(owner.pid) }
      await runChecked(clusterScript, ['up'], { env, timeoutMs: budgetMs })
      expect(await processesOf(dir)).not.toEqual([])
      owner.kill('SIGKILL')
      await eventually('no process and no folder is left', budgetMs, async () => {
        return !existsSync(dir) && (await processesOf(dir)).length === 0 ? true : undefined
      })
    })
  })
})

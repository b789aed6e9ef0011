// Where hack/cluster takes its programs from and what it refuses to touch; starts no control plane.
import { spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { chmod, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { clusterScript } from '../../support/cluster.ts'
import { runChecked, runCommand, type CommandResult } from '../../support/command.ts'

const names = ['etcd', 'kube-apiserver', 'kube-controller-manager', 'kubectl']
const arch = process.arch === 'x64' ? 'amd64' : process.arch
const goMod = await readFile(join(import.meta.dirname, '../../../hack/cluster/src/go.mod'), 'utf8')
const kubernetes = versionOf('k8s.io/kubernetes')
const etcd = versionOf('go.etcd.io/etcd/server/v3')

function versionOf(module: string): string {
  const line = goMod.split('\n').find((text) => text.trim().startsWith(`${module} v`))
  if (line === undefined) throw new Error(`go.mod does not require ${module}`)
  return line.trim().slice(module.length + 1)
}

const sha256 = (bytes: Buffer) => createHash('sha256').update(bytes).digest('hex')

let root: string

beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'egress-programs-'))
})

afterEach(async () => {
  await rm(root, { recursive: true, force: true })
})

/** The script with an environment that has nothing of the user's, and caches of its own. */
async function script(command: string, env: Readonly<Record<string, string>> = {}): Promise<CommandResult> {
  const { PATH } = process.env
  return await runCommand(clusterScript, [command], {
    env: { PATH, HOME: root, CLUSTER_DIR: join(root, 'state'), NO_PROXY: '*', GOPROXY: 'off', ...env },
    timeoutMs: 100_000,
  })
}

/** A folder with an executable file per name; what is in them is never run here. */
async function programs(folder: string, present: readonly string[] = names): Promise<string> {
  const path = join(root, folder)
  await mkdir(path)
  for (const name of present) {
    await writeFile(join(path, name), `${name}\n`)
    await chmod(join(path, name), 0o755)
  }
  return path
}

describe('KUBEBUILDER_ASSETS', () => {
  it('is taken when it has every program', async () => {
    const assets = await programs('assets')
    expect(await script('build', { KUBEBUILDER_ASSETS: assets })).toMatchObject({ exitCode: 0, stdout: `${assets}\n` })
    expect(await script('check', { KUBEBUILDER_ASSETS: assets })).toMatchObject({ exitCode: 0, stdout: '' })
  })

  it('is refused, by name, when it has no controller manager', async () => {
    const env = {
      KUBEBUILDER_ASSETS: await programs('assets', ['etcd', 'kube-apiserver', 'kubectl']),
      CLUSTER: 'assets',
    }
    for (const command of ['build', 'check']) {
      const result = await script(command, env)
      expect(result).toMatchObject({ exitCode: 1, stdout: '' })
      expect(result.stderr).toContain(`KUBEBUILDER_ASSETS=${env.KUBEBUILDER_ASSETS} does not hold all of`)
    }
  })
})

describe('a mirror of the release', () => {
  let server: Server
  let files: Map<string, Buffer>
  let requests: string[]
  let env: Record<string, string>

  const file = (name: string) => `/kube/${kubernetes}/bin/linux/${arch}/${name}`

  beforeEach(async () => {
    const folder = `etcd-${etcd}-linux-${arch}`
    await programs(folder, ['etcd', 'etcdctl'])
    await runChecked('tar', ['-czf', join(root, 'etcd.tar.gz'), '-C', root, folder])
    const archive = await readFile(join(root, 'etcd.tar.gz'))
    files = new Map([
      [`/etcd/${etcd}/${folder}.tar.gz`, archive],
      [
        `/etcd/${etcd}/SHA256SUMS`,
        Buffer.from(`${'0'.repeat(64)}  other.tar.gz\n${sha256(archive)}  ${folder}.tar.gz\n`),
      ],
    ])
    for (const name of names.slice(1)) {
      const program = Buffer.from(`published ${name}`)
      files.set(file(name), program)
      files.set(file(`${name}.sha256`), Buffer.from(sha256(program)))
    }
    requests = []
    server = createServer((request, response) => {
      const body = files.get(request.url ?? '')
      requests.push(request.url ?? '')
      response.writeHead(body === undefined ? 404 : 200).end(body)
    })
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
    env = { CLUSTER: 'download', CLUSTER_RELEASE_URL: `${origin}/kube`, CLUSTER_ETCD_RELEASE_URL: `${origin}/etcd` }
  })

  afterEach(async () => {
    if (!server.listening) return
    server.close()
    await once(server, 'close')
  })

  it('is downloaded once, by whichever of two runs comes first', async () => {
    expect(await script('check', env)).toMatchObject({ exitCode: 0 })
    requests = []
    const [first, second] = await Promise.all([script('build', env), script('build', env)])
    expect(first).toMatchObject({ exitCode: 0, stdout: second.stdout })
    expect(requests.toSorted()).toEqual([...files.keys()].toSorted())
    const folder = first.stdout.trimEnd()
    expect(folder.startsWith(join(root, '.cache/egress-proxies-operator/'))).toBe(true)
    expect((await readdir(folder)).toSorted()).toEqual(names)
    expect(await readFile(join(folder, 'kubectl'), 'utf8')).toBe('published kubectl')
    expect(await readFile(join(folder, 'etcd'), 'utf8')).toBe('etcd\n')
  })

  it('is not used when a file is not the published one', async () => {
    files.set(file('kube-controller-manager'), Buffer.from('something else'))
    const result = await script('build', env)
    expect(result).toMatchObject({ exitCode: 1, stdout: '' })
    expect(result.stderr).toContain(`${file('kube-controller-manager')}: its SHA-256 is not the published one`)
    expect(await readdir(join(root, '.cache/egress-proxies-operator'))).toEqual(['kube.lock'])
  })

  it('gives way to compiling when nothing answers there', async () => {
    server.close()
    await once(server, 'close')
    const { CLUSTER: _, ...automatic } = env
    const result = await script('build', automatic)
    expect(result).toMatchObject({ exitCode: 1, stdout: '' })
    expect(result.stderr).toMatch(
      /- KUBEBUILDER_ASSETS is not set\n.*kube-apiserver\.sha256: curl: .*\n.*(go build in .* failed|go is not installed)/,
    )
    expect(await script('check', automatic)).toMatchObject({ exitCode: 1 })
  })
})

it('knows every process it started again, and ends it', async () => {
  // Many, because what could be mistaken is a start time that differs by one tick of the kernel's clock.
  const lib = join(import.meta.dirname, '../../../hack/cluster/lib/process.sh')
  const count = 100
  const outcome = await runChecked('bash', [
    '-euc',
    `die() { echo "$*"; exit 1; }
     state=$1 names=()
     . "$2"
     for i in $(seq "$3"); do
       names+=("idle$i")
       start_process "idle$i" sleep 60
       running "idle$i" || die "idle$i is not known"
     done
     pids=$(for name in "\${names[@]}"; do process_id "$name"; done)
     stop_processes 30 "\${names[@]}"
     for pid in $pids; do ! process_identity "$pid" || die "$pid still runs"; done
     wc -w <<<"$pids"; ls "$state/run"`,
    'bash',
    root,
    lib,
    String(count),
  ])
  expect(outcome.trim()).toBe(String(count))
})

describe('what is not the script’s own', () => {
  it('is not taken as a state folder', async () => {
    const state = join(root, 'state')
    await mkdir(state)
    await writeFile(join(state, 'letter.txt'), 'dear')
    for (const command of ['up', 'down']) {
      const result = await script(command, { KUBEBUILDER_ASSETS: await programs(`assets-${command}`) })
      expect(result).toMatchObject({ exitCode: 1, stdout: '' })
      expect(result.stderr).toContain(state)
      expect(await readdir(state)).toEqual(['letter.txt'])
    }
  })

  it('is not ended because it was given the number of a process on record', async () => {
    const state = join(root, 'state')
    const bystander = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)'], {
      stdio: 'ignore',
      detached: true,
    })
    try {
      await once(bystander, 'spawn')
      await mkdir(join(state, 'run'), { recursive: true })
      await writeFile(join(state, '.egress-cluster'), '')
      await writeFile(join(state, 'run/etcd.pid'), `${bystander.pid} 1 00000000-0000-0000-0000-000000000000\n`)
      expect(await script('status')).toMatchObject({ exitCode: 3 })
      expect(await script('down')).toMatchObject({ exitCode: 0 })
      expect(existsSync(state)).toBe(false)
      const ended = once(bystander, 'exit')
      bystander.kill('SIGKILL')
      expect(await ended).toEqual([null, 'SIGKILL']) // asked to end by somebody else, it would have ended by SIGTERM
    } finally {
      bystander.kill('SIGKILL')
    }
  })

  it('is a cluster of CLUSTER=existing: asked for, and left alone', async () => {
    const env = { CLUSTER: 'existing', KUBECONFIG: join(root, 'none') }
    const up = await script('up', env)
    expect(up).toMatchObject({ exitCode: 1, stdout: '' })
    expect(await script('up', { CLUSTER: 'existing' })).toMatchObject({
      exitCode: 1,
      stderr: 'cluster: CLUSTER=existing needs KUBECONFIG\n',
    })
    expect(await script('down', env)).toMatchObject({ exitCode: 0, stdout: '' })
    expect(await script('stop-apiserver', env)).toMatchObject({ exitCode: 1, stdout: '' })
    expect(existsSync(join(root, 'state'))).toBe(false)
  })
})

it('does nothing to be down when nothing is up, and says how it is used', async () => {
  expect(await script('down')).toMatchObject({ exitCode: 0, stdout: '' })
  expect(await script('status')).toMatchObject({ exitCode: 3 })
  expect((await script('help')).stdout).toContain('usage: hack/cluster/cluster.sh COMMAND')
  expect(await script('no-such-command')).toMatchObject({ exitCode: 2, stdout: '' })
})

// hack/libvirt-host with its real daemons: what it refuses, what it survives, what it leaves behind, and that a VM becomes a proxy.
import { createServer, request, type IncomingMessage } from 'node:http'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { copyFile, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { domainXml, randomMac } from '../../src/provider/libvirt/domain-xml.ts'
import { buildSeed } from '../../src/provider/nocloud/seed.ts'
import { runChecked, runCommand } from '../support/command.ts'
import { canRun } from '../support/e2e/availability.ts'
import { eventually } from '../support/eventually.ts'
import { libvirtHostAvailable, libvirtHostScript, startLibvirtHost, type LibvirtHost } from '../support/libvirt-host.ts'

const budgetMs = 180_000
const runs = canRun('hack/libvirt-host', [libvirtHostAvailable()])

let dir: string

beforeAll(async () => {
  if (!runs) return
  dir = await mkdtemp(join(tmpdir(), 'libvirt-host-test-'))
  await runChecked(libvirtHostScript, ['images'], { timeoutMs: 30 * 60_000 })
})

afterAll(async () => {
  if (runs) await rm(dir, { recursive: true })
})

/**
 * What a script finds in its sandbox: a copy of this machine with mounts, links and processes of its own, in which nothing
 * else happens, so that every difference is the host's. Its mounts propagate, as they do where systemd is.
 */
const sandboxPrelude = String.raw`
mount --make-rprivate / && mount --make-rshared /
mount -t sysfs sysfs /sys
ip link set lo up
ip link add wan type veth peer name wan-far
ip address add 198.51.100.1/24 dev wan
ip link set wan up

snapshot() {
  mkdir -p "$1"
  ip -d link >"$1/links"
  ip route show table all >"$1/routes"
  cat /proc/self/mountinfo >"$1/mounts"
  # the shell that runs this adopts what others leave, and reaps it a moment later
  while ps -eo stat= | grep -q '^Z'; do sleep 0.1; done
  ps -eo pid=,ppid=,comm=,args= >"$1/all-processes"
  awk '$3 != "ps"' "$1/all-processes" >"$1/processes"
  find /etc/libvirt /var/lib/libvirt /var/cache/libvirt /var/log/libvirt -printf '%p %m %u %g %s %T@\n' | sort >"$1/folders"
  find /etc/libvirt -type f -exec sha256sum {} + | sort >"$1/contents"
  find /run /dev/shm /dev/hugepages -xdev 2>/dev/null | sort >"$1/runtime"
}
define_vm() {
  cat >"$LVH_STATE.xml" <<XML
<domain type='kvm'><name>firmware-only</name><memory unit='MiB'>64</memory>
<os><type arch='x86_64' machine='q35'>hvm</type></os><cpu mode='host-passthrough'/>
<devices><interface type='bridge'><source bridge='br0'/></interface><serial type='pty'/></devices></domain>
XML
  "$host" virsh -q define "$LVH_STATE.xml"
}
state_of() {
  "$host" virsh -q domstate firmware-only
}
`

/** Runs a bash script in a sandbox; resolves to what it printed. The sandbox and all that runs in it end with it. */
async function inSandbox(name: string, script: string): Promise<string> {
  const env = { ...process.env, host: libvirtHostScript, work: join(dir, name), LVH_STATE: join(dir, name, 'state') }
  const namespaces = ['--mount', '--net', '--pid', '--ipc', '--fork', '--kill-child', '--mount-proc']
  await mkdir(env.work)
  const file = join(env.work, 'script')
  await writeFile(file, `${sandboxPrelude}\ncd "$work"\n${script}`)
  return await runChecked('unshare', [...namespaces, 'bash', '-eu', file], { env, timeoutMs: budgetMs })
}

/** What `snapshot` saw, by kind. */
async function snapshot(name: string, moment: string): Promise<Record<string, string>> {
  const kinds = ['links', 'routes', 'mounts', 'processes', 'folders', 'contents', 'runtime']
  const read = kinds.map(async (kind) => [kind, await readFile(join(dir, name, moment, kind), 'utf8')] as const)
  return Object.fromEntries(await Promise.all(read))
}

describe.skipIf(!runs)('hack/libvirt-host on a machine', () => {
  it('leaves links, routes, mounts, processes and folders as they were', async () => {
    const printed = await inSandbox(
      'life',
      String.raw`
      snapshot before
      "$host" down
      "$host" up
      define_vm >&2
      "$host" virsh -q start firmware-only >&2
      "$host" up >again
      echo "vm: $(state_of)"
      snapshot between
      "$host" down
      "$host" down
      snapshot after
      `,
    )
    expect(printed).toContain('LIBVIRT_SSH_HOST=192.168.213.1\n')
    expect(printed).toContain('vm: running\n')
    const [before, between, after] = [
      await snapshot('life', 'before'),
      await snapshot('life', 'between'),
      await snapshot('life', 'after'),
    ]
    // What the snapshots see at all, so that their equality says something.
    expect(before['contents']).toContain('/etc/libvirt/qemu.conf')
    expect(between['links']).toContain('lvh0@')
    expect(between['routes']).toContain('192.168.213.0/24 dev lvh0')
    for (const program of ['libvirtd', 'virtlogd', 'dnsmasq', 'sshd', 'qemu-system-x86_64'])
      expect(between['processes']).toContain(program)
    // Even while it runs, mounts and libvirt's folders are the machine's own.
    for (const kind of ['mounts', 'folders', 'contents', 'runtime']) expect(between[kind]).toBe(before[kind])
    expect(after).toEqual(before)
  })

  it('recovers from the kill of any daemon with its VMs running', async () => {
    const printed = await inSandbox(
      'daemons',
      String.raw`
      "$host" up >/dev/null
      define_vm >&2
      "$host" virsh -q start firmware-only >&2
      for daemon in virtlogd libvirtd dnsmasq sshd; do
        "$host" exec sh -c "kill -KILL \$(cat /run/libvirt-host/$daemon.pid)"
      done
      "$host" status | grep -c 'NOT running'
      "$host" up >/dev/null
      "$host" status | grep -c ' running$'
      echo "vm: $(state_of)"
      `,
    )
    // four daemons, then four daemons and the VM
    expect(printed.trim().split('\n')).toEqual(['4', '5', 'vm: running'])
  })

  it('is gone at once when its first process is killed, and comes up again with its definitions', async () => {
    const printed = await inSandbox(
      'init',
      String.raw`
      snapshot before
      "$host" up >/dev/null
      define_vm >&2
      "$host" virsh -q start firmware-only >&2
      kill -KILL "$(cut -d' ' -f1 "$LVH_STATE/init")"
      "$host" up | grep LIBVIRT_BEGAN
      echo "vm: $(state_of)"
      "$host" down
      snapshot after
      `,
    )
    expect(printed).toBe('LIBVIRT_BEGAN=yes\nvm: shut off\n')
    expect(await snapshot('init', 'after')).toEqual(await snapshot('init', 'before'))
  })

  it('ends with the process it was tied to', async () => {
    const printed = await inSandbox(
      'owner',
      String.raw`
      snapshot before
      sleep infinity &
      LVH_OWNER_PID=$! "$host" up >/dev/null
      kill -KILL $!
      wait $! || true
      for try in $(seq 600); do
        "$host" status 2>/dev/null || break
        sleep 0.1
      done >/dev/null
      code=0
      "$host" status || code=$?
      echo "status: $code"
      "$host" down
      snapshot after
      `,
    )
    expect(printed).toBe('status: 3\n')
    expect(await snapshot('owner', 'after')).toEqual(await snapshot('owner', 'before'))
  })

  it('leaves a libvirtd alone that it did not start', async () => {
    // Only its name and its namespace matter here; a second real one would need what this script exists to give it.
    const printed = await inSandbox(
      'foreign',
      String.raw`
      cp "$(command -v sleep)" libvirtd
      ./libvirtd infinity &
      snapshot before
      for command in up check; do
        "$host" $command 2>&1 && echo "$command went through"
      done
      snapshot refused
      "$host" down 2>&1
      LVH_BESIDE=1 "$host" up >/dev/null
      LVH_BESIDE=1 "$host" down
      kill -0 $! && echo 'it still runs'
      `,
    )
    const line = /libvirtd is running as process \d+ and was not started by this host/
    expect(printed.split('\n')[0]).toMatch(line)
    expect(printed.split('\n')[1]).toMatch(line)
    expect(printed).not.toContain('went through')
    expect(printed).toContain('it still runs\n')
    expect(await snapshot('foreign', 'refused')).toEqual(await snapshot('foreign', 'before'))
  })

  it.each([
    ['a taken link', 'LVH_LINK=wan', 'a link wan exists already and is not of this host; name another one in LVH_LINK'],
    ['a subnet in use', 'LVH_NET=198.51.100', "198.51.100.0/24 overlaps the route '198.51.100.0/24 dev wan"],
    ['a word for a subnet', 'LVH_NET=br0', 'LVH_NET takes the first three numbers of a /24'],
    ['an unknown acceleration', 'LVH_ACCEL=fast', "LVH_ACCEL is auto, kvm or tcg, not 'fast'"],
    [
      'a folder of somebody else',
      'LVH_STATE=/etc/libvirt',
      '/etc/libvirt holds something that this script did not make',
    ],
    [
      'a folder that it hides itself',
      'LVH_STATE=/run/lvh',
      'LVH_STATE must not be below a folder that the host hides: /run/lvh',
    ],
    ['an owner that is gone', 'LVH_OWNER_PID=99999999', 'LVH_OWNER_PID names no process: 99999999'],
  ])('refuses %s and changes nothing', async (what, setting, message) => {
    const name = what.replaceAll(' ', '-')
    const printed = await inSandbox(
      name,
      String.raw`
      snapshot before
      code=0
      env '${setting}' "$host" up 2>&1 || code=$?
      echo "code $code"
      snapshot after
      `,
    )
    expect(printed).toContain(`libvirt-host: ${message}`)
    expect(printed).toMatch(/code 1\n$/)
    expect(await snapshot(name, 'after')).toEqual(await snapshot(name, 'before'))
  })

  it('says which packages are missing and installs none unasked', async () => {
    const printed = await inSandbox(
      'packages',
      String.raw`
      # a package database without ovmf
      mount -t tmpfs tmpfs /mnt
      cp -a /var/lib/dpkg /mnt/
      sed -i '/^Package: ovmf$/,/^Status:/s/^Status:.*/Status: deinstall ok config-files/' /mnt/dpkg/status
      mount --bind /mnt/dpkg /var/lib/dpkg
      env -u CI -u INSTALL "$host" check || true
      env -u CI -u INSTALL "$host" up 2>&1 || true
      `,
    )
    expect(printed).toContain('packages are missing, INSTALL=1 installs them: ovmf')
    expect(printed).toContain(
      'libvirt-host: packages are missing: ovmf - run again with INSTALL=1, or: apt-get install',
    )
  })

  it('refuses a user other than root', async () => {
    // In a user namespace without mappings everyone is nobody, and may still read a checkout that is root's alone.
    for (const command of ['up', 'check']) {
      const result = await runCommand('unshare', ['--user', libvirtHostScript, command])
      expect(result.exitCode).toBe(1)
      expect(result.stdout + result.stderr).toContain('needs root')
    }
  })
})

describe.skipIf(!runs)('a VM of hack/libvirt-host', () => {
  let host: LibvirtHost
  const place = () => ({ stateDir: join(dir, 'vm'), net: '192.168.214', link: 'lvhtest0' })

  beforeAll(async () => {
    host = await startLibvirtHost({ place: place() })
  })

  afterAll(async () => {
    await host.down()
    expect((await runCommand('ip', ['link', 'show', 'dev', 'lvhtest0'])).exitCode).toBe(1)
  })

  it('takes the key over SSH and runs in namespaces of its own', async () => {
    const options = ['-F', 'none', '-o', 'IdentitiesOnly=yes', '-o', `UserKnownHostsFile=${host.knownHostsPath}`]
    const target = ['-i', host.sshKeyPath, '-p', String(host.sshPort), `${host.sshUser}@${host.sshHost}`]
    expect(await runChecked('ssh', [...options, ...target, 'hostname'])).toBe('libvirt-host\n')
    const withoutKey = ['-F', 'none', '-o', 'BatchMode=yes', '-o', 'IdentityFile=none', '-o', 'IdentitiesOnly=yes']
    const refused = await runCommand('ssh', [
      ...[...withoutKey, '-o', `UserKnownHostsFile=${host.knownHostsPath}`],
      ...['-p', String(host.sshPort), `${host.sshUser}@${host.sshHost}`, 'hostname'],
    ])
    expect(refused.exitCode).toBe(255)
    expect(refused.stderr).toContain('Permission denied')
  })

  it('becomes the proxy that its seed describes', async () => {
    const target = createServer((_, response) => response.end('a page of this machine'))
    target.listen(0, host.gateway)
    await once(target, 'listening')
    try {
      await defineProxyVm(host, 'tiny-proxy', 3129)
      const startedAt = performance.now()
      await host.virsh(['start', 'tiny-proxy'])
      const address = await eventually('an address from the agent', budgetMs, () => agentAddress(host, 'tiny-proxy'))
      expect(address).toMatch(/^192\.168\.214\.\d+$/)
      const addressAt = performance.now()
      const url = `http://${host.gatewayName}:${(target.address() as AddressInfo).port}/`
      const page = await eventually('a page through the proxy', budgetMs, () => getThroughProxy(address, 3129, url))
      const seconds = [addressAt - startedAt, performance.now() - addressAt].map((ms) => (ms / 1000).toFixed(1))
      console.log(`start to address ${seconds[0] ?? ''} s, address to page ${seconds[1] ?? ''} s (${host.accel})`)
      expect(page).toMatchObject({ status: 200, body: 'a page of this machine' })
      expect(page.via).toContain('1.1 seeded ')
    } finally {
      target.closeAllConnections()
      target.close()
    }
  })
})

/** Defines a VM on the tiny image as the operator does, with a seed that moves the proxy to another port and names it. */
async function defineProxyVm(host: LibvirtHost, name: string, port: number): Promise<void> {
  const configuration = `Port ${port}\nViaProxyName "seeded"\n`
  const cloudConfig = { write_files: [{ path: '/etc/tinyproxy/tinyproxy.conf', content: configuration }] }
  const uid = randomUUID()
  const seed = buildSeed({
    owner: { installation: 'test', uid },
    instanceName: name,
    userData: Buffer.from(`#cloud-config\n${JSON.stringify(cloudConfig)}\n`),
    createdAt: new Date(),
    installGuestAgent: false,
  })
  await copyFile(host.images.tiny, join(host.poolDirOutside, 'base.qcow2'))
  await writeFile(join(host.poolDirOutside, `${name}-seed.iso`), seed)
  await host.virsh(['pool-refresh', host.pool])
  const backing = ['--backing-vol', 'base.qcow2', '--backing-vol-format', 'qcow2']
  await host.virsh(['vol-create-as', host.pool, `${name}.qcow2`, '2G', '--format', 'qcow2', ...backing])
  const xml = domainXml({
    name,
    uuid: randomUUID(),
    mac: randomMac(Math.random),
    vcpus: 1,
    memoryMiB: 512,
    firmware: 'uefi',
    nic: { kind: 'bridge', bridge: host.bridge },
    overlayPath: join(host.poolDir, `${name}.qcow2`),
    seedPath: join(host.poolDir, `${name}-seed.iso`),
    markNamespace: 'https://example.test/mark',
    mark: { uid },
  })
  const file = join(dir, `${name}.xml`)
  await writeFile(file, xml)
  await host.virsh(['define', file])
}

/** The VM's IPv4 address, or undefined as long as it has none. */
async function agentAddress(host: LibvirtHost, name: string): Promise<string | undefined> {
  const table = await host.virsh(['-q', 'domifaddr', name, '--source', 'agent'])
  return /^ (?!lo ).* ipv4 +([\d.]+)\/24$/m.exec(table)?.[1]
}

async function getThroughProxy(
  proxyHost: string,
  proxyPort: number,
  url: string,
): Promise<{ status: number | undefined; body: string; via: string | undefined }> {
  const outgoing = request({ host: proxyHost, port: proxyPort, path: url, headers: { host: new URL(url).host } })
  outgoing.setTimeout(10_000, () => outgoing.destroy(new Error('no answer within 10 s')))
  outgoing.end()
  const [response] = (await once(outgoing, 'response')) as [IncomingMessage]
  return { status: response.statusCode, body: await text(response), via: response.headers.via }
}

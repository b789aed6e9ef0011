// The seed and its script judged by programs that are not ours: isoinfo, and a POSIX shell with stand-ins for package managers.
import { spawnSync } from 'node:child_process'
import { chmod, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { buildSeed } from '../../../src/provider/nocloud/seed.ts'
import { buildVendorData, guestAgentScript } from '../../../src/provider/nocloud/vendor-data.ts'
import { canRun, programAvailable } from '../../support/e2e/availability.ts'

let folder: string
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'seed-tools-'))
})
afterEach(async () => {
  await rm(folder, { recursive: true })
})

function run(program: string, args: readonly string[], env?: NodeJS.ProcessEnv): string {
  const { status, stdout, stderr, error } = spawnSync(program, args, { encoding: 'utf8', ...(env && { env }) })
  if (error !== undefined || status !== 0) throw new Error(`${program}: ${error?.message ?? stderr}`)
  return stdout
}

const isoinfo = canRun('seeds read by isoinfo', [programAvailable('isoinfo', 'genisoimage')])

describe.skipIf(!isoinfo)('isoinfo', () => {
  it('finds label, names and content', async () => {
    const userData = Buffer.from('#cloud-config\nä: "byte for byte"\n')
    const file = join(folder, 'seed.iso')
    const owner = { installation: 'home', uid: 'u-1' }
    const options = { owner, instanceName: 'proxy-abc', userData, installGuestAgent: true, createdAt: new Date() }
    await writeFile(file, buildSeed(options))
    expect(run('isoinfo', ['-d', '-i', file])).toMatch(/Volume id: cidata\n[^]*Rock Ridge signatures version 1 found/)
    const names = run('isoinfo', ['-R', '-f', '-i', file]).split('\n').filter(Boolean)
    expect(names.sort()).toEqual(['/meta-data', '/user-data', '/vendor-data'])
    expect(run('isoinfo', ['-R', '-x', '/user-data', '-i', file])).toBe(userData.toString())
    expect(run('isoinfo', ['-R', '-x', '/vendor-data', '-i', file])).toBe(guestAgentScript)
  })
})

const python = canRun("vendor-data read by Python's email", [programAvailable('python3', 'python3')])

describe.skipIf(!python)("Python's email, with which cloud-init reads it,", () => {
  it('finds the document before the script in a vendor-data of both', () => {
    const vendorData = '#cloud-config\n# ä, and a line that is longer than a mail may have: ' + 'x'.repeat(2000) + '\n'
    const archive = buildVendorData({ installGuestAgent: true, vendorData })
    const program = [
      'import base64, email, json, sys',
      'message = email.message_from_bytes(base64.b64decode(sys.argv[1]))',
      'parts = [p for p in message.walk() if p.get_content_maintype() != "multipart"]',
      'show = lambda p: [p.get_content_type(), p.get_content_charset(), p.get_filename(), p.get_payload(decode=True).decode(), len(p.defects)]',
      'print(json.dumps([message.keys()[0], len(message.defects)] + [show(p) for p in parts]))',
    ].join('\n')
    expect(JSON.parse(run('python3', ['-c', program, archive.toString('base64')]))).toEqual([
      'MIME-Version',
      0,
      ['text/plain', 'utf-8', 'vendor-data', vendorData, 0],
      ['text/x-shellscript', 'utf-8', 'guest-agent.sh', guestAgentScript, 0],
    ])
  })
})

describe('guest agent script', () => {
  /** A PATH with nothing but a shell's needs and the given programs, each of which notes its call. */
  async function guest(programs: Readonly<Record<string, string>>) {
    const shell = run('sh', ['-c', 'command -v sh']).trim()
    await symlink(shell, join(folder, 'sh'))
    const log = join(folder, 'log')
    await writeFile(log, '')
    for (const [name, body] of Object.entries({ sleep: '', ...programs })) {
      const path = join(folder, name)
      await writeFile(path, `#!${shell}\nprintf '%s\\n' "$(printf '%s' "\${0##*/}") $*" >>'${log}'\n${body}\n`)
      await chmod(path, 0o755)
    }
    const script = join(folder, 'script')
    await writeFile(script, guestAgentScript)
    return async () => {
      const result = spawnSync(shell, [script], { encoding: 'utf8', env: { PATH: folder } })
      return { status: result.status, said: result.stdout, calls: await readFile(log, 'utf8') }
    }
  }
  const installs = () => `: >'${folder}/qemu-ga' && PATH=/usr/bin:/bin chmod +x '${folder}/qemu-ga'`

  it.each([
    ['apt-get', 'apt-get -o DPkg::Lock::Timeout=300 install -q -y --no-install-recommends qemu-guest-agent'],
    ['dnf', 'dnf install -y qemu-guest-agent'],
    ['yum', 'yum install -y qemu-guest-agent'],
    ['zypper', 'zypper --non-interactive install qemu-guest-agent'],
    ['apk', 'apk add --no-cache qemu-guest-agent'],
  ])('installs with %s and starts with systemctl, once', async (manager, call) => {
    const boot = await guest({ [manager]: `case "$*" in *install*|*add*) ${installs()};; esac`, systemctl: '' })
    const first = await boot()
    expect(first.status).toBe(0)
    expect(first.calls.split('\n')).toContain(call)
    expect(first.calls).toContain('systemctl start qemu-guest-agent')
    const again = await boot()
    expect(again.status).toBe(0)
    expect(again.calls.split(call).length).toBe(2)
  })

  it('starts with OpenRC where there is no systemd', async () => {
    const boot = await guest({ 'qemu-ga': '', 'rc-service': '', 'rc-update': '' })
    const { status, calls } = await boot()
    expect(status).toBe(0)
    expect(calls).toContain('rc-update add qemu-guest-agent default\nrc-service qemu-guest-agent start\n')
  })

  it.each([
    ['apt-get', ['dnf', 'yum', 'zypper', 'apk']],
    ['dnf', ['yum', 'zypper', 'apk']],
    ['yum', ['zypper', 'apk']],
    ['zypper', ['apk']],
  ])('takes %s where there are others, too', async (manager, others) => {
    const managers: Record<string, string> = { [manager]: installs() }
    for (const other of others) managers[other] = 'exit 1'
    const boot = await guest({ ...managers, systemctl: '', 'rc-service': '', 'rc-update': '' })
    const { status, calls } = await boot()
    expect(status).toBe(0)
    const called = new Set(calls.split('\n').map((line) => line.split(' ')[0]))
    expect([...called].sort()).toEqual(['', manager, 'systemctl'].sort())
  })

  it('refreshes the lists of apt-get first, and lets it ask nothing', async () => {
    const body = `printf '%s\\n' "frontend $DEBIAN_FRONTEND" >>'${folder}/log'; case "$*" in *install*) ${installs()};; esac`
    const boot = await guest({ 'apt-get': body, systemctl: '' })
    const { calls } = await boot()
    const lines = calls.split('\n').filter((line) => !line.startsWith('systemctl') && line !== '')
    expect(lines.map((line) => /^(frontend .*)|^apt-get .*(update|install)/.exec(line)?.slice(1).join(''))).toEqual([
      'update',
      'frontend noninteractive',
      'install',
      'frontend noninteractive',
    ])
  })

  it('enables the agent, so that it is there after a reboot', async () => {
    const boot = await guest({ 'qemu-ga': '', systemctl: '' })
    const { calls } = await boot()
    expect(calls).toBe('systemctl enable qemu-guest-agent\nsystemctl start qemu-guest-agent\n')
  })

  it.each([
    ['no package manager that it knows', { systemctl: '' }, /no package manager that is known here/],
    ['nothing to start it with', { 'qemu-ga': '' }, /neither systemctl nor OpenRC/],
  ])('says so and fails where there is %s', async (_what, programs, words) => {
    const boot = await guest(programs)
    const { status, said } = await boot()
    expect(status).not.toBe(0)
    expect(said).toMatch(words)
  })

  it('tries again while the mirror is away, then says so and fails', async () => {
    const boot = await guest({ 'apt-get': 'exit 1', systemctl: '' })
    const { status, said, calls } = await boot()
    expect(status).toBe(1)
    expect(said).toContain('could not be installed')
    expect(calls.split('\n').filter((line) => line.startsWith('apt-get')).length).toBe(5)
    expect(calls).not.toContain('systemctl')
  })

  it('is understood by the shells that images have', () => {
    for (const shell of ['dash', 'bash', 'busybox']) {
      if (spawnSync(shell, ['--help']).error !== undefined) continue
      const args = shell === 'busybox' ? ['sh', '-n'] : ['-n']
      expect(spawnSync(shell, args, { input: guestAgentScript, encoding: 'utf8' }).stderr).toBe('')
    }
  })
})

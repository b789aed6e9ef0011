// The real virsh works on the stub, over the unix socket of `make stub-libvirt UNIX=path`: what libvirt's own client takes is libvirt's protocol.
import { spawn, spawnSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { runChecked, runCommand } from '../support/command.ts'
import { canRun, type Availability } from '../support/e2e/availability.ts'
import { eventually } from '../support/eventually.ts'
import { agentXml, diskXml, domainXml, nicXml } from '../support/libvirt-peer/domains.ts'
import { Ending } from '../support/libvirt-peer/peer.ts'

const root = resolve(import.meta.dirname, '../..')
const runs = canRun('virsh against the stub', [virshAvailable()])

function virshAvailable(): Availability {
  return spawnSync('virsh', ['--version']).status === 0
    ? { kind: 'yes' }
    : { kind: 'no', reason: 'virsh is not installed (Debian: libvirt-clients)' }
}

describe.skipIf(!runs)('virsh on the stub', () => {
  const ending = new Ending()
  let folder: string
  let socket: string
  let uri: string
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'stub-virsh-'))
    ending.add(() => rm(folder, { recursive: true }))
    socket = join(folder, 'libvirt.sock')
    uri = `qemu+unix:///system?socket=${socket}`
    // What make runs, without make: it might first want to install.
    const command = (await runChecked('make', ['-s', '-n', 'stub-libvirt', `UNIX=${socket}`], { cwd: root })).trim()
    const line = command.split('\n').at(-1) ?? ''
    expect(line).toBe(`node hack/stub-libvirt.ts --unix '${socket}'`)
    const stub = spawn(process.execPath, ['hack/stub-libvirt.ts', '--unix', socket, '--proxy-port', '0'], {
      cwd: root,
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    ending.add(async () => {
      const exited = once(stub, 'exit')
      stub.kill('SIGTERM')
      expect(await exited).toEqual([0, null])
    })
    let printed = ''
    stub.stdout.setEncoding('utf8').on('data', (text: string) => (printed += text))
    await eventually('the stub is up', 60_000, () => Promise.resolve(printed.includes('Ctrl-C') || undefined))
    expect(printed).toContain(`virsh -c '${uri}'`)
  })
  afterAll(() => ending.run())

  const virsh = async (...args: string[]) => (await runChecked('virsh', ['-q', '-c', uri, ...args])).trim()
  const refused = async (...args: string[]) => {
    const { exitCode, stderr } = await runCommand('virsh', ['-q', '-c', uri, ...args])
    expect(exitCode).toBe(1)
    return stderr
  }

  it('carries data up and down unchanged', async () => {
    const data = randomBytes(700_001)
    const [file, back] = [join(folder, 'data'), join(folder, 'back')]
    await writeFile(file, data)
    await virsh('vol-create-as', 'default', 'data.img', `${data.length}b`)
    await virsh('vol-upload', 'data.img', file, '--pool', 'default')
    await virsh('vol-download', 'data.img', back, '--pool', 'default')
    expect((await readFile(back)).equals(data)).toBe(true)
    await virsh('vol-download', 'data.img', back, '--pool', 'default', '--offset', '100', '--length', '500')
    expect((await readFile(back)).equals(data.subarray(100, 600))).toBe(true)
    expect(await virsh('vol-list', 'default')).toMatch(/^data\.img +\/var\/lib\/libvirt\/images\/data\.img$/)
    expect(await virsh('vol-dumpxml', 'data.img', 'default')).toContain(
      `<capacity unit='bytes'>${data.length}</capacity>`,
    )
    await virsh('vol-delete', 'data.img', '--pool', 'default')
    expect(await virsh('vol-list', 'default')).toBe('')
    expect(await refused('vol-upload', 'data.img', file, '--pool', 'default')).toContain('Storage volume not found')
  })

  it('takes a domain through its life', async () => {
    await virsh('vol-create-as', 'default', 'disk.img', '64M', '--allocation', '0', '--format', 'qcow2')
    const file = join(folder, 'domain.xml')
    const devices = diskXml('/var/lib/libvirt/images/disk.img', 'qcow2') + nicXml('br0') + agentXml
    await writeFile(file, domainXml({ name: 'vm', devices }))
    await virsh('define', file)
    expect(await virsh('list', '--all')).toMatch(/^- +vm +shut off$/)
    expect(await virsh('dumpxml', 'vm')).toMatch(/<name>vm<\/name>[^]*<mac address='52:54:00:5e:ed:01'\/>/)
    await virsh('autostart', 'vm')
    await virsh('start', 'vm')
    expect(await virsh('list', '--all', '--autostart')).toMatch(/^1 +vm +running$/)
    expect(await virsh('domstate', 'vm', '--reason')).toBe('running (booted)')
    expect(await virsh('dominfo', 'vm')).toMatch(/^Autostart: +enable$/m)
    expect(await refused('start', 'vm')).toContain('Domain is already active')
    expect(await refused('domifaddr', 'vm', '--source', 'agent')).toContain('QEMU guest agent is not connected')
    await virsh('suspend', 'vm')
    expect(await virsh('domstate', 'vm', '--reason')).toBe('paused (user)')
    await virsh('resume', 'vm')
    const address = await eventually('an address from the agent', 60_000, async () =>
      /52:54:00:5e:ed:01 +ipv4 +(127\.[0-9.]+)\//.exec(await virsh('domifaddr', 'vm', '--source', 'agent'))?.at(1),
    )
    expect(await virsh('domifaddr', 'vm', '--source', 'arp')).toContain(address)
    await virsh('destroy', 'vm')
    expect(await virsh('domstate', 'vm', '--reason')).toBe('shut off (destroyed)')
    await virsh('undefine', 'vm', '--nvram')
    expect(await virsh('list', '--all')).toBe('')
    expect(await refused('dumpxml', 'vm')).toContain("failed to get domain 'vm'")
    await virsh('vol-delete', 'disk.img', '--pool', 'default')
  })

  it('hears of what happens', async () => {
    const file = join(folder, 'heard.xml')
    await writeFile(file, domainXml({ name: 'heard', uuid: '8f8e8d8c-0001-4002-8003-000000000002' }))
    const listener = spawn('virsh', ['-q', '-c', uri, 'event', '--all', '--loop'], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    const exited = once(listener, 'exit')
    let heard = ''
    listener.stdout.setEncoding('utf8').on('data', (text: string) => (heard += text))
    try {
      // Nothing says when it listens; a definition is repeated until it is heard.
      await eventually('a definition was heard', 60_000, async () => {
        await virsh('define', file)
        return heard.includes("event 'lifecycle' for domain 'heard': Defined") || undefined
      })
      await virsh('start', 'heard')
      await virsh('destroy', 'heard')
      await virsh('undefine', 'heard', '--nvram')
      await eventually('the end was heard', 60_000, () =>
        Promise.resolve(heard.includes('Undefined Removed') || undefined),
      )
      for (const what of ['Resumed Unpaused', 'Started Booted', 'Stopped Destroyed']) {
        expect(heard).toContain(`event 'lifecycle' for domain 'heard': ${what}`)
      }
    } finally {
      listener.kill()
      await exited
    }
  })

  it('says so when its socket is taken, and takes over one that a killed process left', async () => {
    const stub = (path: string) =>
      spawn(process.execPath, ['hack/stub-libvirt.ts', '--unix', path], {
        cwd: root,
        stdio: ['ignore', 'pipe', 'pipe'],
      })
    const second = stub(socket)
    let said = ''
    second.stderr.setEncoding('utf8').on('data', (text: string) => (said += text))
    expect(await once(second, 'close')).toEqual([1, null])
    expect(said).toContain('EADDRINUSE')
    expect(await virsh('pool-list', '--name')).toBe('default')

    const own = join(folder, 'own.sock')
    for (const signal of ['SIGKILL', 'SIGTERM'] as const) {
      const process = stub(own)
      const exited = once(process, 'exit')
      await once(process.stdout, 'data')
      process.kill(signal)
      await exited
    }
  })
})

// The ways to fill a volume on a libvirt host that are weighed against each other. Each opens its own connection, and times nothing.
import { createReadStream } from 'node:fs'
import { chmod, open, stat, writeFile } from 'node:fs/promises'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { systemClock } from '../src/lib/clock.ts'
import { LibvirtConnection } from '../src/wire/libvirt/connection.ts'
import { loadCredentials } from '../src/wire/ssh/credentials.ts'
import { dialSsh } from '../src/wire/ssh/dial.ts'
import { runChecked } from '../test/support/command.ts'
import type { LibvirtHost } from '../test/support/libvirt-host.ts'
import type { BenchSshd } from './upload-sshd.ts'

export interface UploadWay {
  readonly name: string
  /** From the first packet of the connection to the last answer. */
  upload(volume: string): Promise<void>
}

export interface UploadFiles {
  /** What is uploaded. */
  readonly file: string
  /** For configuration. */
  readonly folder: string
}

const timeoutMs = 600_000
/** virsh reads as much at once. */
const chunkBytes = 256 * 1024

/** The operator's own way first. virsh has its usual helper started on the host, which knows the daemon's usual socket. */
export async function uploadWays(host: LibvirtHost, sshd: BenchSshd, files: UploadFiles): Promise<UploadWay[]> {
  const ssh = await sshWrapper(host, sshd, files.folder)
  const at = `${host.sshUser}@${host.sshHost}:${sshd.port}/system`
  const key = `keyfile=${host.sshKeyPath}`
  const knownHosts = `known_hosts=${sshd.knownHostsFile}&known_hosts_verify=normal`
  const virsh = (uri: string) => async (volume: string) => {
    await runChecked('virsh', ['-q', '-c', uri, 'vol-upload', volume, files.file, '--pool', host.pool], { timeoutMs })
  }
  return [
    { name: 'operator', upload: (volume) => ownUpload(host, sshd, files.file, volume) },
    {
      name: 'virsh qemu+libssh',
      upload: virsh(`qemu+libssh://${at}?${key}&${knownHosts}&sshauth=privkey`),
    },
    { name: 'virsh qemu+ssh', upload: virsh(`qemu+ssh://${at}?command=${ssh}`) },
    { name: 'ssh cat', upload: (volume) => pipe(ssh, host, files.file, volume) },
  ]
}

async function ownUpload(host: LibvirtHost, sshd: BenchSshd, file: string, volume: string): Promise<void> {
  const { signal } = new AbortController()
  const { sshKeyPath: keyFile, sshUser: user } = host
  const ssh = await dialSsh({
    address: `${host.sshHost}:${sshd.port}`,
    user,
    credentials: await loadCredentials({ keyFile, knownHostsFile: sshd.knownHostsFile, insecureIgnoreHostKey: false }),
    signal,
    clock: systemClock,
    timeoutMs,
  })
  const stream = await ssh.openStreamLocal(host.socketPath, { signal, timeoutMs })
  const libvirt = await LibvirtConnection.open(stream, { clock: systemClock, signal, timeoutMs })
  const { pool } = await libvirt.call('STORAGE_POOL_LOOKUP_BY_NAME', { name: host.pool }, { timeoutMs })
  const { vol } = await libvirt.call('STORAGE_VOL_LOOKUP_BY_NAME', { pool, name: volume }, { timeoutMs })
  const { size } = await stat(file)
  await libvirt.upload(vol, createReadStream(file, { highWaterMark: chunkBytes }), { length: BigInt(size), timeoutMs })
  await libvirt.close()
  await ssh.close()
}

/** A program that is ssh with the bench's own configuration, as virsh can be told to use. */
async function sshWrapper(host: LibvirtHost, sshd: BenchSshd, folder: string): Promise<string> {
  const config = join(folder, 'ssh_config')
  const settings = [
    `IdentityFile ${host.sshKeyPath}`,
    'IdentitiesOnly yes',
    `UserKnownHostsFile ${sshd.knownHostsFile}`,
    'StrictHostKeyChecking yes',
    'BatchMode yes',
    `Port ${sshd.port}`,
    `User ${host.sshUser}`,
  ]
  await writeFile(config, `${settings.join('\n')}\n`)
  const wrapper = join(folder, 'ssh')
  await writeFile(wrapper, `#!/bin/sh\nexec ssh -F '${config}' "$@"\n`)
  await chmod(wrapper, 0o755)
  return wrapper
}

async function pipe(ssh: string, host: LibvirtHost, file: string, volume: string): Promise<void> {
  await using handle = await open(file)
  const command = `cat > '${join(host.poolDir, volume)}'`
  const child = spawn(ssh, [host.sshHost, command], { stdio: [handle.fd, 'inherit', 'inherit'] })
  const [status] = (await once(child, 'close')) as [number | null]
  if (status !== 0) throw new Error(`ssh ended with status ${status}`)
}

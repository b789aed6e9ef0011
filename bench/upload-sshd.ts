// One more sshd on a libvirt host that offers a single cipher, so that whoever connects uses the same one.
import { readFile, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { eventually } from '../test/support/eventually.ts'
import type { LibvirtHost } from '../test/support/libvirt-host.ts'

export interface BenchSshd {
  readonly port: number
  readonly knownHostsFile: string
  stop(): Promise<void>
}

export async function startBenchSshd(host: LibvirtHost, folder: string, cipher: string): Promise<BenchSshd> {
  const port = host.sshPort + 1
  const keys = dirname(host.sshKeyPath)
  const pidFile = `/run/bench-sshd-${port}.pid`
  const settings = {
    ListenAddress: host.sshHost,
    Port: port,
    HostKey: join(keys, 'host_ed25519'),
    AuthorizedKeysFile: join(keys, 'authorized_keys'),
    PidFile: pidFile,
    Ciphers: cipher,
    StrictModes: 'no',
    UsePAM: 'no',
    PermitRootLogin: 'prohibit-password',
    PasswordAuthentication: 'no',
    KbdInteractiveAuthentication: 'no',
    LogLevel: 'ERROR',
  }
  const options = Object.entries(settings).flatMap(([name, value]) => ['-o', `${name}=${value}`])
  await host.exec(['/usr/sbin/sshd', '-f', '/dev/null', ...options])
  const pid = await eventually('the sshd’s pid', 30_000, async () => (await host.exec(['cat', pidFile])).trim())
  const knownHostsFile = join(folder, 'known_hosts')
  const known = await readFile(host.knownHostsPath, 'utf8')
  await writeFile(knownHostsFile, known.replaceAll(`]:${host.sshPort} `, `]:${port} `))
  return {
    port,
    knownHostsFile,
    stop: async () => {
      await host.exec(['kill', pid])
    },
  }
}

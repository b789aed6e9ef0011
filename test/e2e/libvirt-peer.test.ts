// The real libvirtd is held to the same suite as the stub, over the real sshd, so that the stub cannot drift from it.
import { systemClock } from '../../src/lib/clock.ts'
import { loadCredentials } from '../../src/wire/ssh/credentials.ts'
import { dialSsh } from '../../src/wire/ssh/dial.ts'
import { describe } from 'vitest'
import { canRun } from '../support/e2e/availability.ts'
import { libvirtPeerSuite } from '../support/libvirt-peer/suite.ts'
import { libvirtHostAvailable, startLibvirtHost } from '../support/libvirt-host.ts'

const runs = canRun('the libvirt suite against a real daemon', [libvirtHostAvailable()])

describe.skipIf(!runs)('real', () => {
  libvirtPeerSuite('libvirtd', async () => {
    const host = await startLibvirtHost()
    const ssh = await dialSsh({
      address: `${host.sshHost}:${host.sshPort}`,
      user: host.sshUser,
      credentials: await loadCredentials({
        keyFile: host.sshKeyPath,
        knownHostsFile: host.knownHostsPath,
        insecureIgnoreHostKey: false,
      }),
      signal: new AbortController().signal,
      clock: systemClock,
      timeoutMs: 60_000,
    })
    return {
      open: () => ssh.openStreamLocal(host.socketPath, { signal: new AbortController().signal, timeoutMs: 60_000 }),
      pool: host.pool,
      poolDir: host.poolDir,
      bridge: host.bridge,
      close: async () => {
        await ssh.close()
        await host.down()
      },
    }
  })
})

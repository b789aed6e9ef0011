// The stub is held to the suite of libvirt daemons, over SSH as the product reaches it.
import { systemClock } from '../../src/lib/clock.ts'
import { loadCredentials } from '../../src/wire/ssh/credentials.ts'
import { dialSsh } from '../../src/wire/ssh/dial.ts'
import { libvirtPeerSuite } from '../support/libvirt-peer/suite.ts'
import { startLibvirtStub } from '../support/libvirt-stub/stub.ts'

libvirtPeerSuite('the libvirt stub', async () => {
  const stub = await startLibvirtStub({ proxyPort: 0 })
  const { address, user, keyFile, knownHostsFile } = stub
  const ssh = await dialSsh({
    address,
    user,
    credentials: await loadCredentials({ keyFile, knownHostsFile, insecureIgnoreHostKey: false }),
    signal: new AbortController().signal,
    clock: systemClock,
    timeoutMs: 60_000,
  })
  return {
    open: () => ssh.openStreamLocal(stub.socketPath, { signal: new AbortController().signal, timeoutMs: 60_000 }),
    pool: 'default',
    poolDir: '/var/lib/libvirt/images',
    bridge: 'br0',
    close: async () => {
      await ssh.close()
      await stub.close()
    },
  }
})

// Both types against our own libvirtd, by the suite that people run against a host of theirs with make test-integration-kvm2 and -kvm.
import { describe } from 'vitest'
import { silentLogger } from '../../src/observe/logger.ts'
import { canRun } from '../support/e2e/availability.ts'
import { startImageServer } from '../support/e2e/image-server.ts'
import { libvirtHostAvailable, startLibvirtHost } from '../support/libvirt-host.ts'
import type { ProviderHost } from '../support/libvirt-provider/provider-host.ts'
import { libvirtProviderSuite } from '../support/libvirt-provider/suite.ts'

const runs = canRun('the provider suite against a real libvirtd', [libvirtHostAvailable()])

describe.runIf(runs)('our own libvirtd', () => {
  libvirtProviderSuite('kvm2', silentLogger, open)
  libvirtProviderSuite('kvm', silentLogger, open)
})

async function open(): Promise<ProviderHost> {
  const host = await startLibvirtHost()
  const images = await startImageServer(host.gateway, { tiny: host.images.tiny })
  return {
    name: 'own',
    address: `${host.sshHost}:${host.sshPort}`,
    user: host.sshUser,
    socket: host.socketPath,
    pool: host.pool,
    bridge: host.bridge,
    keyFile: host.sshKeyPath,
    knownHostsFile: host.knownHostsPath,
    imageUrl: images.url('tiny'),
    advice: `Its logs are in ${host.logDir}`,
    close: async () => {
      await images.close()
      await host.down()
    },
  }
}

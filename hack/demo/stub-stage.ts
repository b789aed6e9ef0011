// The stage of `make demo`: Kubernetes API, libvirt host and image mirror in this process, on loopback and ports of the system's choice.
import { writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { once } from 'node:events'
import { join } from 'node:path'
import { KubeClient } from '../../src/kube/client.ts'
import { errorMessage } from '../../src/lib/errors.ts'
import { proxyResource } from '../../src/reconcile/resources.ts'
import { startImageServer } from '../../test/support/e2e/image-server.ts'
import { sampleProvider, sampleProxy, writeProviders, type ProxyManifest } from '../../test/support/e2e/samples.ts'
import { startTargetServers } from '../../test/support/e2e/target-server.ts'
import { qcow2Header } from '../../test/support/libvirt-stub/model/formats.ts'
import { startLibvirtStub } from '../../test/support/libvirt-stub/stub.ts'
import { startProductApi } from '../../test/support/product-kinds.ts'
import type { OpenStage } from './stage.ts'

const loopback = '127.0.0.1'
const imageBytes = 4 * 2 ** 20
/** So that the table shows what a real VM spends most of its time with. */
const bootDelayMs = 1500
const addressDelayMs = 300

export const openStubStage: OpenStage = async ({ closing, folder, logFile }) => {
  await requireLoopbackRange()
  const api = closing.adopt(await startProductApi(), (it) => it.stop())
  const stub = closing.adopt(await startLibvirtStub({ bootDelayMs }), (it) => it.close())
  stub.knobs.addressDelayMs = addressDelayMs
  const pages = closing.adopt(await startTargetServers(loopback), (it) => it.close())
  const imageFile = join(folder, 'image.qcow2')
  await writeFile(imageFile, Buffer.concat([qcow2Header({ capacity: 2 ** 30 }), Buffer.alloc(imageBytes)]))
  const images = closing.adopt(await startImageServer(loopback, { 'image.qcow2': imageFile }), (it) => it.close())

  const [sshHost = '', sshPort = ''] = stub.address.split(':')
  const provider = await sampleProvider(
    {
      sshHost,
      sshPort: Number(sshPort),
      sshUser: stub.user,
      sshKeyPath: stub.keyFile,
      knownHostsPath: stub.knownHostsFile,
      socketPath: stub.socketPath,
      pool: 'default',
      bridge: 'br0',
    },
    { block: { images: { 'debian-13': { url: images.url('image.qcow2') } } } },
  )
  const providersConfigFile = join(folder, 'providers.yaml')
  await writeProviders(providersConfigFile, [provider])
  const kubeconfigFile = join(folder, 'kubeconfig')
  await api.writeKubeconfig(kubeconfigFile)
  const client = closing.adopt(KubeClient.fromKubeconfig({ text: api.kubeconfig() }), (it) => it.close())
  const sample = await sampleProxy('proxy-kvm2-sample', {})
  const renamed = (name: string): ProxyManifest => ({ ...sample, metadata: { ...sample.metadata, name } })

  return {
    description: [
      'egress-proxies-operator at work, on this machine alone. Real: the operator, HTTP, SSH, libvirt RPC, and proxies that proxy.',
      '',
      `  Kubernetes API  ${api.url}, in this process`,
      `  libvirt host    ${stub.address} (SSH), a stub in this process: its VMs are forward proxies on loopback addresses`,
      `  pages to fetch  ${pages.httpUrl} and ${pages.httpsUrl}: they tell the client's address`,
    ],
    kubeconfigFile,
    providersConfigFile,
    allowLoopback: true,
    proxies: ['proxy-kvm2-sample', 'proxy-kvm2-second', 'proxy-kvm2-third'].map(renamed),
    source: 'hack/samples/proxy_kvm2.yaml, under three names',
    changedUserData: `${sample.spec.cloudInit ?? ''}    # changed by the demo\n`,
    pages,
    logFile,
    stepBudgetMs: 60_000,
    command: 'make demo',
    next: [
      {
        command: 'make demo-libvirt',
        meaning: 'the same on a real API server, a real libvirtd and a real VM (Debian or Ubuntu, root)',
      },
      { command: 'make stub-libvirt', meaning: 'the stub alone, for an operator or a virsh of your own' },
    ],
    apply: async (proxies) => {
      for (const proxy of proxies) await client.create(proxyResource, { ...proxy })
    },
    inventory: () =>
      Promise.resolve({
        instances: stub.domains().map(({ name, id }) => ({ name, run: id === -1 ? undefined : id })),
        files: stub
          .volumes()
          .map(({ name }) => name)
          .sort(),
      }),
  }
}

/** Linux answers on all of 127/8; elsewhere the addresses of the VMs would have to be added to the loopback interface. */
async function requireLoopbackRange(): Promise<void> {
  const probe = createServer()
  try {
    probe.listen(0, '127.0.1.1')
    await once(probe, 'listening')
  } catch (cause) {
    throw new Error(
      `the demo's VMs are addresses such as 127.0.1.1, and this machine does not let them be used (${errorMessage(cause)}); run it on Linux`,
      { cause },
    )
  }
  const closed = once(probe, 'close')
  probe.close()
  await closed
}

// The stage of `make demo`: Kubernetes API, libvirt host and image mirror in this process, on loopback and ports of the system's choice.
import { once } from 'node:events'
import { createServer } from 'node:net'
import { errorMessage } from '../../src/lib/errors.ts'
import { proxyResource } from '../../src/reconcile/resources.ts'
import { sampleProxy, type ProxyManifest } from '../../test/support/e2e/samples.ts'
import { startStubWorld } from '../../test/support/stub-world.ts'
import type { OpenStage } from './stage.ts'

/** So that the table shows what a real VM spends most of its time with. */
const bootDelayMs = 1500
const addressDelayMs = 300

export const openStubStage: OpenStage = async ({ closing, logFile }) => {
  await requireLoopbackRange()
  const world = closing.use(await startStubWorld({ bootDelayMs }))
  const { api, client, stub, pages } = world
  stub.knobs.addressDelayMs = addressDelayMs
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
    kubeconfigFile: world.kubeconfigFile,
    providersConfigFile: world.providersConfigFile,
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

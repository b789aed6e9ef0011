// The stage of `make demo-libvirt`: a real control plane, a real libvirt host with a VM of the tiny image, started for the demo and ended
// with it. It installs packages only when told to (INSTALL=1, or CI=true).
import { readFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { clusterAvailable, startCluster } from '../../test/support/cluster.ts'
import { viewOf } from '../../test/support/e2e/host-view.ts'
import { startImageServer } from '../../test/support/e2e/image-server.ts'
import { proxyUserData, sampleProvider, sampleProxy, writeProviders } from '../../test/support/e2e/samples.ts'
import { startTargetServers } from '../../test/support/e2e/target-server.ts'
import { libvirtHostAvailable, startLibvirtHost } from '../../test/support/libvirt-host.ts'
import type { OpenStage } from './stage.ts'

const crds = resolve(import.meta.dirname, '../../crds')

/** An emulated VM on a busy machine takes minutes; a demo that is stuck should say so all the same. */
const stepBudgetMs = 300_000

export const openLibvirtStage: OpenStage = async ({ closing, folder, logFile, say, signal }) => {
  requireMachine()
  say(
    'Starting a control plane (etcd, kube-apiserver, kube-controller-manager). The first time its programs are compiled, which takes minutes.',
  )
  const cluster = closing.adopt(await startCluster({ signal }), (it) => it.down())
  await cluster.kubectl(['apply', '-f', crds], { signal })
  await cluster.kubectl(['wait', '--for=condition=Established', '--timeout=60s', '-f', crds], { signal })
  say('Starting a libvirt host (virtlogd, libvirtd, sshd, a bridge with DHCP). The first time its image is built.')
  const host = closing.adopt(await startLibvirtHost({ signal }), (it) => it.down())
  const view = viewOf(host)
  const pages = closing.adopt(await startTargetServers(host.gateway), (it) => it.close())
  const images = closing.adopt(await startImageServer(host.gateway, { 'tiny.qcow2': host.images.tiny }), (it) =>
    it.close(),
  )
  const providersConfigFile = join(folder, 'providers.yaml')
  await writeProviders(providersConfigFile, [
    await sampleProvider(host, { block: { images: { tiny: { url: images.url('tiny.qcow2') } } } }),
  ])
  const proxy = await sampleProxy('proxy-kvm2-sample', {
    placement: { zone: 'kvm-1', machineType: 'small', image: 'tiny' },
    cloudInit: proxyUserData('first'),
  })
  const speed = host.accel === 'kvm' ? 'with KVM' : 'emulated: this machine has no KVM, and each VM takes half a minute'

  return {
    description: [
      'egress-proxies-operator at work, on a real API server and a real libvirt host.',
      '',
      `  Kubernetes API  ${await serverOf(cluster.kubeconfigPath)}`,
      `  libvirt host    ${host.sshHost}:${host.sshPort} (SSH), VMs run ${speed}`,
      `  pages to fetch  ${pages.httpUrl} and ${pages.httpsUrl}: they tell the client's address`,
    ],
    kubeconfigFile: cluster.kubeconfigPath,
    providersConfigFile,
    allowLoopback: false,
    proxies: [proxy],
    source: 'hack/samples/proxy_kvm2.yaml, with a tiny image and tinyproxy in the place of Debian and Squid',
    changedUserData: proxyUserData('second'),
    pages,
    logFile,
    stepBudgetMs,
    command: 'make demo-libvirt',
    next: [],
    apply: async (proxies) => {
      const list = { apiVersion: 'v1', kind: 'List', items: proxies }
      await cluster.kubectl(['apply', '-f', '-'], { input: JSON.stringify(list), signal })
    },
    inventory: async () => {
      const domains = await view.domains()
      return { instances: domains.map(({ name, id }) => ({ name, run: id })), files: await view.files() }
    },
  }
}

function requireMachine(): void {
  const parts = Object.entries({ 'the control plane': clusterAvailable(), 'the libvirt host': libvirtHostAvailable() })
  const missing = parts.flatMap(([part, available]) =>
    available.kind === 'no' ? [`${part}: ${available.reason}`] : [],
  )
  if (missing.length > 0) throw new Error(['this machine cannot run it as it is', ...missing].join('\n  '))
}

async function serverOf(kubeconfigFile: string): Promise<string> {
  return /^\s*server:\s*(\S+)/m.exec(await readFile(kubeconfigFile, 'utf8'))?.[1] ?? kubeconfigFile
}

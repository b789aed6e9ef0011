// Everything around an operator, in this process: Kubernetes API, libvirt host, image mirror, pages to fetch. For tests and the demo; the
// operator itself is started apart, so that it can be stopped and started again in the same world.
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { KubeClient } from '../../src/kube/client.ts'
import { startImageServer, type ImageServer } from './e2e/image-server.ts'
import { sampleProvider, writeProviders } from './e2e/samples.ts'
import { startTargetServers, type TargetServers } from './e2e/target-server.ts'
import type { KubeApi } from './kube-api/kube-api.ts'
import { qcow2Header } from './libvirt-stub/model/formats.ts'
import { startLibvirtStub, type LibvirtStub, type LibvirtStubOptions } from './libvirt-stub/stub.ts'
import { startProductApi } from './product-kinds.ts'

export interface StubWorld extends AsyncDisposable {
  readonly api: KubeApi
  /** A user's, with all rights. */
  readonly client: KubeClient
  readonly stub: LibvirtStub
  /** Serves `image.qcow2`, of {@link imageBytes}. */
  readonly images: ImageServer
  /** Pages to ask for through proxies. */
  readonly pages: TargetServers
  /** The sample, with this stub for its host and this mirror's image as `debian-13`. */
  readonly providersConfigFile: string
  readonly kubeconfigFile: string
}

export const imageBytes = 4 * 2 ** 20
/** What the image leaves in the pool for good. */
export const baseFiles = ['', '.info', '.sha256'].map((suffix) => `base-debian-13.qcow2${suffix}`)

const loopback = '127.0.0.1'

export async function startStubWorld(options: LibvirtStubOptions = {}): Promise<StubWorld> {
  await using undo = new AsyncDisposableStack()
  const folder = await mkdtemp(join(tmpdir(), 'egress-proxies-world-'))
  undo.defer(() => rm(folder, { recursive: true }))
  const api = undo.use(await startProductApi())
  const stub = undo.adopt(await startLibvirtStub(options), (it) => it.close())
  const pages = undo.adopt(await startTargetServers(loopback), (it) => it.close())
  const imageFile = join(folder, 'image.qcow2')
  await writeStubImage(imageFile)
  const images = undo.adopt(await startImageServer(loopback, { 'image.qcow2': imageFile }), (it) => it.close())
  const providersConfigFile = join(folder, 'providers.yaml')
  const image = { url: images.url('image.qcow2') }
  await writeProviders(providersConfigFile, [
    await sampleProvider(accessTo(stub), { block: { images: { 'debian-13': image } } }),
  ])
  const kubeconfigFile = join(folder, 'kubeconfig')
  await api.writeKubeconfig(kubeconfigFile)
  const client = undo.adopt(KubeClient.fromKubeconfig({ text: api.kubeconfig() }), (it) => it.close())
  const end = undo.move()
  return {
    api,
    client,
    stub,
    images,
    pages,
    providersConfigFile,
    kubeconfigFile,
    [Symbol.asyncDispose]: () => end.disposeAsync(),
  }
}

/** How an operator gets at the stub. */
export function accessTo(stub: LibvirtStub): Parameters<typeof sampleProvider>[0] {
  const [sshHost = '', sshPort = ''] = stub.address.split(':')
  return {
    sshHost,
    sshPort: Number(sshPort),
    sshUser: stub.user,
    sshKeyPath: stub.keyFile,
    knownHostsPath: stub.knownHostsFile,
    socketPath: stub.socketPath,
    pool: 'default',
    bridge: 'br0',
  }
}

/** An image that the stub can boot, of {@link imageBytes}. */
export async function writeStubImage(file: string): Promise<void> {
  const header = qcow2Header({ capacity: 2 ** 30 })
  await writeFile(file, Buffer.concat([header, Buffer.alloc(imageBytes - header.length)]))
}

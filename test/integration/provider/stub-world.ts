// A kvm2 provider over the SSH+libvirt stub and a real HTTP server of images; what the tests of this folder begin with.
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { systemClock } from '../../../src/lib/clock.ts'
import { Secret } from '../../../src/lib/secret.ts'
import { createLogger } from '../../../src/observe/logger.ts'
import { createMetrics, type Metrics } from '../../../src/observe/metrics.ts'
import type { CreateContext, CreateRequest, DeleteRequest, Owner, Provider } from '../../../src/provider/contract.ts'
import { decorateProvider } from '../../../src/provider/decorate.ts'
import { ProviderError } from '../../../src/provider/errors.ts'
import { kvm2BlockSchema, kvmBlockSchema, normaliseLibvirtBlock } from '../../../src/provider/libvirt/config.ts'
import { createKvm2Provider, createKvmProvider, type LibvirtDeps } from '../../../src/provider/libvirt/provider.ts'
import { createImageSharing } from '../../../src/provider/libvirt/image-sharing.ts'
import { instanceName } from '../../../src/provider/names.ts'
import { startLibvirtStub, type LibvirtStub, type LibvirtStubOptions } from '../../support/libvirt-stub/stub.ts'

export const installation = 'home'
export const userData = '#cloud-config\n# canary-user-data\n'
export const imageBytes = Buffer.alloc(600_000, 'QFI image bytes ')

export type Answer = (request: IncomingMessage, response: ServerResponse) => void

export interface World extends AsyncDisposable {
  readonly stub: LibvirtStub
  readonly images: { readonly url: string; readonly requests: string[]; answer: Answer }
  /** Every line logged so far, at the lowest level. */
  readonly lines: Record<string, unknown>[]
  readonly metrics: Metrics
  /** A provider of its own, as a new operator process would have; closed with the world. */
  provider(block?: object, deps?: Partial<LibvirtDeps>, type?: 'kvm2' | 'kvm'): Provider
}

export async function startWorld(options: LibvirtStubOptions = {}): Promise<World> {
  const stub = await startLibvirtStub(options)
  const images = { url: '', requests: [] as string[], answer: wholeImage }
  const server = createServer((request, response) => {
    images.requests.push(`${request.method ?? ''} ${request.url ?? ''}`)
    images.answer(request, response)
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  images.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/image.qcow2`
  const lines: Record<string, unknown>[] = []
  const metrics = createMetrics()
  const log = createLogger({
    level: 'trace',
    destination: { write: (line) => void lines.push(JSON.parse(line) as Record<string, unknown>) },
  })
  const providers: Provider[] = []
  return {
    stub,
    images,
    lines,
    metrics,
    provider(block = {}, deps = {}, type = 'kvm2') {
      const schema = type === 'kvm2' ? kvm2BlockSchema : kvmBlockSchema
      const parsed = schema.parse({
        sshKeyFile: stub.keyFile,
        knownHostsFile: stub.knownHostsFile,
        diskSizeGb: 1,
        images: { tiny: { url: images.url } },
        machineTypes: { small: { vcpus: 1, memoryMiB: 512 } },
        hosts: [{ name: 'lab', address: stub.address, user: stub.user, socket: stub.socketPath, bridge: 'br0' }],
        ...block,
      })
      const common = { name: 'kvm2-lab', maxConcurrentCreates: 4 }
      const config = normaliseLibvirtBlock(parsed)
      const parts = { clock: systemClock, random: Math.random, log, metrics, installation }
      const imageSharing = createImageSharing(systemClock)
      const addressPolicy = { allowLoopback: true }
      const allDeps = { ...parts, imageSharing, addressPolicy, ...deps }
      const plain =
        type === 'kvm2'
          ? createKvm2Provider({ ...common, kvm2: config }, allDeps)
          : createKvmProvider({ ...common, kvm: config }, allDeps)
      const provider = decorateProvider(plain, parts)
      providers.push(provider)
      return provider
    },
    async [Symbol.asyncDispose]() {
      await Promise.all(providers.map((provider) => provider.close()))
      server.closeAllConnections()
      server.close()
      await stub.close()
    },
  }
}

export const wholeImage: Answer = (request, response) => {
  response.writeHead(200, { 'content-length': imageBytes.byteLength })
  response.end(request.method === 'HEAD' ? undefined : imageBytes)
}

export function ownerOf(name: string): Owner {
  return { uid: `uid-${name}`, installation, namespace: 'default', name }
}

export function createRequest(name = 'a', change: Partial<CreateRequest> = {}): CreateRequest {
  const owner = ownerOf(name)
  return {
    owner,
    instanceName: instanceName(owner),
    specHash: 'v1:1',
    placement: { machineType: 'small', image: 'tiny' },
    userData: new Secret(Buffer.from(userData)),
    intents: [],
    ...change,
  }
}

export function deleteRequest(name = 'a', change: Partial<DeleteRequest> = {}): DeleteRequest {
  const owner = ownerOf(name)
  return { owner, instanceName: instanceName(owner), intents: [{ target: 'lab' }], ...change }
}

export function context(change: Partial<CreateContext> = {}): CreateContext {
  return {
    signal: new AbortController().signal,
    mayMutate: () => true,
    isLive: () => Promise.resolve(false),
    record: () => Promise.resolve(),
    progress: () => undefined,
    ...change,
  }
}

/** Of the pool, sorted. */
export function volumeNames(world: World): string[] {
  return world.stub
    .volumes()
    .map((volume) => volume.name)
    .sort()
}

/** What is left of an image when everything else is gone. */
export const cachedImage = ['base-tiny.qcow2', 'base-tiny.qcow2.info', 'base-tiny.qcow2.sha256']

/** The error that a call must end with. */
export async function failure(promise: Promise<unknown>): Promise<ProviderError> {
  const error: unknown = await promise.then(
    () => new Error('it did not fail'),
    (thrown: unknown) => thrown,
  )
  if (error instanceof ProviderError) return error
  throw error
}

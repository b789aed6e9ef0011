// A kvm2 provider over fake hosts and a fake image server, for the tests of this folder; each call of `operator` is a fresh process.
import { createHash } from 'node:crypto'
import type { CreateContext, CreateRequest, DeleteRequest, Intent, Owner } from '../../../../src/provider/contract.ts'
import { Secret } from '../../../../src/lib/secret.ts'
import { systemClock } from '../../../../src/lib/clock.ts'
import { silentLogger } from '../../../../src/observe/logger.ts'
import { createMetrics } from '../../../../src/observe/metrics.ts'
import { defaultBudgets } from '../../../../src/provider/libvirt/budgets.ts'
import { kvm2BlockSchema, normaliseLibvirtBlock } from '../../../../src/provider/libvirt/config.ts'
import type { ImageServer } from '../../../../src/provider/libvirt/image-http.ts'
import { createKvm2Provider, type LibvirtDeps } from '../../../../src/provider/libvirt/provider.ts'
import { createImageSharing } from '../../../../src/provider/libvirt/image-sharing.ts'
import { instanceName } from '../../../../src/provider/names.ts'
import type { FakeHost } from './fake-host.ts'

export const installation = 'home'
export const owner: Owner = { uid: 'uid-1', installation, namespace: 'default', name: 'a' }
export const name = instanceName(owner)
export const imageBytes = Buffer.alloc(3000, 'image')
export const imageDigest = createHash('sha256').update(imageBytes).digest('hex')

/** A server with one image at every URL, in chunks of 1000 bytes. */
export function imageServer(
  answers: Partial<{
    status: number
    length: number | undefined
    body: Buffer
    isChunked: boolean
    encoding: string
    isDowngraded: boolean
  }> = {},
): ImageServer & { asked: string[] } {
  const asked: string[] = []
  const body = answers.body ?? imageBytes
  async function* chunks(): AsyncIterable<Uint8Array> {
    for (let at = 0; at < body.byteLength; at += 1000) yield await Promise.resolve(body.subarray(at, at + 1000))
  }
  return {
    asked,
    ask(method) {
      asked.push(method)
      return Promise.resolve({
        status: answers.status ?? 200,
        lengthBytes: 'length' in answers ? answers.length : imageBytes.byteLength,
        isChunked: answers.isChunked ?? false,
        encoding: answers.encoding,
        isDowngraded: answers.isDowngraded ?? false,
        body: chunks(),
        discard: () => undefined,
      })
    },
    close: () => Promise.resolve(),
  }
}

const block = {
  sshKeyFile: '/k',
  knownHostsFile: '/h',
  diskSizeGb: 1,
  images: { debian: { url: 'https://images.example/d.qcow2' } },
  machineTypes: { small: { vcpus: 1, memoryMiB: 512 } },
  hosts: [{ name: 'a', address: 'a.example:22', user: 'u', bridge: 'br0' }],
}

export function config(change: object = {}) {
  return normaliseLibvirtBlock(kvm2BlockSchema.parse({ ...block, ...change }))
}

export function operator(
  host: FakeHost,
  deps: Partial<LibvirtDeps> & { readonly block?: object; readonly maxConcurrentCreates?: number } = {},
) {
  return createKvm2Provider(
    { name: 'kvm2-home', maxConcurrentCreates: deps.maxConcurrentCreates ?? 4, kvm2: config(deps.block) },
    {
      clock: systemClock,
      random: Math.random,
      log: silentLogger,
      metrics: createMetrics(),
      installation,
      imageSharing: createImageSharing(systemClock),
      imageServer: imageServer(),
      dial: () => Promise.resolve(host.session()),
      budgets: { ...defaultBudgets, runningPollMs: 1, claimUnsignedMs: 30, claimPollMs: 5 },
      ...deps,
    },
  )
}

export function createRequest(change: Partial<CreateRequest> = {}): CreateRequest {
  return {
    owner,
    instanceName: name,
    specHash: 'v1:1',
    placement: { machineType: 'small', image: 'debian' },
    userData: new Secret(Buffer.from('#cloud-config\n')),
    intents: [],
    ...change,
  }
}

export function deleteRequest(change: Partial<DeleteRequest> = {}): DeleteRequest {
  return { owner, instanceName: name, intents: [{ target: 'a' }], ...change }
}

export function context(change: Partial<CreateContext> = {}): CreateContext & { recorded: Intent[]; said: string[] } {
  const recorded: Intent[] = []
  const said: string[] = []
  return {
    recorded,
    said,
    signal: new AbortController().signal,
    mayMutate: () => true,
    isLive: () => Promise.resolve(false),
    record: (intent) => {
      recorded.push(intent)
      return Promise.resolve()
    },
    progress: (message) => said.push(message),
    ...change,
  }
}

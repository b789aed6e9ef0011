// The stub is good enough for the product: the kvm2 provider makes, finds and removes an instance on it, over SSH and HTTP.
import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { systemClock } from '../../src/lib/clock.ts'
import { Secret } from '../../src/lib/secret.ts'
import { silentLogger } from '../../src/observe/logger.ts'
import { createMetrics } from '../../src/observe/metrics.ts'
import type { CreateContext, CreateRequest, Owner, Provider } from '../../src/provider/contract.ts'
import { kvm2BlockSchema, normaliseLibvirtBlock } from '../../src/provider/libvirt/config.ts'
import { kvm2Flavour } from '../../src/provider/libvirt/flavour.ts'
import { createKvm2Provider } from '../../src/provider/libvirt/provider.ts'
import { createImageSharing } from '../../src/provider/libvirt/image-sharing.ts'
import { instanceName } from '../../src/provider/names.ts'
import { getThrough } from '../support/e2e/through-proxy.ts'
import { eventually } from '../support/eventually.ts'
import { fakeQcow2 } from '../support/libvirt-peer/volumes.ts'
import { startLibvirtStub, type LibvirtStub } from '../support/libvirt-stub/stub.ts'

const budgetMs = 60_000
const owner: Owner = { uid: 'uid-1', installation: 'home', namespace: 'default', name: 'a' }
const name = instanceName(owner)
const image = fakeQcow2(2 * 2 ** 30)

let stub: LibvirtStub
let web: Server
let provider: Provider

beforeEach(async () => {
  stub = await startLibvirtStub()
  web = createServer((request, response) => {
    if (request.url !== '/demo.qcow2') return response.end('the page')
    response.setHeader('content-length', image.length)
    return response.end(request.method === 'HEAD' ? undefined : image)
  })
  web.listen(0, '127.0.0.1')
  await once(web, 'listening')
  provider = newProvider()
})
afterEach(async () => {
  await provider.close()
  web.close()
  await stub.close()
})

function webUrl(path: string): string {
  return `http://127.0.0.1:${(web.address() as AddressInfo).port}${path}`
}

function newProvider(): Provider {
  const block = kvm2BlockSchema.parse({
    sshKeyFile: stub.keyFile,
    knownHostsFile: stub.knownHostsFile,
    diskSizeGb: 1,
    images: { demo: { url: webUrl('/demo.qcow2') } },
    machineTypes: { small: { vcpus: 1, memoryMiB: 512 } },
    hosts: [{ name: 'stub', address: stub.address, user: stub.user, socket: stub.socketPath, bridge: 'br0' }],
  })
  return createKvm2Provider(
    { name: 'kvm2-stub', maxConcurrentCreates: 4, kvm2: normaliseLibvirtBlock(block) },
    {
      clock: systemClock,
      random: Math.random,
      log: silentLogger,
      metrics: createMetrics(),
      installation: owner.installation,
      imageSharing: createImageSharing(systemClock),
      addressPolicy: { allowLoopback: true },
    },
  )
}

const signal = new AbortController().signal
const context: CreateContext = {
  signal,
  mayMutate: () => true,
  isLive: () => Promise.resolve(false),
  record: () => Promise.resolve(),
  progress: () => undefined,
}

function request(): CreateRequest {
  return {
    owner,
    instanceName: name,
    specHash: 'v1:1',
    placement: { machineType: 'small', image: 'demo' },
    userData: new Secret(Buffer.from('#cloud-config\n')),
    intents: [],
  }
}

const remove = () => provider.delete({ owner, instanceName: name, intents: [{ target: 'stub' }] }, context)

describe('the kvm2 provider on the stub', () => {
  it('makes an instance that is a proxy, finds it in every way, and leaves only the image', async () => {
    const providerID = await provider.create(request(), context)
    expect(providerID).toBe(`hosts/stub/domains/${name}`)
    const instance = await eventually('its address', budgetMs, async () => {
      const seen = await provider.get(providerID, { signal })
      return seen.ip === undefined ? undefined : { ...seen, ip: seen.ip }
    })
    expect(instance).toMatchObject({ state: 'running', uid: 'uid-1', specHash: 'v1:1' })
    expect((await getThrough(`http://${instance.ip}:3128`, webUrl('/'))).body).toBe('the page')
    expect([...(await provider.observe('stub', { signal }))]).toEqual([[providerID, 'running']])
    expect(await provider.list({ signal })).toMatchObject([
      { providerID, mark: { uid: 'uid-1', installation: 'home' } },
    ])
    expect(stub.domain(name)).toMatchObject({ state: 'running', autostart: true, persistent: true })
    expect(stub.domain(name)?.metadata(kvm2Flavour.markNamespace)).toContain('<uid>uid-1</uid>')
    expect(stub.domain(name)?.userData?.toString()).toBe('#cloud-config\n')
    expect(stub.volume('base-demo.qcow2')).toMatchObject({ format: 'qcow2', capacity: 2 * 2 ** 30 })
    expect(stub.volume(`${name}.qcow2`)?.backingPath).toBe('/var/lib/libvirt/images/base-demo.qcow2')

    await remove()
    expect(stub.domains()).toEqual([])
    expect(stub.volumes().filter((volume) => !volume.name.startsWith('base-demo.'))).toEqual([])
    expect(stub.volume('base-demo.qcow2')).toBeDefined()
    expect(
      stub.volumes().some((volume) => volume.bytes().toString() === stub.volume('base-demo.qcow2')?.sha256()),
    ).toBe(true)
  })

  it('tells how the host is', async () => {
    const [ready] = await provider.check({ signal })
    expect(ready).toMatchObject({ name: 'stub', ready: true, reason: 'Reachable' })
    stub.pool().active = false
    expect((await provider.check({ signal }))[0]).toMatchObject({ ready: false, reason: 'PoolNotActive' })
    stub.pool().active = true
    stub.knobs.refuseForwarding = true
    expect((await provider.check({ signal }))[0]).toMatchObject({ ready: false, reason: 'Unreachable' })
  })

  it.each([
    'STORAGE_VOL_CREATE_XML',
    'STORAGE_POOL_REFRESH',
    'STORAGE_VOL_UPLOAD',
    'DOMAIN_DEFINE_XML',
    'DOMAIN_CREATE',
  ] as const)('ends with one instance when the first try lost its host in %s', async (procedure) => {
    const release = stub.knobs.hang(procedure, 'after')
    const heard = stub.nextCall(procedure)
    const lost = provider.create(request(), context).catch((error: unknown) => error)
    await heard
    stub.cutConnections()
    expect(await lost).toMatchObject({ kind: 'transient' })
    release()
    await provider.close()
    provider = newProvider()
    await provider.create(request(), context)
    expect(stub.domains()).toHaveLength(1)
    expect(stub.domain(name)?.state).toBe('running')
    await remove()
    expect(stub.domains()).toEqual([])
    expect(stub.volumes().filter((volume) => volume.name.startsWith(name))).toEqual([])
  })
})

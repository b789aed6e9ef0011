// The kvm2 provider against a real libvirtd over a real sshd: what only they can show. The operator around it has suites of its own.
import { randomUUID } from 'node:crypto'
import { readFile, stat, writeFile } from 'node:fs/promises'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { createReadStream } from 'node:fs'
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { dirname, join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { systemClock } from '../../src/lib/clock.ts'
import { Secret } from '../../src/lib/secret.ts'
import { silentLogger } from '../../src/observe/logger.ts'
import { createMetrics } from '../../src/observe/metrics.ts'
import type { CreateContext, CreateRequest, DeleteRequest, Provider } from '../../src/provider/contract.ts'
import { decorateProvider } from '../../src/provider/decorate.ts'
import { kvm2BlockSchema, normaliseLibvirtBlock } from '../../src/provider/libvirt/config.ts'
import { createKvm2Provider, type LibvirtDeps } from '../../src/provider/libvirt/provider.ts'
import { createImageSharing } from '../../src/provider/libvirt/image-sharing.ts'
import { instanceName } from '../../src/provider/names.ts'
import { canRun } from '../support/e2e/availability.ts'
import { getThrough } from '../support/e2e/through-proxy.ts'
import { eventually } from '../support/eventually.ts'
import { libvirtHostAvailable, startLibvirtHost, type LibvirtHost } from '../support/libvirt-host.ts'

const bootBudgetMs = 180_000
/** Names and pools of this run alone: the host may be in use by others. */
const installation = `run-${randomUUID().slice(0, 8)}`
const pool = `kvm2-${installation}`
const tinyPort = 3128
const runs = canRun('kvm2 against a real libvirtd', [libvirtHostAvailable()])

describe.runIf(runs)('kvm2', () => {
  let host: LibvirtHost
  let images: string
  let answer: (request: IncomingMessage, response: ServerResponse) => void
  const server = createServer((request, response) => {
    if (request.url === '/page') response.end('a page')
    else answer(request, response)
  })
  const providers: Provider[] = []

  const serveTiny = (request: IncomingMessage, response: ServerResponse) => {
    void stat(host.images.tiny).then(({ size }) => {
      response.writeHead(200, { 'content-length': size })
      if (request.method === 'HEAD') response.end()
      else createReadStream(host.images.tiny).pipe(response)
    })
  }

  beforeAll(async () => {
    host = await startLibvirtHost()
    answer = serveTiny
    server.listen(0, host.gateway)
    await once(server, 'listening')
    images = `http://${host.gateway}:${(server.address() as AddressInfo).port}`
    await addPool(pool)
  })

  afterAll(async () => {
    await Promise.all(providers.map((provider) => provider.close()))
    server.closeAllConnections()
    server.close()
    await removePool(pool)
    await host.down()
  })

  const poolFolder = (name: string) => join(dirname(host.poolDir), name)
  const poolFolderOutside = (name: string) => join(dirname(host.poolDirOutside), name)

  async function addPool(name: string): Promise<void> {
    await host.virsh(['pool-define-as', name, 'dir', '--target', poolFolder(name)])
    await host.virsh(['pool-build', name])
    await host.virsh(['pool-start', name])
  }

  async function removePool(name: string): Promise<void> {
    await host.virsh(['pool-destroy', name])
    await host.virsh(['pool-undefine', name])
    await host.exec(['rm', '-rf', poolFolder(name)])
  }

  /** As a new operator process would have it. */
  function provider(
    change: { readonly host?: object; readonly block?: object } = {},
    deps: Partial<LibvirtDeps> = {},
  ): Provider {
    const block = kvm2BlockSchema.parse({
      sshKeyFile: host.sshKeyPath,
      knownHostsFile: host.knownHostsPath,
      diskSizeGb: 1,
      installGuestAgent: false,
      images: { tiny: { url: `${images}/tiny` }, other: { url: `${images}/other` } },
      machineTypes: { small: { vcpus: 1, memoryMiB: 512 } },
      hosts: [
        {
          name: 'lab',
          address: `${host.sshHost}:${host.sshPort}`,
          user: host.sshUser,
          socket: host.socketPath,
          bridge: host.bridge,
          pool,
          ...change.host,
        },
      ],
      ...change.block,
    })
    const entry = { name: 'kvm2-lab', maxConcurrentCreates: 4, kvm2: normaliseLibvirtBlock(block) }
    const parts = { clock: systemClock, random: Math.random, log: silentLogger, metrics: createMetrics(), installation }
    const made = decorateProvider(
      createKvm2Provider(entry, { ...parts, imageSharing: createImageSharing(systemClock), ...deps }),
      parts,
    )
    providers.push(made)
    return made
  }

  function proxyNamed(name: string) {
    const owner = { uid: `uid-${name}`, installation, namespace: 'default', name }
    const instance = instanceName(owner)
    const config = {
      write_files: [{ path: '/etc/tinyproxy/tinyproxy.conf', content: `Port ${tinyPort}\nViaProxyName "${name}"\n` }],
    }
    const create = (change: Partial<CreateRequest> = {}): CreateRequest => ({
      owner,
      instanceName: instance,
      specHash: 'v1:1',
      placement: { machineType: 'small', image: 'tiny' },
      userData: new Secret(Buffer.from(`#cloud-config\n${JSON.stringify(config)}\n`)),
      intents: [],
      ...change,
    })
    const remove = (change: Partial<DeleteRequest> = {}): DeleteRequest => ({
      owner,
      instanceName: instance,
      intents: [{ target: 'lab' }],
      ...change,
    })
    return { instance, providerID: `hosts/lab/domains/${instance}`, create, remove }
  }

  const context: CreateContext = {
    signal: new AbortController().signal,
    mayMutate: () => true,
    isLive: () => Promise.resolve(false),
    record: () => Promise.resolve(),
    progress: () => undefined,
  }

  async function volumes(of = pool): Promise<string[]> {
    const list = await host.virsh(['vol-list', of])
    return list
      .split('\n')
      .slice(2)
      .flatMap((line) => line.trim().split(/\s+/)[0] ?? [])
      .filter(Boolean)
      .sort()
  }

  async function domains(): Promise<string> {
    return await host.virsh(['list', '--all', '--name'])
  }

  const addressOf = (at: Provider, providerID: string) =>
    eventually(`an address of ${providerID}`, bootBudgetMs, async () => (await at.get(providerID, context)).ip)

  it('makes a VM that is a proxy, replaces it, and leaves nothing but the cached image', async () => {
    const lab = provider()
    const one = proxyNamed('one')
    expect(await lab.create(one.create(), context)).toBe(one.providerID)
    expect(await lab.create(one.create(), context)).toBe(one.providerID)
    const ip = await addressOf(lab, one.providerID)
    const page = await eventually('an answer through the proxy', bootBudgetMs, () =>
      getThrough(`http://${ip}:${tinyPort}`, `${images}/page`),
    )
    expect(page).toMatchObject({ status: 200, body: 'a page', via: expect.stringContaining('one') as string })
    expect(await lab.list(context)).toMatchObject([
      { providerID: one.providerID, state: 'running', mark: { specHash: 'v1:1' } },
    ])
    expect(await lab.create(one.create({ specHash: 'v1:2' }), context)).toBe(one.providerID)
    expect(await lab.get(one.providerID, context)).toMatchObject({ state: 'running', specHash: 'v1:2' })
    const nvram = () => host.exec(['ls', '/var/lib/libvirt/qemu/nvram'])
    expect(await nvram()).toContain(one.instance)
    expect(await lab.delete(one.remove(), context)).toEqual({ abandoned: [] })
    expect(await nvram()).not.toContain(one.instance)
    expect(await domains()).not.toContain(one.instance)
    expect(await volumes()).toEqual(['base-tiny.qcow2', 'base-tiny.qcow2.info', 'base-tiny.qcow2.sha256'])
    await expect(lab.get(one.providerID, context)).rejects.toMatchObject({ kind: 'notFound' })
  })

  it('finds a VM that somebody renamed, and deletes it under its new name', async () => {
    const lab = provider()
    const one = proxyNamed('renamed')
    await lab.create(one.create(), context)
    await host.virsh(['destroy', one.instance])
    expect(await lab.get(one.providerID, context)).toMatchObject({ state: 'stopped' })
    await host.virsh(['domrename', one.instance, `${one.instance}-by-hand`])
    const providerID = await lab.create(one.create(), context)
    expect(providerID).toBe(`hosts/lab/domains/${one.instance}-by-hand`)
    expect(await lab.get(one.providerID, context)).toMatchObject({ state: 'running', uid: 'uid-renamed' })
    await lab.delete(one.remove({ providerID }), context)
    expect(await domains()).not.toContain(one.instance)
    expect((await volumes()).filter((name) => !name.startsWith('base-'))).toEqual([])
  })

  it('says what is paused and does not resume it', async () => {
    const lab = provider()
    const one = proxyNamed('paused')
    await lab.create(one.create(), context)
    await host.virsh(['suspend', one.instance])
    expect(await lab.get(one.providerID, context)).toMatchObject({ state: 'paused' })
    await expect(lab.create(one.create(), context)).rejects.toMatchObject({
      code: 'InstancePaused',
      message: expect.stringContaining('DomainPaused (by a user)') as string,
    })
    await lab.delete(one.remove(), context)
  })

  it('writes a seed anew in place, larger, smaller, or where there was only a stump', async () => {
    const one = proxyNamed('seed')
    const seed = join(poolFolderOutside(pool), `${one.instance}-seed.iso`)
    const sizes: number[] = []
    await host.virsh(['vol-create-as', pool, `${one.instance}-seed.iso`, '100'])
    for (const bytes of [1000, 200_000, 10]) {
      const lab = provider({ block: { vendorData: `#cloud-config\n# ${'x'.repeat(bytes)}\n` } })
      await lab.create(one.create(), context)
      const content = await readFile(seed)
      // The rest of a larger one is zeros: nothing of the last one is left.
      expect(
        content
          .toString('latin1')
          .match(/x{10,}/g)
          ?.map((found) => found.length),
      ).toEqual([bytes])
      sizes.push(content.byteLength)
      await host.virsh(['destroy', one.instance])
    }
    expect(sizes[1]).toBeGreaterThan(sizes[0] ?? 0)
    expect(sizes[2]).toBe(sizes[1])
    await provider().delete(one.remove(), context)
  })

  it('names a bridge that is not there, and clears up afterwards', async () => {
    const lab = provider({ host: { bridge: 'nobr0' } })
    const one = proxyNamed('bridge')
    await expect(lab.create(one.create(), context)).rejects.toMatchObject({
      kind: 'transient',
      code: 'BridgeMissing',
      message: expect.stringContaining("'nobr0'") as string,
    })
    await lab.delete(one.remove(), context)
    expect(await domains()).not.toContain(one.instance)
  })

  it('leaves a domain of that name alone that it did not make', async () => {
    const lab = provider()
    const one = proxyNamed('foreign')
    const xml = join(poolFolderOutside(pool), 'foreign.xml')
    await writeFile(
      xml,
      `<domain type="kvm"><name>${one.instance}</name><memory unit="MiB">64</memory><os><type arch="x86_64">hvm</type></os></domain>`,
    )
    await host.virsh(['define', join(poolFolder(pool), 'foreign.xml')])
    await expect(lab.create(one.create(), context)).rejects.toMatchObject({ kind: 'permanent', code: 'MarkMissing' })
    await lab.delete(one.remove(), context)
    expect(await domains()).toContain(one.instance)
    await host.virsh(['undefine', one.instance])
    await host.exec(['rm', join(poolFolder(pool), 'foreign.xml')])
  })

  it('fetches two images into one pool at once', async () => {
    const lab = provider()
    const both = [proxyNamed('image-a'), proxyNamed('image-b')] as const
    for (const name of await volumes()) await host.virsh(['vol-delete', '--pool', pool, name])
    await Promise.all([
      lab.create(both[0].create(), context),
      lab.create(both[1].create({ placement: { machineType: 'small', image: 'other' } }), context),
    ])
    expect((await volumes()).filter((name) => name.endsWith('.sha256'))).toEqual([
      'base-other.qcow2.sha256',
      'base-tiny.qcow2.sha256',
    ])
    await Promise.all(both.map((one) => lab.delete(one.remove(), context)))
  })

  it('takes an image in chunks, which sizes its volume, while another operator waits for it', async () => {
    const one = proxyNamed('chunks')
    const two = proxyNamed('waits')
    const image = await readFile(host.images.tiny)
    const goOn = Promise.withResolvers<undefined>()
    const gets: string[] = []
    answer = (request, response) => {
      response.writeHead(200)
      if (request.method === 'HEAD') {
        response.end()
        return
      }
      gets.push(request.url ?? '')
      response.write(image.subarray(0, 2 ** 20))
      void goOn.promise.then(() => response.end(image.subarray(2 ** 20)))
    }
    const block = { images: { chunked: { url: `${images}/chunked` } } }
    const create = { placement: { machineType: 'small', image: 'chunked' } }
    try {
      const first = provider({ block }).create(one.create(create), context)
      const isClaimed = async () => (await volumes()).includes('base-chunked.qcow2.claim.1') || undefined
      await eventually('the claim', bootBudgetMs, isClaimed)
      const said: string[] = []
      const waits = { ...context, progress: (text: string) => void said.push(text) }
      const other = provider({ block }, { installation: `${installation}-2` })
      const second = other.create(two.create(create), waits)
      await eventually('somebody waits', bootBudgetMs, () => Promise.resolve(said.length > 0 || undefined))
      expect(said[0]).toBe("waiting for another operator's download of image chunked on host lab")
      goOn.resolve(undefined)
      await Promise.all([first, second])
      expect(gets).toEqual(['/chunked'])
      expect((await readFile(join(poolFolderOutside(pool), 'base-chunked.qcow2'))).equals(image)).toBe(true)
      const base = await host.virsh(['vol-dumpxml', '--pool', pool, 'base-chunked.qcow2'])
      const overlay = await host.virsh(['vol-dumpxml', '--pool', pool, `${one.instance}.qcow2`])
      expect(base).toContain("<format type='qcow2'/>")
      expect(overlay).toContain("<capacity unit='bytes'>1073741824</capacity>")
      expect((await volumes()).filter((name) => name.includes('.claim.') || name.includes('.time.'))).toEqual([])
      const named = await domains()
      expect([one, two].filter(({ instance }) => named.includes(instance))).toEqual([one, two])
    } finally {
      answer = serveTiny
      goOn.resolve(undefined)
    }
    await Promise.all([one, two].map((each) => provider().delete(each.remove(), context)))
  })

  describe('in a small pool', () => {
    const small = `${pool}-small`
    beforeAll(async () => {
      await host.exec(['mkdir', '-p', poolFolder(small)])
      await host.exec(['mount', '-t', 'tmpfs', '-o', 'size=1200m', 'tmpfs', poolFolder(small)])
      await addPool(small)
    })
    afterAll(async () => {
      await host.virsh(['pool-destroy', small])
      await host.virsh(['pool-undefine', small])
      await host.exec(['umount', poolFolder(small)])
      await host.exec(['rmdir', poolFolder(small)])
    })

    it('knows beforehand that there is no room', async () => {
      const lab = provider({ host: { pool: small }, block: { diskSizeGb: 2 } })
      await expect(lab.create(proxyNamed('large').create(), context)).rejects.toMatchObject({
        kind: 'quotaExceeded',
        code: 'PoolSpace',
      })
      expect(await volumes(small)).toEqual([])
    })

    it('takes a pool that fills up under an upload for one that is full, and leaves nothing half', async () => {
      const lab = provider({ host: { pool: small } })
      const filler = join(poolFolder(small), 'filler')
      answer = (request, response) => {
        if (request.method === 'HEAD') {
          serveTiny(request, response)
          return
        }
        void host.exec(['fallocate', '-l', '1190M', filler]).then(() => serveTiny(request, response))
      }
      try {
        await expect(lab.create(proxyNamed('full').create(), context)).rejects.toMatchObject({
          kind: 'quotaExceeded',
          code: 'PoolFull',
        })
      } finally {
        answer = serveTiny
      }
      await host.exec(['rm', filler])
      expect(await volumes(small)).toEqual(['filler'])
      await host.virsh(['pool-refresh', small])
      expect(await volumes(small)).toEqual([])
    })

    it('says that it is stopped, and how to start it', async () => {
      const lab = provider({ host: { pool: small } })
      await host.virsh(['pool-destroy', small])
      try {
        await expect(lab.create(proxyNamed('stopped').create(), context)).rejects.toMatchObject({
          kind: 'permanent',
          origin: 'environment',
          code: 'PoolNotActive',
        })
        expect(await lab.check(context)).toMatchObject([{ ready: false, reason: 'PoolNotActive' }])
      } finally {
        await host.virsh(['pool-start', small])
      }
      expect(await lab.check(context)).toMatchObject([{ ready: true, reason: 'Reachable' }])
    })
  })
})

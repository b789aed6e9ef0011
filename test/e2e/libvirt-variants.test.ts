// What only a real libvirtd can show of the provider's variants: both types on one host, libvirt's own network, events, leftovers, and
// a daemon that wants a login. It has a host of its own, because it stops the daemon.
import { randomUUID } from 'node:crypto'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { systemClock } from '../../src/lib/clock.ts'
import { Secret } from '../../src/lib/secret.ts'
import { silentLogger } from '../../src/observe/logger.ts'
import { createMetrics } from '../../src/observe/metrics.ts'
import type { CreateContext, CreateRequest, DeleteRequest, Provider } from '../../src/provider/contract.ts'
import { decorateProvider } from '../../src/provider/decorate.ts'
import { kvm2BlockSchema, kvmBlockSchema, normaliseLibvirtBlock } from '../../src/provider/libvirt/config.ts'
import { createImageSharing } from '../../src/provider/libvirt/image-sharing.ts'
import { createKvm2Provider, createKvmProvider } from '../../src/provider/libvirt/provider.ts'
import { instanceName } from '../../src/provider/names.ts'
import { canRun } from '../support/e2e/availability.ts'
import { startImageServer, type ImageServer } from '../support/e2e/image-server.ts'
import { viewOf } from '../support/e2e/host-view.ts'
import { eventually } from '../support/eventually.ts'
import { libvirtHostAvailable, startLibvirtHost, type LibvirtHost } from '../support/libvirt-host.ts'

const budgetMs = 180_000
const installation = `run-${randomUUID().slice(0, 8)}`
const runs = canRun("the provider's variants against a real libvirtd", [libvirtHostAvailable()])

describe.runIf(runs)('kvm and kvm2 on a real libvirtd', () => {
  let host: LibvirtHost
  let folder: string
  let images: ImageServer
  const providers: Provider[] = []

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'libvirt-variants-'))
    const place = { stateDir: join(folder, 'host'), net: '192.168.217', link: 'lvhv0' }
    host = await startLibvirtHost({ place })
    images = await startImageServer(host.gateway, { tiny: host.images.tiny })
  })
  afterAll(async () => {
    await Promise.all(providers.map((provider) => provider.close()))
    await images.close()
    await host.down()
    await rm(folder, { recursive: true, force: true })
  })

  function provider(type: 'kvm' | 'kvm2', change: { readonly block?: object; readonly host?: object } = {}): Provider {
    const written = {
      sshKeyFile: host.sshKeyPath,
      knownHostsFile: host.knownHostsPath,
      diskSizeGb: 1,
      installGuestAgent: false,
      images: { tiny: { url: images.url('tiny') } },
      machineTypes: { small: { vcpus: 1, memoryMiB: 512 } },
      hosts: [
        {
          ...{ name: 'lab', address: `${host.sshHost}:${host.sshPort}`, user: host.sshUser },
          ...(change.host ?? { bridge: host.bridge }),
        },
      ],
      ...change.block,
    }
    const common = { name: 'lab', maxConcurrentCreates: 4 }
    const parts = { clock: systemClock, random: Math.random, log: silentLogger, metrics: createMetrics(), installation }
    const deps = { ...parts, imageSharing: createImageSharing(systemClock) }
    const plain =
      type === 'kvm2'
        ? createKvm2Provider({ ...common, kvm2: normaliseLibvirtBlock(kvm2BlockSchema.parse(written)) }, deps)
        : createKvmProvider({ ...common, kvm: normaliseLibvirtBlock(kvmBlockSchema.parse(written)) }, deps)
    const made = decorateProvider(plain, parts)
    providers.push(made)
    return made
  }

  function proxyNamed(name: string) {
    const owner = { uid: `uid-${name}`, installation, namespace: 'default', name }
    const instance = instanceName(owner)
    const create: CreateRequest = {
      ...{ owner, instanceName: instance, specHash: 'v1:1', intents: [] },
      placement: { machineType: 'small', image: 'tiny' },
      userData: new Secret(Buffer.from('#cloud-config\n{}\n')),
    }
    const remove: DeleteRequest = { owner, instanceName: instance, intents: [{ target: 'lab' }] }
    return { instance, providerID: `hosts/lab/domains/${instance}`, create, remove }
  }

  const context: CreateContext = {
    signal: new AbortController().signal,
    mayMutate: () => true,
    isLive: () => Promise.resolve(false),
    record: () => Promise.resolve(),
    progress: () => undefined,
  }

  const metadata = async (instance: string) =>
    await Promise.all([host.virsh(['dumpxml', instance]), host.virsh(['dumpxml', '--inactive', instance])])

  it('takes a kvm instance over without a reboot, in the running and the kept document', async () => {
    const kvm = provider('kvm')
    const one = proxyNamed('adopted')
    await kvm.create(one.create, context)
    const view = viewOf(host)
    const [before] = await view.domains()
    expect(await provider('kvm2').list(context)).toEqual([])
    const kvm2 = provider('kvm2', { block: { adoptFrom: ['kvm'] } })
    expect(await kvm2.get(one.providerID, context)).toMatchObject({ state: 'running', unadopted: true })
    expect(await kvm2.create(one.create, context)).toBe(one.providerID)
    expect(await view.domains()).toEqual([before])
    for (const xml of await metadata(one.instance)) {
      expect(xml).toMatch(/egress-proxies-operator\/kvm2['"]/)
      expect(xml).not.toMatch(/egress-proxies-operator\/kvm['"]/)
    }
    expect(await kvm2.get(one.providerID, context)).not.toHaveProperty('unadopted')
    expect(await kvm.list(context)).toEqual([])
    await kvm2.delete(one.remove, context)
    expect(await view.domains()).toEqual([])
  })

  it('tells of a start, of the agent, and of what virsh does', async () => {
    const kvm2 = provider('kvm2')
    const one = proxyNamed('watched')
    let told = 0
    const stop = kvm2.watch?.(({ providerID }) => {
      if (providerID === one.providerID) told++
    })
    const next = async (what: string, change: () => unknown) => {
      const before = told
      await change()
      await eventually(what, budgetMs, () => Promise.resolve(told > before ? true : undefined))
    }
    await next('a start', () => kvm2.create(one.create, context))
    await next("the agent's arrival", () => undefined)
    await eventually('an address', budgetMs, async () => (await kvm2.get(one.providerID, context)).ip)
    await next('a domain that is destroyed', () => host.virsh(['destroy', one.instance]))
    expect(await kvm2.get(one.providerID, context)).toMatchObject({ state: 'stopped' })
    stop?.()
    await kvm2.delete(one.remove, context)
  })

  it("gives an instance an interface on libvirt's own network, and finds the address that it has a lease of", async () => {
    const file = join(folder, 'host', 'network.xml')
    await writeFile(
      file,
      `<network><name>lan</name><bridge name="virbrv0"/><ip address="192.168.218.1" netmask="255.255.255.0"><dhcp><range start="192.168.218.10" end="192.168.218.99"/></dhcp></ip></network>`,
    )
    const kvm2 = provider('kvm2', { host: { network: 'lan' } })
    const one = proxyNamed('on-network')
    expect((await kvm2.check(context))[0]).toMatchObject({
      ready: false,
      reason: 'APIError',
      message: expect.stringContaining("no network with matching name 'lan'") as string,
    })
    await expect(kvm2.create(one.create, context)).rejects.toMatchObject({ kind: 'permanent', code: 'NetworkNotFound' })
    await host.virsh(['net-define', file])
    expect((await kvm2.check(context))[0]).toMatchObject({
      ready: false,
      message: expect.stringContaining('virsh net-start lan') as string,
    })
    await expect(kvm2.create(one.create, context)).rejects.toMatchObject({
      kind: 'transient',
      code: 'OperationInvalid',
    })
    await host.virsh(['net-start', 'lan'])
    expect((await kvm2.check(context))[0]).toMatchObject({ ready: true, details: { network: 'lan' } })
    await kvm2.create(one.create, context)
    const ip = await eventually('an address', budgetMs, async () => (await kvm2.get(one.providerID, context)).ip)
    expect(await host.virsh(['net-dhcp-leases', 'lan'])).toContain(`${ip}/24`)
    await kvm2.delete(one.remove, context)
    await host.virsh(['net-destroy', 'lan'])
    await host.virsh(['net-undefine', 'lan'])
  })

  it('finds the volumes that a domain left, with their age, and removes them', async () => {
    const kvm2 = provider('kvm2')
    const one = proxyNamed('left')
    await kvm2.create(one.create, context)
    expect(await kvm2.leftovers(context)).toEqual([])
    await host.virsh(['destroy', one.instance])
    await host.virsh(['undefine', '--nvram', one.instance])
    const [leftover, ...more] = await kvm2.leftovers(context)
    if (leftover === undefined) throw new Error('there is no leftover')
    expect(more).toEqual([])
    expect(leftover).toMatchObject({ target: 'lab', instanceName: one.instance, uid: 'uid-left' })
    expect(leftover.ageMs).toBeLessThan(budgetMs)
    await kvm2.remove(leftover, context)
    expect((await viewOf(host).files()).filter((name) => name.startsWith('proxy-'))).toEqual([])
  })

  it('says Forbidden where the daemon wants a login that nobody can give, and recovers', async () => {
    const kvm2 = provider('kvm2')
    const one = proxyNamed('forbidden')
    await kvm2.list(context)
    await restartDaemon('sasl')
    expect((await kvm2.check(context))[0]).toMatchObject({ ready: false, reason: 'Forbidden' })
    expect((await provider('kvm').check(context))[0]).toMatchObject({ ready: false, reason: 'LibvirtConnectFailed' })
    await expect(provider('kvm2').create(one.create, context)).rejects.toMatchObject({
      kind: 'permanent',
      origin: 'environment',
      code: 'Forbidden',
    })
    await restartDaemon('none')
    expect((await kvm2.check(context))[0]).toMatchObject({ ready: true })
  })

  /** With polkit root would be let in all the same. */
  async function restartDaemon(auth: 'none' | 'sasl'): Promise<void> {
    const script = [
      `sed -i 's/^auth_unix_rw = .*/auth_unix_rw = "${auth}"/' /etc/libvirt/libvirtd.conf`,
      'pid=$(cat /run/libvirt-host/libvirtd.pid); kill "$pid"',
      'while kill -0 "$pid" 2>/dev/null && ! grep -q "^State:.Z" "/proc/$pid/status"; do sleep 0.1; done',
      'libvirtd -d -p /run/libvirt-host/libvirtd.pid',
    ].join('\n')
    await host.exec(['bash', '-euc', script])
    await eventually('the daemon answers', budgetMs, async () => {
      await host.exec(['test', '-S', '/run/libvirt/libvirt-sock'])
      return true
    })
  }
})

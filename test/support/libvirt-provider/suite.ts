// One suite of the libvirt provider for any real host: what CI runs against its own libvirtd is what people run against theirs.
import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { systemClock } from '../../../src/lib/clock.ts'
import { Secret } from '../../../src/lib/secret.ts'
import type { Logger } from '../../../src/observe/logger.ts'
import { createMetrics } from '../../../src/observe/metrics.ts'
import type { CreateContext, CreateRequest, DeleteRequest, Provider } from '../../../src/provider/contract.ts'
import { decorateProvider } from '../../../src/provider/decorate.ts'
import { kvm2BlockSchema, kvmBlockSchema, normaliseLibvirtBlock } from '../../../src/provider/libvirt/config.ts'
import { createImageSharing } from '../../../src/provider/libvirt/image-sharing.ts'
import { createKvm2Provider, createKvmProvider } from '../../../src/provider/libvirt/provider.ts'
import { instanceName } from '../../../src/provider/names.ts'
import { eventually } from '../eventually.ts'
import { openEye, type Eye } from './eye.ts'
import type { ProviderHost } from './provider-host.ts'

export type LibvirtType = 'kvm' | 'kvm2'

/** An image from far away, or an emulated boot with a package installed in it. */
const createBudgetMs = 25 * 60_000
const addressBudgetMs = 10 * 60_000

/**
 * Leaves the host as it was: names carry an id of this run, and the cached image goes, too.
 * @param open reaches or starts the host; called once, before the first test
 */
export function libvirtProviderSuite(type: LibvirtType, log: Logger, open: () => Promise<ProviderHost>): void {
  describe(`${type} on a real host`, () => {
    const run = randomUUID().slice(0, 8)
    const owner = { uid: `uid-${run}`, installation: `suite-${run}`, namespace: 'default', name: `suite-${run}` }
    const imageKey = `suite-${run}`
    const instance = instanceName(owner)
    let host: ProviderHost
    let provider: Provider
    let eye: Eye

    const cleanUp: (() => Promise<unknown>)[] = []

    beforeAll(async () => {
      host = await open()
      cleanUp.unshift(() => host.close())
      provider = providerOf(type, host, imageKey, log, owner.installation)
      cleanUp.unshift(() => provider.close())
      const [health] = await provider.check(context)
      if (health?.ready !== true) {
        throw new Error(`${host.name} cannot be used: ${health?.reason}: ${health?.message}. ${host.advice}`)
      }
      eye = await openEye(host)
      cleanUp.unshift(
        // Also after a test that failed half way.
        () => provider.delete(removal(), context),
        () => eye.removeVolumes(`base-${imageKey}.`),
        () => eye.close(),
      )
    }, createBudgetMs)

    afterAll(async () => {
      for (const step of cleanUp) await step()
    }, createBudgetMs)

    const removal = (): DeleteRequest => ({ owner, instanceName: instance, intents: [{ target: host.name }] })
    const request = (specHash = 'v1:1'): CreateRequest => ({
      ...{ owner, instanceName: instance, specHash, intents: [] },
      placement: { zone: host.name, machineType: 'small', image: imageKey },
      userData: new Secret(Buffer.from('#cloud-config\n{}\n')),
    })

    it('is checked without a trace', async () => {
      const before = await eye.see()
      const [health, ...others] = await provider.check(context)
      expect(others).toEqual([])
      expect(health).toMatchObject({ name: host.name, address: host.address, ready: true, reason: 'Reachable' })
      expect(health?.details).toMatchObject({
        user: host.user,
        pool: host.pool,
        hostname: expect.stringMatching(/./) as string,
        libvirtVersion: expect.stringMatching(/^\d+\.\d+\.\d+$/) as string,
        poolState: 'running',
        ...(type === 'kvm2'
          ? { poolCapacityGiB: decimal(''), poolAvailableGiB: decimal('') }
          : { poolCapacity: decimal(' GiB'), poolAvailable: decimal(' GiB') }),
      })
      expect(await eye.see()).toEqual(before)
    })

    it(
      'carries one VM from its creation to its end, and keeps nothing of it',
      { timeout: 3 * createBudgetMs },
      async () => {
        const before = await eye.see()
        const providerID = `hosts/${host.name}/domains/${instance}`
        expect(await provider.create(request(), context)).toBe(providerID)
        const made = await eye.see()
        expect(made.domains.filter((name) => !before.domains.includes(name))).toEqual([instance])
        expect(made.volumes.filter((name) => !before.volumes.includes(name))).toEqual(
          [`base-${imageKey}.qcow2`, `base-${imageKey}.qcow2.info`, `base-${imageKey}.qcow2.sha256`]
            .concat(`${instance}-seed.iso`, `${instance}.qcow2`)
            .sort(),
        )
        const xml = await eye.domainXml(instance)
        for (const part of kept) expect(xml).toMatch(part)
        expect(xml).not.toMatch(/<graphics|<video|type=['"]volume['"]|secure=['"]yes['"]/)
        expect(xml.match(/<interface /g)).toHaveLength(1)
        expect(xml).toMatch(new RegExp(`egress-proxies-operator/${type}['"]`))
        const ip = await eventually(
          `an address of ${instance} (is there DHCP on ${host.bridge}, and does the agent run in the image?)`,
          addressBudgetMs,
          async () => (await provider.get(providerID, context)).ip,
        )
        expect(ip).toMatch(/^[0-9a-f.:]+$/)
        const running = { state: 'running', uid: owner.uid, specHash: 'v1:1', ip }
        expect(await provider.get(providerID, context)).toMatchObject(running)
        expect(await provider.list(context)).toMatchObject([{ providerID, mark: { uid: owner.uid } }])
        expect(await provider.observe(host.name, context)).toEqual(new Map([[providerID, 'running']]))
        expect((await provider.check(context))[0]).toMatchObject({ ready: true })
        expect(await provider.create(request(), context)).toBe(providerID)
        expect(await provider.get(providerID, context)).toMatchObject(running)
        expect(await provider.create(request('v1:2'), context)).toBe(providerID)
        expect(await provider.get(providerID, context)).toMatchObject({ state: 'running', specHash: 'v1:2' })
        expect(await provider.delete(removal(), context)).toEqual({ abandoned: [] })
        expect(await provider.delete(removal(), context)).toEqual({ abandoned: [] })
        await expect(provider.get(providerID, context)).rejects.toMatchObject({ kind: 'notFound' })
        expect(await provider.list(context)).toEqual([])
        expect(await provider.leftovers(context)).toEqual([])
        await eye.removeVolumes(`base-${imageKey}.`)
        expect(await eye.see()).toEqual(before)
      },
    )
  })
}

/** Of the domain's document, whatever libvirt writes besides. */
const kept = [
  /machine=['"]pc-q35-/,
  /<cpu mode=['"]host-passthrough['"]/,
  /<loader [^>]*type=['"](pflash|rom)['"]/,
  /<disk type=['"]file['"] device=['"]disk['"]>[^]*<target dev=['"]vda['"] bus=['"]virtio['"]/,
  /<disk type=['"]file['"] device=['"]cdrom['"]>[^]*<target dev=['"]sda['"] bus=['"]sata['"]\/>\s*<readonly\/>/,
  /<serial type=['"]pty['"]>/,
  /<target type=['"]virtio['"] name=['"]org\.qemu\.guest_agent\.0['"]/,
  /<backend model=['"]random['"]>\/dev\/urandom<\/backend>/,
] as const

const context: CreateContext = {
  signal: new AbortController().signal,
  mayMutate: () => true,
  isLive: () => Promise.resolve(false),
  record: () => Promise.resolve(),
  progress: () => undefined,
}

const decimal = (unit: string) => expect.stringMatching(new RegExp(`^\\d+\\.\\d+${unit}$`)) as string

function providerOf(
  type: LibvirtType,
  host: ProviderHost,
  imageKey: string,
  log: Logger,
  installation: string,
): Provider {
  const written = {
    sshKeyFile: host.keyFile,
    knownHostsFile: host.knownHostsFile,
    diskSizeGb: 4,
    images: { [imageKey]: { url: host.imageUrl } },
    machineTypes: { small: { vcpus: 1, memoryMiB: 1024 } },
    hosts: [
      {
        ...{ name: host.name, address: host.address, user: host.user, pool: host.pool, bridge: host.bridge },
        ...(host.socket === undefined ? {} : { socket: host.socket }),
      },
    ],
  }
  const common = { name: 'suite', maxConcurrentCreates: 1 }
  const parts = { clock: systemClock, random: Math.random, log, metrics: createMetrics(), installation }
  const deps = { ...parts, imageSharing: createImageSharing(systemClock) }
  return decorateProvider(
    type === 'kvm2'
      ? createKvm2Provider({ ...common, kvm2: normaliseLibvirtBlock(kvm2BlockSchema.parse(written)) }, deps)
      : createKvmProvider({ ...common, kvm: normaliseLibvirtBlock(kvmBlockSchema.parse(written)) }, deps),
    parts,
  )
}

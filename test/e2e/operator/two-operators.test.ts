// Two operator processes, each with a cluster of its own, and one real libvirt host for both: twenty Proxies with one image that is not
// there yet. The VMs are started and run; whether they become proxies is shown elsewhere, with fewer of them.
import { randomUUID } from 'node:crypto'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { basename, dirname, join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Proxy } from '../../../src/api/proxy.ts'
import { KubeClient } from '../../../src/kube/client.ts'
import { proxyResource } from '../../../src/reconcile/resources.ts'
import { canRun } from '../../support/e2e/availability.ts'
import { viewOf, type HostView } from '../../support/e2e/host-view.ts'
import { startImageServer, type ImageServer } from '../../support/e2e/image-server.ts'
import { startOperator, type OperatorProcess } from '../../support/e2e/operator-process.ts'
import { baseFiles } from '../../support/e2e/real-world.ts'
import { sampleProvider, sampleProxy, writeProviders } from '../../support/e2e/samples.ts'
import { eventually } from '../../support/eventually.ts'
import type { KubeApi } from '../../support/kube-api/kube-api.ts'
import { libvirtHostAvailable, startLibvirtHost, type LibvirtHost } from '../../support/libvirt-host.ts'
import { startProductApi } from '../../support/product-kinds.ts'

const runs = canRun('two operators on a real libvirt host', [libvirtHostAvailable()])
const stepBudgetMs = 120_000
/** Emulated machines that all boot at once take their time to start. */
const allBudgetMs = 600_000
const perOperator = 10
const heldBytes = 6 << 20
const image = 'tiny.qcow2'

/** One operator's side: its cluster, and how to start it. */
interface Side {
  readonly api: KubeApi
  readonly client: KubeClient
  start(): Promise<OperatorProcess>
}

describe.runIf(runs)('two operators and twenty Proxies with one image that is not on their host', () => {
  const ending = new AsyncDisposableStack()
  const pool = `two-${randomUUID().slice(0, 8)}`
  let host: LibvirtHost
  let view: HostView
  let images: ImageServer
  let sides: readonly [Side, Side]
  const running = new Set<OperatorProcess>()

  beforeAll(async () => {
    host = ending.adopt(await startLibvirtHost(), (it) => it.down())
    const folder = join(dirname(host.poolDir), pool)
    await host.virsh(['pool-define-as', pool, 'dir', '--target', folder])
    ending.defer(async () => {
      await host.virsh(['pool-undefine', pool])
      await host.exec(['rm', '-rf', folder])
    })
    await host.virsh(['pool-build', pool])
    await host.virsh(['pool-start', pool])
    ending.defer(async () => {
      await host.virsh(['pool-destroy', pool])
    })
    view = viewOf({ ...host, poolDirOutside: join(dirname(host.poolDirOutside), basename(folder)) })
    images = ending.adopt(await startImageServer(host.gateway, { [image]: host.images.tiny }), (it) => it.close())
    sides = [await startSide('one'), await startSide('two')]
  })

  afterAll(() => ending.disposeAsync())

  async function startSide(installation: string): Promise<Side> {
    const folder = await mkdtemp(join(tmpdir(), `operator-${installation}-`))
    ending.defer(() => rm(folder, { recursive: true }))
    const api = ending.use(await startProductApi())
    const client = ending.adopt(KubeClient.fromKubeconfig({ text: api.kubeconfig() }), (it) => it.close())
    const kubeconfig = join(folder, 'kubeconfig')
    await api.writeKubeconfig(kubeconfig)
    const providersConfig = join(folder, 'providers.yaml')
    const block = {
      installGuestAgent: false,
      diskSizeGb: 1,
      machineTypes: { small: { vcpus: 1, memoryMiB: 256 } },
      images: { 'debian-13': { url: images.url(image) } },
    }
    await writeProviders(providersConfig, [await sampleProvider({ ...host, pool }, { block })])
    const healthCheckUrl = images.url('no-page')
    const flags = { kubeconfig, providersConfig, healthCheckUrl, more: [`--installation-id=${pool}-${installation}`] }
    return {
      api,
      client,
      start: async () => {
        const operator = await startOperator(flags, join(folder, 'operator.log'))
        running.add(operator)
        return operator
      },
    }
  }

  async function createAll({ client }: Side): Promise<void> {
    for (let index = 0; index < perOperator; index++) {
      await client.create(proxyResource, { ...(await sampleProxy(`proxy-${index}`, {})) })
    }
  }

  async function proxiesOf({ client }: Side): Promise<readonly Proxy[]> {
    return (await client.list<Proxy>(proxyResource)).items
  }

  /** All of a side's instances run. @returns their domains' names */
  async function untilAllRun(side: Side): Promise<readonly string[]> {
    return await eventually('all instances of one operator', allBudgetMs, async () => {
      const proxies = await proxiesOf(side)
      const names = proxies.flatMap(({ status }) =>
        status?.providerID === undefined ? [] : [status.instanceName ?? ''],
      )
      if (names.length === perOperator) return names
      throw new Error(`Proxies: ${JSON.stringify(proxies.map(({ status }) => status?.conditions))}`)
    })
  }

  async function expectTwenty(names: readonly string[]): Promise<void> {
    expect(new Set(names).size).toBe(2 * perOperator)
    const domains = (await view.domains()).filter(({ name }) => names.includes(name))
    expect(domains.map(({ state }) => state)).toEqual(names.map(() => 'running'))
    const files = names.flatMap((name) => [`${name}-seed.iso`, `${name}.qcow2`])
    expect(await view.files()).toEqual([...baseFiles('debian-13'), ...files].sort())
  }

  /** Deletes every Proxy, ends the operators, and evicts the image. */
  async function clear(): Promise<void> {
    for (const side of sides) {
      for (const { metadata } of await proxiesOf(side)) {
        await side.client.delete(proxyResource, metadata)
      }
      await eventually('no Proxies', allBudgetMs, async () => (await proxiesOf(side)).length === 0 || undefined)
    }
    for (const operator of running) if (operator.running()) await operator.stop()
    running.clear()
    expect(await view.files()).toEqual(baseFiles('debian-13'))
    for (const file of baseFiles('debian-13')) await host.virsh(['vol-delete', '--pool', pool, file])
  }

  it('make one download and twenty instances', async () => {
    const began = images.gets(image)
    for (const side of sides) await side.start()
    await Promise.all(sides.map(createAll))
    const names = await Promise.all(sides.map(untilAllRun))
    await expectTwenty(names.flat())
    expect(images.gets(image) - began).toBe(1)
    await clear()
  })

  it('do so, too, when the one that downloads is killed half way', async () => {
    const [one, two] = sides
    const began = images.gets(image)
    images.holdAfter(image, heldBytes)
    const killed = await one.start()
    await createAll(one)
    const base = 'base-debian-13.qcow2'
    await eventually(
      'half of the image',
      stepBudgetMs,
      async () => ((await view.writtenBytes(base)) ?? 0) > heldBytes / 2 || undefined,
    )
    await two.start()
    await createAll(two)
    await eventually('the other operator waits', stepBudgetMs, async () => {
      const told = (await proxiesOf(two)).map(
        ({ status }) => status?.conditions?.find(({ type }) => type === 'Provisioned')?.message,
      )
      return told.every((text) => text?.startsWith("waiting for another operator's download") === true) || undefined
    })
    await killed.kill()
    images.release(image)
    expect(await view.files()).toEqual([base, `${base}.claim.1`])
    // As if a quarter of an hour had passed since it was touched.
    await host.exec(['touch', '-d', '16 minutes ago', join(dirname(host.poolDir), pool, `${base}.claim.1`)])
    const others = await untilAllRun(two)
    await one.start()
    await expectTwenty([...others, ...(await untilAllRun(one))])
    // The one that was cut off, and the one that counts.
    expect(images.gets(image) - began).toBe(2)
    await clear()
  })
})

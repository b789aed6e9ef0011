// The sample Proxy on a real API server and a real libvirt host: a VM that proxies, another one after a change, and nothing after a delete.
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { proxyFinalizer } from '../../../src/api/group.ts'
import { clusterAvailable } from '../../support/cluster.ts'
import { canRun } from '../../support/e2e/availability.ts'
import type { OperatorProcess } from '../../support/e2e/operator-process.ts'
import { baseFiles, startRealWorld, type RealWorld } from '../../support/e2e/real-world.ts'
import { proxyUserData, sampleProvider, sampleProxy } from '../../support/e2e/samples.ts'
import { getThrough, getThroughTunnel } from '../../support/e2e/through-proxy.ts'
import { eventually } from '../../support/eventually.ts'
import { libvirtHostAvailable } from '../../support/libvirt-host.ts'

const runs = canRun('a Proxy on a real libvirt host', [clusterAvailable(), libvirtHostAvailable()])

/** Emulated guests take ten times as long, and the machine may be busy. */
const readyBudgetMs = { tiny: 180_000, cloudinit: 400_000 }
const goneBudgetMs = 120_000

/** An item of `GET /v1/proxies`. */
interface Listed {
  readonly name: string
  readonly namespace: string
  readonly url: string
  readonly host: string
  readonly port: number
  readonly provider: string
  readonly zone: string
  readonly egressIP: string | null
}

describe.skipIf(!runs)('a Proxy from the sample', () => {
  let world: RealWorld
  let operator: OperatorProcess

  beforeAll(async () => {
    world = await startRealWorld('lifecycle')
    const { host, images } = world
    operator = await world.operator([
      await sampleProvider(host, {
        block: {
          images: {
            tiny: { url: images.url('tiny.qcow2') },
            cloudinit: { url: images.url('cloudinit.qcow2') },
          },
        },
      }),
    ])
  })

  afterAll(async () => {
    await world.close()
  })

  const listed = async (query = ''): Promise<Listed[]> => {
    const response = await fetch(`${operator.urls.discovery}/v1/proxies${query}`)
    expect(response.status).toBe(200)
    const { items, count } = (await response.json()) as { items: Listed[]; count: number }
    expect(items.length).toBe(count)
    return items
  }

  /** The one proxy of that name in the discovery API, as a crawler developer would find it. */
  const discover = async (name: string): Promise<Listed> =>
    await eventually(`${name} is listed`, 30_000, async () => (await listed()).find((item) => item.name === name))

  /** One request of each kind through the proxy; both must come from the VM. */
  const useProxy = async (proxy: Listed, via: string) => {
    const { targets } = world
    const plain = await getThrough(proxy.url, targets.httpUrl)
    expect(plain).toEqual({
      status: 200,
      body: proxy.host,
      via: expect.stringContaining(` ${via} (tinyproxy`) as string,
    })
    const tunnelled = await getThroughTunnel(proxy.url, targets.httpsUrl, targets.ca)
    expect(tunnelled).toEqual({ status: 200, body: proxy.host, via: undefined })
  }

  const domainOf = async (name: string) => {
    const domains = await world.hostView.domains()
    const [domain, ...more] = domains.filter((candidate) => candidate.name === name)
    if (domain === undefined || more.length > 0) throw new Error(`domains: ${JSON.stringify(domains)}`)
    return domain
  }

  const fullPass = async (image: 'tiny' | 'cloudinit') => {
    const { kube, hostView, canary } = world
    const name = `proxy-${image}`
    const before = (await hostView.files()).filter((file) => !file.startsWith('base-'))
    const spec = {
      placement: { zone: 'kvm-1', machineType: 'small', image },
      cloudInit: proxyUserData('first', canary.text),
    }

    await kube.apply(await sampleProxy(name, spec))
    const first = await kube.untilPhase(name, 'Ready', readyBudgetMs[image])
    expect(first.metadata.finalizers).toContain(proxyFinalizer)
    expect(first.status).toMatchObject({
      providerID: `hosts/kvm-1/domains/${first.status?.instanceName ?? ''}`,
      observedGeneration: 1,
      egressIP: first.status?.ip,
    })
    const firstListed = await discover(name)
    expect(firstListed).toMatchObject({
      namespace: 'default',
      url: first.status?.endpoint,
      host: first.status?.ip,
      port: 3128,
      provider: 'kvm2-home',
      zone: 'kvm-1',
    })
    await useProxy(firstListed, 'first')
    const firstDomain = await domainOf(first.status?.instanceName ?? '')
    expect(firstDomain.state).toBe('running')
    expect(await hostView.files()).toEqual(expect.arrayContaining(baseFiles(image)))
    const row = (await world.cluster.kubectl(['get', 'px', name, '--no-headers'])).trim().split(/\s+/)
    expect(row.slice(0, -1)).toEqual([name, 'Managed', 'kvm2-home', 'Ready', first.status?.ip, 'True'])

    await kube.apply(await sampleProxy(name, { ...spec, cloudInit: proxyUserData('second', canary.text) }))
    const second = await kube.until(
      name,
      'is Ready again, from the new spec',
      readyBudgetMs[image],
      ({ status }) => status?.phase === 'Ready' && status.specHash !== first.status?.specHash,
    )
    expect(second.status?.observedGeneration).toBe(2)
    await useProxy(await discover(name), 'second')
    const secondDomain = await domainOf(second.status?.instanceName ?? '')
    expect(secondDomain.id).not.toBe(firstDomain.id)
    expect((await kube.events(name)).map(({ reason }) => reason)).toEqual(
      expect.arrayContaining(['Creating', 'InstanceCreated', 'AddressAssigned', 'Healthy', 'Replacing']),
    )

    await kube.remove(name, goneBudgetMs)
    expect(await kube.proxy(name)).toBeUndefined()
    expect(await hostView.domains()).toEqual([])
    const after = await hostView.files()
    expect(after.filter((file) => !file.startsWith('base-'))).toEqual(before)
    expect(after.filter((file) => file.startsWith(`base-${image}`))).toEqual(baseFiles(image))
    expect(await listed()).toEqual([])
    expect(await listed('?healthy=any')).toEqual([])
  }

  it('becomes a proxy, is replaced and goes, with the tiny image', async () => {
    await fullPass('tiny')
  })

  it('becomes a proxy, is replaced and goes, with real cloud-init', async () => {
    await fullPass('cloudinit')
  })

  it('tells no secret', async () => {
    expect(world.canary.leaks(await world.told())).toEqual([])
  })
})

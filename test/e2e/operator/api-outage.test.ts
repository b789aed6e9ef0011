// A real API server that is away for 30 s while Proxies are created and deleted on a stubbed host: nothing ends, nothing is lost.
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { clusterAvailable, startCluster, type Cluster } from '../../support/cluster.ts'
import { canRun } from '../../support/e2e/availability.ts'
import { startImageServer } from '../../support/e2e/image-server.ts'
import { KubeView } from '../../support/e2e/kube-view.ts'
import { startOperator, type OperatorProcess } from '../../support/e2e/operator-process.ts'
import { baseFiles } from '../../support/e2e/real-world.ts'
import { sampleProvider, sampleProxy, writeProviders, type ProxyManifest } from '../../support/e2e/samples.ts'
import { startTargetServers } from '../../support/e2e/target-server.ts'
import { eventually } from '../../support/eventually.ts'
import { startLibvirtStub, type LibvirtStub } from '../../support/libvirt-stub/stub.ts'
import { accessTo, writeStubImage } from '../../support/stub-world.ts'

const runs = canRun('an API server that is away', [clusterAvailable()])

const outageMs = 30_000
const budgetMs = 240_000
/** Makes a create and a delete take seconds, so that many are under way at any moment. */
const slowCallMs = 150

const names = (kind: string, count: number) => Array.from({ length: count }, (_, index) => `${kind}-${index}`)
const kept = names('kept', 3)
const deleted = names('deleted', 10)
const created = names('created', 10)

describe.skipIf(!runs)('an API server that is away', () => {
  const cleanups = new AsyncDisposableStack()
  let cluster: Cluster
  let kube: KubeView
  let stub: LibvirtStub
  let operator: OperatorProcess

  beforeAll(async () => {
    const folder = await mkdtemp(join(tmpdir(), 'e2e-api-outage-'))
    cleanups.defer(() => rm(folder, { recursive: true }))
    cluster = cleanups.adopt(await startCluster(), (it) => it.down())
    kube = cleanups.adopt(new KubeView(cluster), (it) => it.close())
    await cluster.kubectl(['apply', '-f', 'crds'])
    await cluster.kubectl(['wait', '--for=condition=Established', '--timeout=60s', '-f', 'crds'])
    stub = cleanups.adopt(await startLibvirtStub({ bootDelayMs: 500 }), (it) => it.close())
    const imageFile = join(folder, 'image.qcow2')
    await writeStubImage(imageFile)
    const images = cleanups.adopt(await startImageServer('127.0.0.1', { 'image.qcow2': imageFile }), (it) => it.close())
    const targets = cleanups.adopt(await startTargetServers('127.0.0.1'), (it) => it.close())
    const providersConfig = join(folder, 'providers.yaml')
    const block = { images: { 'debian-13': { url: images.url('image.qcow2') } } }
    await writeProviders(providersConfig, [await sampleProvider(accessTo(stub), { block })])
    operator = cleanups.adopt(
      await startOperator(
        { kubeconfig: cluster.kubeconfigPath, providersConfig, healthCheckUrl: targets.httpUrl, hosts: 'stub' },
        join(process.env['E2E_DIR'] ?? folder, 'api-outage.log'),
      ),
      async (it) => {
        if (it.running()) await it.stop()
      },
    )
  })

  afterAll(async () => {
    await cleanups.disposeAsync()
  })

  const manifests = (list: readonly string[]): Promise<ProxyManifest[]> =>
    Promise.all(list.map((name) => sampleProxy(name, {})))

  /** Waits until these are Ready and there is no other Proxy. */
  const untilExactly = async (wanted: readonly string[]) => {
    await eventually(`${wanted.length} Proxies are Ready and there is no other`, budgetMs, async () => {
      const found = await kube.proxies()
      const state = found.map(({ metadata, status }) => `${metadata.name} ${status?.phase ?? 'new'}`).sort()
      if (
        state.join() ===
        wanted
          .map((name) => `${name} Ready`)
          .sort()
          .join()
      )
        return true
      throw new Error(state.join(', '))
    })
  }

  const listed = async (): Promise<string[]> => {
    const response = await fetch(`${operator.urls.discovery}/v1/proxies`)
    expect(response.status).toBe(200)
    const { items } = (await response.json()) as { items: { name: string }[] }
    return items.map(({ name }) => name)
  }

  it('is waited for while 20 Proxies are being created and deleted, and no deletion is lost', async () => {
    await kube.apply(...(await manifests([...kept, ...deleted])))
    await untilExactly([...kept, ...deleted])
    const before = new Set(stub.domains().map(({ name }) => name))
    stub.knobs.latencyMs = slowCallMs
    await Promise.all([kube.apply(...(await manifests(created))), kube.askToRemove(...deleted)])
    await eventually('some are created and some are deleted', budgetMs, () => {
      const domains = stub.domains().map(({ name }) => name)
      const gone = [...before].filter((name) => !domains.includes(name)).length
      const made = domains.filter((name) => !before.has(name)).length
      return Promise.resolve(gone > 0 && made > 0 ? true : undefined)
    })
    const during = new Set(stub.domains().map(({ name }) => name))
    await cluster.stopApiServer()
    const stoppedAt = performance.now()
    // The world at the moment of the stop was really in between.
    expect(during.size).toBeGreaterThan(kept.length)
    expect([...during].some((name) => !before.has(name))).toBe(true)
    expect(during.size).not.toBe(kept.length + created.length)

    let answers = 0
    while (performance.now() - stoppedAt < outageMs) {
      expect(await listed()).toEqual(expect.arrayContaining(kept))
      for (const page of ['healthz', 'readyz'])
        expect((await fetch(`${operator.urls.health}/${page}`)).status).toBe(200)
      expect(operator.running()).toBe(true)
      answers++
      await sleep(500)
    }
    expect(answers).toBeGreaterThan(10)
    stub.knobs.latencyMs = 0

    await cluster.startApiServer()
    const startedAt = performance.now()
    await untilExactly([...kept, ...created])
    console.log(
      `caught up ${((performance.now() - startedAt) / 1000).toFixed(1)} s after the API server was ready again`,
    )

    expect(operator.running()).toBe(true)
    const proxies = await kube.proxies()
    const instances = proxies.map(({ status }) => status?.instanceName ?? '')
    expect(
      stub
        .domains()
        .map(({ name }) => name)
        .sort(),
    ).toEqual(instances.sort())
    expect(
      stub
        .volumes()
        .map(({ name }) => name)
        .sort(),
    ).toEqual([...baseFiles('debian-13'), ...instances.flatMap((name) => [`${name}.qcow2`, `${name}-seed.iso`])].sort())
    await eventually('the discovery API lists them', budgetMs, async () =>
      (await listed()).sort().join() === [...kept, ...created].sort().join() ? true : undefined,
    )
  })

  it('takes deletions afterwards as before', async () => {
    await kube.askToRemove(...kept, ...created)
    await untilExactly([])
    expect(stub.domains()).toEqual([])
    expect(
      stub
        .volumes()
        .map(({ name }) => name)
        .sort(),
    ).toEqual(baseFiles('debian-13'))
    expect(await operator.stop()).toBe(0)
  })
})

// Two operators, each with a cluster of its own, and one host for both: twenty Proxies with one image that is not there yet.
import { rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { randomUUID } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import type { Proxy } from '../../../src/api/proxy.ts'
import { KubeClient } from '../../../src/kube/client.ts'
import { getThrough } from '../../support/e2e/through-proxy.ts'
import { startOperator as startOperatorProcess } from '../../support/e2e/operator-process.ts'
import { eventually } from '../../support/eventually.ts'
import { startProductApi } from '../../support/product-kinds.ts'
import { baseFiles, imageBytes, startStubWorld, type StubWorld } from '../../support/stub-world.ts'
import { budgetMs, createProxy, startOperator, untilProxies } from './world.ts'

const names = Array.from({ length: 10 }, (_, index) => `proxy-${index}`)
const image = 'image.qcow2'
const claim = 'base-debian-13.qcow2.claim.1'

/** A second cluster, whose operator uses the same host and mirror. */
async function startNeighbour(world: StubWorld): Promise<StubWorld & AsyncDisposable> {
  await using undo = new AsyncDisposableStack()
  const api = undo.use(await startProductApi())
  const client = undo.adopt(KubeClient.fromKubeconfig({ text: api.kubeconfig() }), (it) => it.close())
  const kubeconfigFile = join(tmpdir(), `kubeconfig-${randomUUID()}`)
  undo.defer(() => rm(kubeconfigFile, { force: true }))
  await api.writeKubeconfig(kubeconfigFile)
  const end = undo.move()
  return { ...world, api, client, kubeconfigFile, [Symbol.asyncDispose]: () => end.disposeAsync() }
}

async function createAll({ client }: StubWorld): Promise<void> {
  await Promise.all(names.map((name) => createProxy(client, name)))
}

async function untilAllReady({ client }: StubWorld): Promise<readonly Proxy[]> {
  return await untilProxies(
    client,
    'all are Ready',
    (proxies) => proxies.length === names.length && proxies.every(({ status }) => status?.phase === 'Ready'),
  )
}

/** Messages of the conditions `Provisioned`, one per Proxy that has one. */
function messages(proxies: readonly Proxy[]): readonly string[] {
  return proxies
    .flatMap(({ status }) => status?.conditions?.filter(({ type }) => type === 'Provisioned') ?? [])
    .map(({ message }) => message)
}

function expectTwenty({ stub }: StubWorld, proxies: readonly Proxy[]): void {
  expect(new Set(proxies.map(({ status }) => status?.providerID)).size).toBe(20)
  expect(stub.domains().map(({ state }) => state)).toEqual(Array.from({ length: 20 }, () => 'running'))
  const files = stub.volumes().map(({ name }) => name)
  expect(files.filter((name) => name.startsWith('base-')).sort()).toEqual(baseFiles)
  expect(files.length).toBe(baseFiles.length + 2 * 20)
  expect(stub.volume('base-debian-13.qcow2')?.bytes().length).toBe(imageBytes)
}

describe('two operators and twenty Proxies with one image that is not on their host', () => {
  it('make one download and twenty instances', async () => {
    await using world = await startStubWorld()
    await using neighbour = await startNeighbour(world)
    await using closing = new AsyncDisposableStack()
    for (const each of [world, neighbour]) closing.adopt(await startOperator(each), (it) => it.stop())
    await Promise.all([createAll(world), createAll(neighbour)])
    const proxies = (await Promise.all([untilAllReady(world), untilAllReady(neighbour)])).flat()
    expectTwenty(world, proxies)
    expect(world.images.gets(image)).toBe(1)
    for (const { status } of proxies) {
      expect(await getThrough(status?.endpoint ?? '', world.pages.httpUrl)).toMatchObject({ status: 200 })
    }
  })

  it('do so, too, when the one that downloads is killed half way', async () => {
    await using world = await startStubWorld()
    await using neighbour = await startNeighbour(world)
    await using closing = new AsyncDisposableStack()
    const flags = {
      kubeconfig: world.kubeconfigFile,
      providersConfig: world.providersConfigFile,
      healthCheckUrl: world.pages.httpUrl,
      hosts: 'stub' as const,
      more: ['--installation-id=killed'],
    }
    const logFile = join(tmpdir(), `operator-${randomUUID()}.log`)
    closing.defer(() => rm(logFile, { force: true }))

    world.images.holdAfter(image, imageBytes / 2)
    const killed = await startOperatorProcess(flags, logFile)
    closing.defer(async () => {
      if (killed.running()) await killed.kill()
    })
    await createAll(world)
    const half = () => (world.stub.volume('base-debian-13.qcow2')?.allocation ?? 0) > imageBytes / 4 || undefined
    await eventually('a part of the image', budgetMs, () => Promise.resolve(half()))

    closing.adopt(await startOperator(neighbour), (it) => it.stop())
    await createAll(neighbour)
    await untilProxies(neighbour.client, 'all wait', (proxies) => {
      const told = messages(proxies)
      return (
        told.length === names.length && told.every((text) => text.startsWith("waiting for another operator's download"))
      )
    })
    await killed.kill()
    world.images.release(image)
    expect(world.images.gets(image)).toBe(1)
    expect(world.stub.domains()).toEqual([])

    // As if a quarter of an hour had passed on the host since the claim was touched.
    const left = world.stub.pool().volumes.get(claim)
    if (left === undefined) throw new Error('the killed operator left no claim')
    left.modifiedAt -= 16 * 60_000
    const others = await untilAllReady(neighbour)
    const successor = await startOperatorProcess(flags, logFile)
    closing.defer(async () => {
      await successor.stop()
    })
    expectTwenty(world, [...others, ...(await untilAllReady(world))])
    // The one that was cut off, and the one that counts.
    expect(world.images.gets(image)).toBe(2)
  })
})

// The whole operator in process: one Proxy from apply to nothing left, and twenty at once.
import { expect, it } from 'vitest'
import type { Resource } from '../../../src/kube/client.ts'
import type { Proxy } from '../../../src/api/proxy.ts'
import type { ProviderHealth } from '../../../src/api/provider-health.ts'
import { proxyFinalizer } from '../../../src/api/group.ts'
import { providerHealthResource, proxyResource } from '../../../src/reconcile/resources.ts'
import { getThrough, getThroughTunnel } from '../../support/e2e/through-proxy.ts'
import { eventually } from '../../support/eventually.ts'
import { recordingLogger } from '../../support/recording-logger.ts'
import { imageBytes, startStubWorld } from '../../support/stub-world.ts'
import {
  budgetMs,
  createProxy,
  deleteProxy,
  emptyHost,
  inventory,
  startOperator,
  untilGone,
  untilProxies,
  untilReady,
} from './world.ts'

interface EventObject extends Resource {
  readonly reason: string
  readonly involvedObject: { readonly name: string }
}

it('makes a working proxy of the sample, replaces it when the spec changes, and leaves nothing', async () => {
  await using world = await startStubWorld()
  await using closing = new AsyncDisposableStack()
  const { api, client, stub, pages } = world
  const log = recordingLogger()
  const operator = closing.adopt(await startOperator(world, log), (it) => it.stop())

  await createProxy(client, 'sample')
  const first = await untilReady(client, 'sample')
  const instanceName = first.status?.instanceName ?? ''
  expect(instanceName).toMatch(/^proxy-[0-9a-f]{20}$/)
  expect(first.metadata.finalizers).toEqual([proxyFinalizer])
  expect(first.status).toMatchObject({
    providerID: `hosts/kvm-1/domains/${instanceName}`,
    endpoint: `http://${first.status?.ip ?? ''}:3128`,
    egressIP: first.status?.ip,
    observedGeneration: 1,
  })
  const [domain] = stub.domains()
  expect(domain).toMatchObject({ name: instanceName, state: 'running', persistent: true, autostart: true })
  expect(domain?.userData?.toString()).toBe(first.spec.cloudInit)
  expect(inventory(stub)).toEqual({
    domains: [instanceName],
    files: [...emptyHost.files, `${instanceName}-seed.iso`, `${instanceName}.qcow2`].sort(),
  })

  const url = await eventually('the discovery API lists it', budgetMs, async () => {
    const text = await (await fetch(`${operator.discoveryUrl}/v1/proxies?format=text`)).text()
    return text === '' ? undefined : text.trim()
  })
  expect(url).toBe(first.status?.endpoint)
  expect(await getThrough(url, pages.httpUrl)).toMatchObject({ status: 200, body: first.status?.ip })
  expect(await getThroughTunnel(url, pages.httpsUrl, pages.ca)).toMatchObject({ status: 200, body: first.status?.ip })
  const health = await eventually('the provider is ready', budgetMs, async () => {
    const { items } = await client.list<ProviderHealth>(providerHealthResource)
    return items.find(({ status }) => status?.ready === true)
  })
  expect(health).toMatchObject({ metadata: { name: 'kvm2-home' }, status: { type: 'kvm2', readyTargets: '1/1' } })

  const cloudInit = `${first.spec.cloudInit ?? ''}# changed\n`
  const ref = { namespace: 'default', name: 'sample' }
  await client.patch(proxyResource, ref, { kind: 'merge', body: { spec: { cloudInit } } })
  await untilProxies(
    client,
    'it is Ready with another instance',
    ([proxy]) => proxy?.status?.phase === 'Ready' && proxy.status.specHash !== first.status?.specHash,
  )
  const [replacement, ...more] = stub.domains()
  expect(more).toEqual([])
  expect(replacement?.id).not.toBe(domain?.id)
  expect(replacement?.userData?.toString()).toBe(cloudInit)

  await deleteProxy(client, 'sample')
  await untilGone(client)
  expect(inventory(stub)).toEqual(emptyHost)
  const events = api.stored({ group: '', plural: 'events' }) as unknown as EventObject[]
  expect(events.filter(({ involvedObject }) => involvedObject.name === 'sample').length).toBeGreaterThan(0)
  expect(log.lines.filter(({ level }) => level === 'error')).toEqual([])

  await closing.disposeAsync()
  await eventually('every SSH connection is ended', budgetMs, () =>
    Promise.resolve(stub.connections() === 0 ? true : undefined),
  )
})

it('makes twenty at once, with one download, and deletes them all', async () => {
  await using world = await startStubWorld({ bootDelayMs: 50 })
  await using closing = new AsyncDisposableStack()
  const { client, stub } = world
  const operator = closing.adopt(await startOperator(world), (it) => it.stop())
  const names = Array.from({ length: 20 }, (_, index) => `proxy-${String(index + 1).padStart(2, '0')}`)

  await Promise.all(names.map((name) => createProxy(client, name)))
  const proxies = await untilProxies(
    client,
    'all twenty are Ready',
    (all) => all.length === 20 && all.every(({ status }) => status?.phase === 'Ready'),
  )
  expect(proxies.map(({ metadata }) => metadata.name).sort()).toEqual(names)
  const instances = proxies.map(instanceNameOf).sort()
  expect(inventory(stub).domains).toEqual(instances)
  expect(new Set(proxies.map(({ status }) => status?.ip)).size).toBe(20)
  expect((await operator.metrics.imageDownloadBytes.get()).values[0]?.value).toBe(imageBytes)

  await Promise.all(names.map((name) => deleteProxy(client, name)))
  await untilGone(client)
  expect(inventory(stub)).toEqual(emptyHost)
})

function instanceNameOf({ status }: Proxy): string {
  return status?.instanceName ?? ''
}

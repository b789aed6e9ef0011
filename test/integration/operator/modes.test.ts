// The whole operator with Proxies it does not own or may not touch: External and suspended ones; and repairs of what it owns.
import { expect, it } from 'vitest'
import { findCondition } from '../../../src/api/conditions.ts'
import { apiVersion, proxyKind } from '../../../src/api/group.ts'
import { proxyConditions, type Proxy, type ProxySpecInput } from '../../../src/api/proxy.ts'
import type { KubeClient } from '../../../src/kube/client.ts'
import { proxyResource } from '../../../src/reconcile/resources.ts'
import { getThrough } from '../../support/e2e/through-proxy.ts'
import { eventually } from '../../support/eventually.ts'
import { startForwardProxy } from '../../support/libvirt-stub/guest/forward-proxy.ts'
import type { LibvirtStub } from '../../support/libvirt-stub/stub.ts'
import { startStubWorld } from '../../support/stub-world.ts'
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

const name = 'a'
const shutdownByGuest = 1
const destroyed = 2

async function change(client: KubeClient, spec: Partial<ProxySpecInput>): Promise<void> {
  await client.patch(proxyResource, { namespace: 'default', name }, { kind: 'merge', body: { spec } })
}

const provisioned = ({ status }: Proxy) => findCondition(status?.conditions, proxyConditions.provisioned)

async function untilSuspended(client: KubeClient, message: RegExp): Promise<Proxy | undefined> {
  const [proxy] = await untilProxies(client, `suspended: ${message.source}`, ([only]) => {
    const condition = only === undefined ? undefined : provisioned(only)
    return condition?.reason === 'Suspended' && message.test(condition.message)
  })
  return proxy
}

/** What a change of anything on the host would show in. */
function mutations(stub: LibvirtStub): readonly number[] {
  const procedures = [
    'DOMAIN_CREATE',
    'DOMAIN_CREATE_WITH_FLAGS',
    'DOMAIN_DEFINE_XML_FLAGS',
    'DOMAIN_DESTROY',
    'DOMAIN_DESTROY_FLAGS',
    'DOMAIN_SHUTDOWN',
    'DOMAIN_UNDEFINE_FLAGS',
    'DOMAIN_SET_METADATA',
    'STORAGE_VOL_CREATE_XML',
    'STORAGE_VOL_DELETE',
  ] as const
  return procedures.map((procedure) => stub.calls(procedure))
}

it('probes and lists an External proxy, and asks no hypervisor about it', async () => {
  await using world = await startStubWorld()
  await using closing = new AsyncDisposableStack()
  const { client, pages, stub } = world
  const forward = closing.adopt(await startForwardProxy('127.0.0.1', 0), (it) => it.close())
  const operator = closing.adopt(await startOperator(world), (it) => it.stop())
  await client.create(proxyResource, {
    apiVersion,
    kind: proxyKind.kind,
    metadata: { namespace: 'default', name },
    spec: { mode: 'External', host: '127.0.0.1', port: forward.port },
  })
  const { status } = await untilReady(client, name)
  const endpoint = `http://127.0.0.1:${forward.port}`
  expect(status).toMatchObject({ phase: 'Ready', endpoint })
  expect(status).not.toHaveProperty('providerID')
  expect(status?.conditions?.map(({ type }) => type)).not.toContain(proxyConditions.provisioned)
  const url = await eventually('the discovery API lists it', budgetMs, async () => {
    const text = await (await fetch(`${operator.discoveryUrl}/v1/proxies?format=text`)).text()
    return text === '' ? undefined : text.trim()
  })
  expect(url).toBe(endpoint)
  expect(await getThrough(url, pages.httpUrl)).toMatchObject({ status: 200 })
  expect(mutations(stub)).toEqual(mutations(stub).map(() => 0))
  expect(stub.calls('DOMAIN_LOOKUP_BY_NAME')).toBe(0)
  expect(inventory(stub)).toEqual({ domains: [], files: [] })
  await deleteProxy(client, name)
  await untilGone(client)
})

it('changes nothing while suspended but goes on probing, and makes up for it afterwards', async () => {
  await using world = await startStubWorld()
  await using closing = new AsyncDisposableStack()
  const { client, pages, stub } = world
  closing.adopt(await startOperator(world), (it) => it.stop())
  await createProxy(client, name, { healthCheck: { interval: '1s' } })
  const { spec, status } = await untilReady(client, name)
  const instance = status?.instanceName ?? ''
  const uuid = stub.domain(instance)?.uuid

  await change(client, { suspend: true })
  await untilSuspended(client, /./)
  const before = mutations(stub)
  const cloudInit = `${spec.cloudInit ?? ''}# changed\n`
  await change(client, { cloudInit })
  await untilSuspended(client, /replace/)
  const probes = pages.seen.length
  await eventually('it is probed on', budgetMs, () => Promise.resolve(pages.seen.length > probes + 1 || undefined))
  expect(stub.domain(instance)).toMatchObject({ state: 'running', uuid })
  await change(client, { cloudInit: spec.cloudInit ?? '' })
  stub.host.shutDown(stub.host.domains.byName(instance), shutdownByGuest)
  await untilSuspended(client, /start/)
  expect(stub.domain(instance)).toMatchObject({ state: 'shutoff', uuid })
  expect(mutations(stub)).toEqual(before)

  await change(client, { suspend: false })
  await untilReady(client, name)
  expect(stub.domain(instance)).toMatchObject({ state: 'running', uuid })

  expect(mutations(stub)).not.toEqual(before)

  await change(client, { suspend: true, cloudInit })
  await untilSuspended(client, /replace/)
  expect(stub.domain(instance)?.userData?.toString()).toBe(spec.cloudInit)
  await change(client, { suspend: false })
  await eventually('it is replaced', budgetMs, () =>
    Promise.resolve(stub.domain(instance)?.userData?.toString() === cloudInit || undefined),
  )
  const replaced = stub.domain(instance)?.id
  await untilReady(client, name)

  await change(client, { suspend: true })
  await untilSuspended(client, /./)
  const held = mutations(stub)
  await deleteProxy(client, name)
  const deleting = await untilSuspended(client, /delete/)
  expect(deleting?.metadata.deletionTimestamp).toBeDefined()
  expect(stub.domain(instance)).toMatchObject({ state: 'running', id: replaced })
  expect(mutations(stub)).toEqual(held)
  await change(client, { suspend: false })
  await untilGone(client)
  expect(inventory(stub)).toEqual(emptyHost)
})

it('starts an instance that was stopped, and makes one again that vanished', async () => {
  await using world = await startStubWorld()
  await using closing = new AsyncDisposableStack()
  const { client, stub } = world
  closing.adopt(await startOperator(world), (it) => it.stop())
  await createProxy(client, name)
  const instance = (await untilReady(client, name)).status?.instanceName ?? ''
  const first = stub.domain(instance)
  const { domains } = stub.host

  stub.host.shutDown(domains.byName(instance), shutdownByGuest)
  const second = await eventually('it was started', budgetMs, () => {
    const domain = stub.domain(instance)
    return Promise.resolve(domain?.state === 'running' && domain.id !== first?.id ? domain : undefined)
  })
  expect(second.uuid).toBe(first?.uuid)
  await untilReady(client, name)

  const domain = domains.byName(instance)
  stub.host.cut(domain)
  domains.undefine(domain, true)
  domains.stop(domain, destroyed)
  stub.host.emitLifecycle(domain, 1, 0)
  await eventually('it was made again', budgetMs, () =>
    Promise.resolve(
      stub.domains().some(({ id, state }) => state === 'running' && id !== second.id && id !== -1) || undefined,
    ),
  )
  await untilReady(client, name)
  expect(inventory(stub).domains).toEqual([instance])
  await deleteProxy(client, name)
  await untilGone(client)
  expect(inventory(stub)).toEqual(emptyHost)
})

// The whole operator after a host that still has instances was removed from the config: who is told, and what is left alone.
import { expect, it } from 'vitest'
import type { ProviderHealth } from '../../../src/api/provider-health.ts'
import type { Resource } from '../../../src/kube/client.ts'
import { providerHealthResource } from '../../../src/reconcile/resources.ts'
import { sampleProvider, writeProviders } from '../../support/e2e/samples.ts'
import { eventually } from '../../support/eventually.ts'
import { accessTo, startStubWorld } from '../../support/stub-world.ts'
import { budgetMs, createProxy, inventory, startOperator, untilReady } from './world.ts'

/** A host that is asked about before its instance was met tells of it in the next round of health checks, a minute later. */
const slowMs = 240_000

interface EventObject extends Resource {
  readonly type: string
  readonly reason: string
  readonly involvedObject: { readonly name: string }
}

it(
  'tells in ProviderHealth and in an Event of instances on a removed host, and leaves them alone',
  async () => {
    await using world = await startStubWorld()
    await using closing = new AsyncDisposableStack()
    const { api, client, providersConfigFile, stub } = world
    const before = await startOperator(world)
    await createProxy(client, 'stays')
    const { status } = await untilReady(client, 'stays')
    await before.stop()
    const there = { ...inventory(stub), id: stub.domain(status?.instanceName ?? '')?.id }

    const entry = await sampleProvider(accessTo(stub), { host: { name: 'kvm-2' }, block: {} })
    await writeProviders(providersConfigFile, [entry])
    closing.adopt(await startOperator(world), (it) => it.stop())
    const event = await eventually('an Event of the Proxy tells it', budgetMs, () => {
      const events = api.stored({ group: '', plural: 'events' }) as unknown as EventObject[]
      return Promise.resolve(
        events.find(({ involvedObject, reason }) => involvedObject.name === 'stays' && reason === 'HostNotConfigured'),
      )
    })
    expect(event.type).toBe('Warning')
    const targets = await eventually('ProviderHealth tells it', 2 * budgetMs, async () => {
      const { items } = await client.list<ProviderHealth>(providerHealthResource)
      const [health] = items
      return health?.status?.targets?.some(({ details }) => details?.['removedHosts'] !== undefined)
        ? health.status.targets
        : undefined
    })
    expect(targets).toMatchObject([{ name: 'kvm-2', ready: true, details: { removedHosts: 'kvm-1 (1 instances)' } }])
    expect({ ...inventory(stub), id: stub.domain(status?.instanceName ?? '')?.id }).toEqual(there)
  },
  slowMs,
)

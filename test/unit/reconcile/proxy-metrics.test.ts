// The gauges about Proxies after every kind of change.
import { expect, it } from 'vitest'
import { apiVersion } from '../../../src/api/group.ts'
import { proxySpecSchema, type Proxy, type ProxyPhase } from '../../../src/api/proxy.ts'
import { Store } from '../../../src/kube/store.ts'
import { createMetrics } from '../../../src/observe/metrics.ts'
import { trackProxies } from '../../../src/reconcile/proxy-metrics.ts'
import { baseSpec } from '../../support/reconcile-harness.ts'

let version = 0
const proxy = (name: string, phase?: ProxyPhase, uid = name): Proxy => ({
  apiVersion,
  kind: 'Proxy',
  metadata: { name, namespace: 'default', uid, resourceVersion: String(++version) },
  spec: proxySpecSchema.parse(baseSpec),
  ...(phase === undefined ? {} : { status: { phase } }),
})

it('count each Proxy once, in the phase it is in', async () => {
  const metrics = createMetrics()
  const store = new Store<Proxy>({
    onListenerError: (error) => {
      throw error
    },
  })
  store.put(proxy('before', 'Ready'))
  const end = trackProxies(store, metrics)
  const text = async () => [
    await metrics.registry.getSingleMetricAsString('proxy_operator_proxies'),
    await metrics.registry.getSingleMetricAsString('proxy_operator_proxy_up'),
  ]
  const expectLines = async (...lines: string[]) => {
    const all = (await text()).join('\n')
    for (const line of lines) expect(all).toContain(line)
  }
  const ready = '{provider="fake",phase="Ready"}'
  await expectLines(`${ready} 1`, '{namespace="default",name="before"} 1')

  store.put(proxy('a'))
  await expectLines('{provider="fake",phase="Pending"} 1', '{namespace="default",name="a"} 0')
  store.put(proxy('a', 'Ready'))
  await expectLines('{provider="fake",phase="Pending"} 0', `${ready} 2`, '{namespace="default",name="a"} 1')
  store.put(proxy('a', 'Running', 'another'))
  await expectLines(`${ready} 1`, '{provider="fake",phase="Running"} 1', '{namespace="default",name="a"} 0')
  store.replaceAll([])
  await expectLines(`${ready} 0`, '{provider="fake",phase="Running"} 0')
  expect((await text()).join('\n')).not.toContain('name="a"')

  store.put(proxy('b', 'Ready'))
  end()
  store.put(proxy('c', 'Ready'))
  expect((await text()).join('\n')).not.toContain('provider="fake"')
})

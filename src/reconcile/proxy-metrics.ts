// Keeps the gauges about Proxies in step with their statuses in the store; it decides nothing.
import type { Proxy } from '../api/proxy.ts'
import { keyOf } from '../kube/object.ts'
import type { StoreReader } from '../kube/store.ts'
import type { Metrics } from '../observe/metrics.ts'

interface Labels {
  readonly provider: string
  readonly phase: string
}

/** The returned function ends it and takes the series away: a standby publishes none. */
export function trackProxies(store: StoreReader<Proxy>, metrics: Pick<Metrics, 'proxies' | 'proxyUp'>): () => void {
  const counted = new Map<string, Labels>()
  const uncount = (key: string) => {
    const labels = counted.get(key)
    if (labels !== undefined) metrics.proxies.dec({ ...labels })
    counted.delete(key)
  }
  const count = (proxy: Proxy) => {
    const { namespace, name } = proxy.metadata
    const labels = { provider: proxy.spec.provider ?? '', phase: proxy.status?.phase ?? 'Pending' }
    uncount(keyOf(proxy.metadata))
    counted.set(keyOf(proxy.metadata), labels)
    metrics.proxies.inc({ ...labels })
    metrics.proxyUp.set({ namespace, name }, labels.phase === 'Ready' ? 1 : 0)
  }
  const forget = ({ metadata }: Proxy) => {
    uncount(keyOf(metadata))
    metrics.proxyUp.remove({ namespace: metadata.namespace, name: metadata.name })
  }
  const end = store.onChange((change) => {
    if (change.kind === 'deleted') forget(change.object)
    else count(change.object)
  })
  for (const proxy of store.list()) count(proxy)
  return () => {
    end()
    metrics.proxies.reset()
    metrics.proxyUp.reset()
  }
}

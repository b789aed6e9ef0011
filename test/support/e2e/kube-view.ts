// What a test does to and sees of Proxies on a real API server: kubectl for what people do, requests for what is polled.
import type { Condition } from '../../../src/api/conditions.ts'
import { findCondition } from '../../../src/api/conditions.ts'
import { proxyConditions, type Proxy, type ProxyPhase } from '../../../src/api/proxy.ts'
import { isNotFound, KubeClient, type Resource, type ResourceType } from '../../../src/kube/client.ts'
import { proxyResource } from '../../../src/reconcile/resources.ts'
import type { Cluster } from '../cluster.ts'
import { eventually } from '../eventually.ts'
import type { ProxyManifest } from './samples.ts'

/** As far as tests read one. */
export interface EventView extends Resource {
  readonly type: string
  readonly reason: string
  readonly message: string
  readonly involvedObject: { readonly kind: string; readonly name: string; readonly namespace?: string }
}

const eventResource: ResourceType = { group: '', version: 'v1', plural: 'events', kind: 'Event', namespaced: true }
const namespace = 'default'

export class KubeView {
  readonly cluster: Cluster
  readonly client: KubeClient

  constructor(cluster: Cluster) {
    this.cluster = cluster
    this.client = KubeClient.fromKubeconfig({ file: cluster.kubeconfigPath })
  }

  /** kubectl apply. @throws CommandError with what the API server said */
  async apply(...objects: readonly (ProxyManifest | object)[]): Promise<void> {
    const list = { apiVersion: 'v1', kind: 'List', items: objects }
    await this.cluster.kubectl(['apply', '-f', '-'], { input: JSON.stringify(list) })
  }

  /** kubectl delete, which returns when the object is gone. */
  async remove(name: string, budgetMs: number): Promise<void> {
    await this.cluster.kubectl(['delete', 'px', name, '-n', namespace, `--timeout=${Math.ceil(budgetMs / 1000)}s`], {
      timeoutMs: budgetMs + 30_000,
    })
  }

  /** kubectl delete, which returns when the API server took it. */
  async askToRemove(...names: readonly string[]): Promise<void> {
    await this.cluster.kubectl(['delete', 'px', ...names, '-n', namespace, '--wait=false'])
  }

  async proxies(): Promise<readonly Proxy[]> {
    return (await this.client.list<Proxy>(proxyResource, { namespace })).items
  }

  /** Undefined when there is none. */
  async proxy(name: string): Promise<Proxy | undefined> {
    try {
      return await this.client.get<Proxy>(proxyResource, { namespace, name })
    } catch (error) {
      if (isNotFound(error)) return undefined
      throw error
    }
  }

  /** Waits until the Proxy is as wanted; what it was last stands in the error. */
  async until(name: string, what: string, budgetMs: number, wanted: (proxy: Proxy) => boolean): Promise<Proxy> {
    return await eventually(`${name} ${what}`, budgetMs, async () => {
      const proxy = await this.proxy(name)
      if (proxy !== undefined && wanted(proxy)) return proxy
      throw new Error(proxy === undefined ? 'there is no such Proxy' : `status: ${JSON.stringify(proxy.status)}`)
    })
  }

  async untilPhase(name: string, phase: ProxyPhase, budgetMs: number): Promise<Proxy> {
    return await this.until(name, `is ${phase}`, budgetMs, (proxy) => proxy.status?.phase === phase)
  }

  async untilGone(name: string, budgetMs: number): Promise<void> {
    await eventually(`${name} is gone`, budgetMs, async () => {
      const proxy = await this.proxy(name)
      if (proxy === undefined) return true
      throw new Error(`status: ${JSON.stringify(proxy.status)}`)
    })
  }

  /** Every Event there is, or those about one Proxy. */
  async events(name?: string): Promise<readonly EventView[]> {
    const { items } = await this.client.listAll<EventView>(eventResource)
    return name === undefined ? items : items.filter(({ involvedObject }) => involvedObject.name === name)
  }

  async close(): Promise<void> {
    await this.client.close()
  }
}

export function provisioned(proxy: Proxy): Condition | undefined {
  return findCondition(proxy.status?.conditions, proxyConditions.provisioned)
}

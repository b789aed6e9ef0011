// Writes down every state of every Proxy and ProviderHealth that the API server tells while a test runs, with the time it came.
import { setTimeout as sleep } from 'node:timers/promises'
import type { Proxy } from '../../../src/api/proxy.ts'
import type { KubeClient, Resource, ResourceType } from '../../../src/kube/client.ts'
import { providerHealthResource, proxyResource } from '../../../src/reconcile/resources.ts'

export interface Sighting<T> {
  /** performance.now() when it came, milliseconds. */
  readonly atMs: number
  readonly kind: 'seen' | 'deleted'
  readonly object: T
}

export interface Witness {
  /** In the order in which they came. */
  readonly proxies: readonly Sighting<Proxy>[]
  readonly healths: readonly Sighting<Resource>[]
  stop(): Promise<void>
}

export function startWitness(client: KubeClient): Witness {
  const stop = new AbortController()
  const proxies: Sighting<Proxy>[] = []
  const healths: Sighting<Resource>[] = []
  const watching = Promise.all([
    follow(client, proxyResource, proxies, stop.signal),
    follow(client, providerHealthResource, healths, stop.signal),
  ])
  return {
    proxies,
    healths,
    stop: async () => {
      stop.abort(new Error('the witness leaves'))
      await watching
    },
  }
}

async function follow<T extends Resource>(
  client: KubeClient,
  type: ResourceType,
  into: Sighting<T>[],
  signal: AbortSignal,
): Promise<void> {
  let resourceVersion: string | undefined
  while (!signal.aborted) {
    try {
      for await (const event of client.watch<T>(type, { resourceVersion, timeoutSeconds: 300 }, signal)) {
        if (event.kind === 'bookmark') continue
        if (event.kind === 'error') throw event.error
        resourceVersion = event.object.metadata.resourceVersion
        into.push({
          atMs: performance.now(),
          kind: event.kind === 'deleted' ? 'deleted' : 'seen',
          object: event.object,
        })
      }
    } catch {
      // The API server is down, as some tests want it, or forgot the version: begin with what there is.
      resourceVersion = undefined
      await sleep(250, undefined, { signal }).catch(() => undefined)
    }
  }
}

// The reconcilers' requests on the Kubernetes client; no cache, no retry.
import type { Proxy } from '../api/proxy.ts'
import type { KubeClient } from '../kube/client.ts'
import type { KubeObject } from '../kube/object.ts'
import type { ProxyApi, ReadSecret } from './ports.ts'
import { proxyResource, secretResource } from './resources.ts'

/** @param watchNamespace the only namespace this operator looks at; all when absent */
export function kubeProxyApi(client: KubeClient, watchNamespace?: string): ProxyApi {
  return {
    get: (ref, signal) => client.get<Proxy>(proxyResource, ref, signal),
    list: async (signal) => (await client.listAll<Proxy>(proxyResource, { namespace: watchNamespace }, signal)).items,
    patchStatus: (proxy, patch, signal) => client.patchStatus<Proxy>(proxyResource, proxy.metadata, patch, signal),
    patchFinalizers: ({ metadata }, finalizers, signal) => {
      const { uid, resourceVersion } = metadata
      const body = { metadata: { uid, resourceVersion, finalizers } }
      return client.patch<Proxy>(proxyResource, metadata, { kind: 'merge', body }, { signal })
    },
  }
}

/** Reads a Secret by GET. */
export function kubeReadSecret(client: KubeClient): ReadSecret {
  return async (ref, signal) => {
    const { data } = await client.get<KubeObject & { readonly data?: Readonly<Record<string, string>> | null }>(
      secretResource,
      ref,
      signal,
    )
    return new Map(Object.entries(data ?? {}).map(([key, value]) => [key, Buffer.from(value, 'base64')]))
  }
}

// The reconcilers' requests on the Kubernetes client; no cache, no retry.
import type { ProviderHealth } from '../api/provider-health.ts'
import type { Proxy } from '../api/proxy.ts'
import type { KubeClient } from '../kube/client.ts'
import { isNotFound } from '../kube/errors.ts'
import type { KubeObject } from '../kube/object.ts'
import type { ProviderHealthApi, ProxyApi, ReadSecret } from './ports.ts'
import { providerHealthResource, proxyResource, secretResource } from './resources.ts'

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

export function kubeProviderHealthApi(client: KubeClient): ProviderHealthApi {
  const type = providerHealthResource
  return {
    get: (name, signal) => client.get<ProviderHealth>(type, { name }, signal),
    list: async (labels, signal) => {
      const labelSelector = Object.entries(labels)
        .map(([name, value]) => `${name}=${value}`)
        .join(',')
      return (await client.listAll<ProviderHealth>(type, { labelSelector }, signal)).items
    },
    create: (name, labels, signal) => client.create<ProviderHealth>(type, { metadata: { name, labels } }, signal),
    setLabels: ({ metadata }, labels, signal) => {
      const body = { metadata: { resourceVersion: metadata.resourceVersion, labels } }
      return client.patch<ProviderHealth>(type, metadata, { kind: 'merge', body }, { signal })
    },
    patchStatus: ({ metadata }, patch, signal) => client.patchStatus<ProviderHealth>(type, metadata, patch, signal),
    remove: async ({ metadata }, signal) => {
      const { name, uid, resourceVersion } = metadata
      try {
        await client.delete(type, { name }, { uid, resourceVersion }, signal)
      } catch (error) {
        if (!isNotFound(error)) throw error
      }
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

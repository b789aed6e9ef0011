// Names of our Kubernetes API: group, version, kinds, finalizer, annotations, labels. Constants only, no behaviour.

export const apiGroup = 'egressproxies.dev'
export const apiVersionName = 'v1alpha1'
/** The `apiVersion` of every object of ours. */
export const apiVersion = `${apiGroup}/${apiVersionName}` as const

/** Names of one kind, as its CRD and its request paths spell them. */
export interface KindNames {
  readonly kind: string
  readonly plural: string
  readonly singular: string
  readonly listKind: string
  readonly shortName: string
  readonly namespaced: boolean
}

export const proxyKind = {
  kind: 'Proxy',
  plural: 'proxies',
  singular: 'proxy',
  listKind: 'ProxyList',
  shortName: 'px',
  namespaced: true,
} as const satisfies KindNames

export const providerHealthKind = {
  kind: 'ProviderHealth',
  plural: 'providerhealths',
  singular: 'providerhealth',
  listKind: 'ProviderHealthList',
  shortName: 'ph',
  namespaced: false,
} as const satisfies KindNames

/** On a Proxy for as long as the operator may own something on a hypervisor for it. */
export const proxyFinalizer = `${apiGroup}/instance` as const

/** A new value ends the latch of a failed Proxy. */
export const retryAnnotation = `${apiGroup}/retry` as const
/** Names the providerID of an instance without installation id that the Proxy takes over. */
export const adoptAnnotation = `${apiGroup}/adopt` as const
/** Names the providerID of an instance that lost our mark and that the Proxy lets go of. */
export const releaseAnnotation = `${apiGroup}/release` as const
/** On a ProviderHealth: the id of the installation that owns it. */
export const installationLabel = `${apiGroup}/installation` as const

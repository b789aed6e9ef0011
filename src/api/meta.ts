// The part of Kubernetes' ObjectMeta that the operator reads; not a schema: the API server has judged it already.

/** Metadata of an object that came from the API server. Times are RFC 3339 strings. */
export interface ObjectMeta {
  name: string
  namespace?: string
  uid: string
  resourceVersion: string
  generation?: number
  creationTimestamp?: string
  deletionTimestamp?: string
  deletionGracePeriodSeconds?: number
  finalizers?: string[]
  labels?: Record<string, string>
  annotations?: Record<string, string>
}

/** Metadata of a namespaced object. */
export interface NamespacedMeta extends ObjectMeta {
  namespace: string
}

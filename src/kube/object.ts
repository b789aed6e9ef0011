// The parts of a Kubernetes object and of a resource's address that all kinds share; not the schema of any kind.

/** Names a kind of resource and where the API serves it. `group` is empty for the core group. */
export interface ResourceType {
  readonly group: string
  readonly version: string
  readonly plural: string
  readonly kind: string
  readonly namespaced: boolean
}

export interface OwnerReference {
  readonly apiVersion: string
  readonly kind: string
  readonly name: string
  readonly uid: string
  readonly controller?: boolean | undefined
  readonly blockOwnerDeletion?: boolean | undefined
}

/** metav1.ObjectMeta as far as the operator reads it. Times are RFC 3339 texts, `resourceVersion` is opaque. */
export interface ObjectMeta {
  readonly name: string
  readonly namespace?: string | undefined
  readonly uid: string
  readonly resourceVersion: string
  readonly generation?: number | undefined
  readonly labels?: Readonly<Record<string, string>> | undefined
  readonly annotations?: Readonly<Record<string, string>> | undefined
  readonly finalizers?: readonly string[] | undefined
  readonly ownerReferences?: readonly OwnerReference[] | undefined
  readonly creationTimestamp?: string | undefined
  readonly deletionTimestamp?: string | undefined
}

/** What every typed object has at least; the constraint of everything generic here. */
export interface Resource {
  readonly apiVersion?: string | undefined
  readonly kind?: string | undefined
  readonly metadata: ObjectMeta
}

/** An object of no particular kind, as parsed from JSON. */
export interface KubeObject extends Resource {
  readonly [field: string]: unknown
}

/** Address of one object. `namespace` is left out for cluster-scoped kinds. */
export interface ObjectRef {
  readonly namespace?: string | undefined
  readonly name: string
}

/** What a caller sends to create an object: the server fills in the rest of the metadata. */
export interface NewObject {
  readonly metadata: {
    readonly name: string
    readonly namespace?: string | undefined
    readonly labels?: Readonly<Record<string, string>> | undefined
    readonly annotations?: Readonly<Record<string, string>> | undefined
    readonly finalizers?: readonly string[] | undefined
    readonly ownerReferences?: readonly OwnerReference[] | undefined
  }
  readonly [field: string]: unknown
}

/** Key of an object in stores and queues: `namespace/name`, or `name` for cluster-scoped kinds. */
export function keyOf(ref: ObjectRef): string {
  return ref.namespace === undefined || ref.namespace === '' ? ref.name : `${ref.namespace}/${ref.name}`
}

/** The address in a key made by {@link keyOf}. */
export function refOfKey(key: string): ObjectRef {
  const slash = key.indexOf('/')
  return slash < 0 ? { name: key } : { namespace: key.slice(0, slash), name: key.slice(slash + 1) }
}

/** `group/version`, or `version` for the core group. */
export function apiVersionOf(type: ResourceType): string {
  return type.group === '' ? type.version : `${type.group}/${type.version}`
}

/** Stable text for logs and metrics: `plural.group/version`. */
export function typeId(type: ResourceType): string {
  return `${type.plural}.${apiVersionOf(type)}`
}

/** Path of a collection, or of one object when `name` is given, without the query. */
export function resourcePath(type: ResourceType, ref: Partial<ObjectRef>, subresource?: 'status'): string {
  const segments = type.group === '' ? ['api', type.version] : ['apis', type.group, type.version]
  if (ref.namespace !== undefined && ref.namespace !== '') segments.push('namespaces', ref.namespace)
  segments.push(type.plural)
  if (ref.name !== undefined) segments.push(ref.name)
  if (subresource !== undefined) segments.push(subresource)
  return `/${segments.map(encodeURIComponent).join('/')}`
}

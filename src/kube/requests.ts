// The options and answers of requests to the API server, as types; no behaviour.

export interface ListOptions {
  readonly namespace?: string | undefined
  /** Kubernetes syntax: `app=squid,zone in (a,b)`. */
  readonly labelSelector?: string | undefined
  readonly fieldSelector?: string | undefined
  /** Objects per page. */
  readonly limit?: number | undefined
  readonly continue?: string | undefined
  readonly resourceVersion?: string | undefined
}

export interface ResourceList<T> {
  /** Where a watch carries on from. */
  readonly resourceVersion: string
  /** Token of the next page; undefined on the last. */
  readonly continue: string | undefined
  readonly items: readonly T[]
}

/** All pages of one snapshot. */
export type CompleteList<T> = Omit<ResourceList<T>, 'continue'>

export interface WatchOptions {
  readonly namespace?: string | undefined
  readonly labelSelector?: string | undefined
  readonly resourceVersion?: string | undefined
  readonly allowWatchBookmarks?: boolean | undefined
  /** The server ends the watch after it. */
  readonly timeoutSeconds?: number | undefined
}

export type JsonPatchOperation =
  | { readonly op: 'add' | 'replace' | 'test'; readonly path: string; readonly value: unknown }
  | { readonly op: 'remove'; readonly path: string }
  | { readonly op: 'move' | 'copy'; readonly from: string; readonly path: string }

/** `merge` is RFC 7386, `json` is RFC 6902. */
export type Patch =
  | { readonly kind: 'merge'; readonly body: Readonly<Record<string, unknown>> }
  | { readonly kind: 'json'; readonly operations: readonly JsonPatchOperation[] }

export interface DeleteOptions {
  /** Refuses with a conflict when the object has another UID. */
  readonly uid?: string
  readonly resourceVersion?: string
  readonly propagationPolicy?: 'Orphan' | 'Background' | 'Foreground'
}

// Which kinds the in-process API serves and what is particular about each; their common rules are in registry.ts.
import { isJson, textAt, type Json } from './json.ts'
import type { ResourceType } from '../../../src/kube/client.ts'
import type { FieldProblem } from './api-error.ts'

/** A printer column, as in a CustomResourceDefinition. */
export interface Column {
  readonly name: string
  readonly type: string
  readonly jsonPath: string
  /** Above 0: only with `-o wide`. */
  readonly priority?: number
}

/** A custom resource that a test or the demo has served. */
export interface CustomKind extends ResourceType {
  readonly shortNames?: readonly string[]
  readonly columns?: readonly Column[]
  /** Has the status subresource; default true. */
  readonly status?: boolean
  /** Sets defaults and prunes: returns what is to be validated and stored. */
  readonly prepare?: (object: Json) => Json
  readonly validate?: (object: Json, old: Json | undefined) => readonly FieldProblem[]
}

export interface ServedKind extends CustomKind {
  readonly shortNames: readonly string[]
  readonly status: boolean
  /** Counts changes of the spec in `metadata.generation`. */
  readonly generation: boolean
  /** Takes a PUT that names no resourceVersion. */
  readonly unconditionalUpdate: boolean
  readonly deletable: boolean
}

export function customKind(kind: CustomKind): ServedKind {
  return {
    ...kind,
    shortNames: kind.shortNames ?? [],
    status: kind.status ?? true,
    generation: true,
    unconditionalUpdate: false,
    deletable: true,
  }
}

const core = { group: '', version: 'v1', generation: false, unconditionalUpdate: true, deletable: true }

export const namespaceKind: ServedKind = {
  ...core,
  plural: 'namespaces',
  kind: 'Namespace',
  namespaced: false,
  shortNames: ['ns'],
  status: true,
  // Emptying a namespace is a controller's work, which this API does not do.
  deletable: false,
  prepare: (object) => ({
    ...object,
    spec: isJson(object['spec']) ? object['spec'] : { finalizers: ['kubernetes'] },
    status: isJson(object['status']) ? object['status'] : { phase: 'Active' },
  }),
}

export const secretKind: ServedKind = {
  ...core,
  plural: 'secrets',
  kind: 'Secret',
  namespaced: true,
  shortNames: [],
  status: false,
  prepare: ({ stringData, ...object }) => {
    const data = { ...(isJson(object['data']) ? object['data'] : {}) }
    for (const [key, value] of Object.entries(isJson(stringData) ? stringData : {})) {
      data[key] = Buffer.from(String(value)).toString('base64')
    }
    return { ...object, type: object['type'] ?? 'Opaque', ...(Object.keys(data).length > 0 && { data }) }
  },
  validate: (object) => {
    const size = Object.values(isJson(object['data']) ? object['data'] : {})
      .map((value) => Buffer.from(String(value), 'base64').length)
      .reduce((sum, length) => sum + length, 0)
    return size > 1024 * 1024 ? [{ field: 'data', message: 'Too long: may not be more than 1048576 bytes' }] : []
  },
}

export const eventKind: ServedKind = {
  ...core,
  plural: 'events',
  kind: 'Event',
  namespaced: true,
  shortNames: ['ev'],
  status: false,
  validate: (object) => {
    const about = isJson(object['involvedObject']) ? object['involvedObject'] : {}
    const own = textAt(isJson(object['metadata']) ? object['metadata'] : {}, 'namespace')
    const wanted = textAt(about, 'namespace') ?? 'default'
    return own === wanted
      ? []
      : [{ field: 'involvedObject.namespace', message: 'Invalid value: "": does not match event.namespace' }]
  },
}

// Loose JSON objects as the in-process API keeps them; not the types of any kind.

export type Json = Record<string, unknown>

/** An object as stored: what every kind has. */
export interface Stored extends Json {
  apiVersion: string
  kind: string
  metadata: StoredMeta
}

export interface StoredMeta extends Json {
  name: string
  namespace?: string
  uid: string
  resourceVersion: string
  creationTimestamp: string
  generation?: number
  deletionTimestamp?: string
  deletionGracePeriodSeconds?: number
  finalizers?: string[]
  labels?: Record<string, string>
  annotations?: Record<string, string>
}

export function isJson(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** The member `name` when it is an object. */
export function jsonAt(value: Json, name: string): Json | undefined {
  const member = value[name]
  return isJson(member) ? member : undefined
}

/** The member `name` when it is a text. */
export function textAt(value: Json | undefined, name: string): string | undefined {
  const member = value?.[name]
  return typeof member === 'string' ? member : undefined
}

export function without(value: Json, ...names: readonly string[]): Json {
  return Object.fromEntries(Object.entries(value).filter(([name]) => !names.includes(name)))
}

export function storageKey(namespace: string | undefined, name: string): string {
  return namespace === undefined ? name : `${namespace}/${name}`
}

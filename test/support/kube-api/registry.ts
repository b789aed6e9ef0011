// The rules that all kinds share: creation, updates of spec and status, conflicts, generation, finalizers and deletion.
import { randomUUID } from 'node:crypto'
import { isDeepStrictEqual } from 'node:util'
import { alreadyExists, badRequest, conflict, invalid, modified, notFound } from './api-error.ts'
import type { FieldProblem } from './api-error.ts'
import { isJson, jsonAt, storageKey, textAt, without, type Json, type Stored, type StoredMeta } from './json.ts'
import { namespaceKind, type ServedKind } from './kinds.ts'
import type { Storage } from './storage.ts'

export interface Address {
  readonly kind: ServedKind
  readonly namespace: string | undefined
  readonly name: string
}

export interface DeletePreconditions {
  readonly uid?: string | undefined
  readonly resourceVersion?: string | undefined
}

/** `marked`: finalizers keep the object. */
export interface Deleted {
  readonly kind: 'removed' | 'marked'
  readonly object: Stored
}

const dnsSubdomain = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/

export class Registry {
  readonly #storage: Storage

  constructor(storage: Storage) {
    this.#storage = storage
  }

  get({ kind, namespace, name }: Address): Stored {
    const object = this.#storage.get(idOf(kind), namespace, name)
    if (object === undefined) throw notFound(kind, name)
    return object
  }

  create(kind: ServedKind, namespace: string | undefined, body: Json, strict = false): Stored {
    const meta = jsonAt(body, 'metadata') ?? {}
    const name = textAt(meta, 'name') ?? ''
    this.#checkAddress(kind, body, { kind, namespace, name })
    if (namespace !== undefined && this.#storage.get(idOf(namespaceKind), undefined, namespace) === undefined) {
      throw notFound(namespaceKind, namespace)
    }
    if (name === '') {
      const message = 'Required value: name or generateName is required'
      throw invalid(kind, name, [{ field: 'metadata.name', message, reason: 'FieldValueRequired' }])
    }
    const problems: FieldProblem[] = []
    if (!dnsSubdomain.test(name) || name.length > 253) {
      const message = `Invalid value: ${JSON.stringify(name)}: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character`
      problems.push({ field: 'metadata.name', message })
    }
    const metadata: StoredMeta = {
      ...keptFromClient(meta),
      name,
      ...(namespace !== undefined && { namespace }),
      ...(kind === namespaceKind && { labels: { ...jsonAt(meta, 'labels'), 'kubernetes.io/metadata.name': name } }),
      uid: randomUUID(),
      resourceVersion: '',
      creationTimestamp: now(),
      ...(kind.generation && { generation: 1 }),
    }
    const given = { ...(kind.status ? without(body, 'status') : body), metadata }
    const draft = prepare(kind, given)
    if (strict) refuseUnknown(kind, given, draft)
    problems.push(...(kind.validate?.(draft, undefined) ?? []))
    if (problems.length > 0) throw invalid(kind, name, problems)
    if (this.#storage.get(idOf(kind), namespace, name) !== undefined) throw alreadyExists(kind, name)
    return this.#storage.write(idOf(kind), draft)
  }

  /** PUT: everything but the status, or the status alone. */
  update(address: Address, body: Json, subresource: 'status' | undefined, strict = false): Stored {
    const { kind, name } = address
    this.#checkAddress(kind, body, address)
    const old = this.get(address)
    const meta = jsonAt(body, 'metadata') ?? {}
    const version = textAt(meta, 'resourceVersion')
    if ((version === undefined || version === '') && !kind.unconditionalUpdate) {
      const message = 'Invalid value: 0: must be specified for an update'
      throw invalid(kind, name, [{ field: 'metadata.resourceVersion', message }])
    }
    checkUid(kind, name, textAt(meta, 'uid'), old)
    return this.#write(address, old, body, subresource, strict)
  }

  /** PATCH. `apply` makes the new object of the present one. */
  patch(
    address: Address,
    apply: (present: Stored) => unknown,
    subresource: 'status' | undefined,
    strict = false,
  ): Stored {
    const old = this.get(address)
    const patched = apply(old)
    if (!isJson(patched)) throw badRequest('the patch does not leave an object')
    this.#checkAddress(address.kind, patched, address)
    return this.#write(address, old, patched, subresource, strict)
  }

  delete(address: Address, preconditions: DeletePreconditions): Deleted {
    const { kind, name } = address
    const old = this.get(address)
    checkUid(kind, name, preconditions.uid, old)
    const { resourceVersion } = preconditions
    if (resourceVersion !== undefined && resourceVersion !== old.metadata.resourceVersion) {
      const found = old.metadata.resourceVersion
      const why = `Precondition failed: ResourceVersion in precondition: ${resourceVersion}, ResourceVersion in object meta: ${found}`
      throw conflict(kind, name, why)
    }
    if ((old.metadata.finalizers ?? []).length === 0) {
      return { kind: 'removed', object: this.#storage.remove(idOf(kind), old) }
    }
    if (old.metadata.deletionTimestamp !== undefined) return { kind: 'marked', object: old }
    const metadata: StoredMeta = {
      ...old.metadata,
      ...(old.metadata.generation !== undefined && { generation: old.metadata.generation + 1 }),
      deletionTimestamp: now(),
      deletionGracePeriodSeconds: 0,
    }
    return { kind: 'marked', object: this.#storage.write(idOf(kind), { ...old, metadata }) }
  }

  #write(address: Address, old: Stored, body: Json, subresource: 'status' | undefined, strict: boolean): Stored {
    const { kind, name } = address
    const meta = jsonAt(body, 'metadata') ?? {}
    const version = textAt(meta, 'resourceVersion')
    if (version !== undefined && version !== '' && version !== old.metadata.resourceVersion) throw modified(kind, name)
    const next = subresource === 'status' ? prepare(kind, statusDraft(old, body)) : updateDraft(kind, old, body, meta)
    if (strict) refuseUnknown(kind, body, subresource === 'status' ? next : { ...next, status: body['status'] })
    const problems = [...uidProblems(old, meta), ...finalizerProblems(old, next), ...(kind.validate?.(next, old) ?? [])]
    if (problems.length > 0) throw invalid(kind, name, problems)
    if (isDeepStrictEqual(next, old)) return old
    const { deletionTimestamp, finalizers } = next.metadata
    if (deletionTimestamp !== undefined && (finalizers ?? []).length === 0) {
      return this.#storage.remove(idOf(kind), next)
    }
    return this.#storage.write(idOf(kind), next)
  }

  #checkAddress(kind: ServedKind, body: Json, { namespace, name }: Address): void {
    const apiVersion = kind.group === '' ? kind.version : `${kind.group}/${kind.version}`
    if (body['apiVersion'] !== apiVersion || body['kind'] !== kind.kind) {
      const given = `${String(body['apiVersion'])}, Kind=${String(body['kind'])}`
      throw badRequest(`${given} in the body does not match ${apiVersion}, Kind=${kind.kind}`)
    }
    const meta = jsonAt(body, 'metadata') ?? {}
    const givenName = textAt(meta, 'name')
    if (givenName !== undefined && givenName !== name) {
      throw badRequest(`the name of the object (${givenName}) does not match the name on the URL (${name})`)
    }
    const givenNamespace = textAt(meta, 'namespace')
    if (givenNamespace !== undefined && givenNamespace !== '' && givenNamespace !== (namespace ?? '')) {
      throw badRequest('the namespace of the provided object does not match the namespace sent on the request')
    }
  }
}

/** As `fieldValidation=Strict` asks: what would be pruned is refused. @throws ApiError 400 */
function refuseUnknown(kind: ServedKind, given: Json, kept: Json): void {
  // Plain text of a Secret becomes data: it is gone, and was known all the same.
  const pruned = prunedFields(without(given, 'metadata', 'stringData'), kept, '')
  if (pruned.length === 0) return
  const fields = pruned.map((field) => `unknown field ${JSON.stringify(field)}`).join(', ')
  throw badRequest(
    `${kind.kind} in version ${JSON.stringify(kind.version)} cannot be handled as a ${kind.kind}: strict decoding error: ${fields}`,
  )
}

function prunedFields(given: Json, kept: Json, prefix: string): string[] {
  return Object.entries(given).flatMap(([name, value]) => {
    const left = kept[name]
    if (left === undefined && value !== undefined) return [prefix + name]
    return isJson(value) && isJson(left) ? prunedFields(value, left, `${prefix}${name}.`) : []
  })
}

export function idOf(kind: ServedKind): string {
  return storageKey(kind.group, kind.plural)
}

/** RFC 3339 in whole seconds, as metav1.Time prints. */
export function now(): string {
  return new Date().toISOString().replace(/\.\d+Z$/, 'Z')
}

const clientMeta = ['labels', 'annotations', 'finalizers', 'ownerReferences'] as const

/** What a client decides in the metadata; empty members are dropped, as a real server's encoder does. */
function keptFromClient(meta: Json): Json {
  const kept: Json = {}
  for (const name of clientMeta) {
    const value = meta[name]
    const empty = Array.isArray(value) ? value.length === 0 : !isJson(value) || Object.keys(value).length === 0
    if (!empty) kept[name] = value
  }
  return kept
}

function updateDraft(kind: ServedKind, old: Stored, body: Json, meta: Json): Stored {
  const metadata: StoredMeta = { ...(without(old.metadata, ...clientMeta) as StoredMeta), ...keptFromClient(meta) }
  const draft: Stored = { ...body, apiVersion: old.apiVersion, kind: old.kind, metadata }
  if (kind.status) {
    Reflect.deleteProperty(draft, 'status')
    if (old['status'] !== undefined) draft['status'] = old['status']
  }
  const prepared = prepare(kind, draft)
  if (!kind.generation) return prepared
  const same = isDeepStrictEqual(without(prepared, 'metadata', 'status'), without(old, 'metadata', 'status'))
  return same ? prepared : { ...prepared, metadata: { ...metadata, generation: (old.metadata.generation ?? 0) + 1 } }
}

function statusDraft(old: Stored, body: Json): Stored {
  const draft: Stored = { ...old }
  Reflect.deleteProperty(draft, 'status')
  return body['status'] === undefined ? draft : { ...draft, status: body['status'] }
}

function prepare(kind: ServedKind, object: Json & { metadata: StoredMeta }): Stored {
  const prepared = kind.prepare?.(structuredClone(object)) ?? object
  return {
    ...prepared,
    apiVersion: kind.group === '' ? kind.version : `${kind.group}/${kind.version}`,
    kind: kind.kind,
    metadata: object.metadata,
  }
}

function checkUid(kind: ServedKind, name: string, uid: string | undefined, old: Stored): void {
  if (uid === undefined || uid === '' || uid === old.metadata.uid) return
  const why = `Precondition failed: UID in precondition: ${uid}, UID in object meta: ${old.metadata.uid}`
  throw conflict(kind, name, why)
}

/** A PUT with another UID is a failed precondition, a patch to another UID a change of what cannot change. */
function uidProblems(old: Stored, meta: Json): FieldProblem[] {
  const uid = textAt(meta, 'uid') ?? ''
  if (uid === '' || uid === old.metadata.uid) return []
  return [{ field: 'metadata.uid', message: `Invalid value: ${JSON.stringify(uid)}: field is immutable` }]
}

function finalizerProblems(old: Stored, next: Stored): FieldProblem[] {
  if (old.metadata.deletionTimestamp === undefined) return []
  const added = (next.metadata.finalizers ?? []).filter((name) => !(old.metadata.finalizers ?? []).includes(name))
  if (added.length === 0) return []
  const message = `Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{${added.map((name) => JSON.stringify(name)).join(', ')}}`
  return [{ field: 'metadata.finalizers', message, reason: 'FieldValueForbidden' }]
}

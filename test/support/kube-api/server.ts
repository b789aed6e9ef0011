// HTTP in front of the in-process API: paths, queries and media types to calls of the registry, and errors to Status.
import { ServerResponse, type IncomingMessage } from 'node:http'
import { ApiError, badRequest, detailsOf, noSuchPath } from './api-error.ts'
import { discoveryDocument } from './discovery.ts'
import type { Faults } from './faults.ts'
import { isJson, jsonAt, textAt, type Json, type Stored } from './json.ts'
import type { ServedKind } from './kinds.ts'
import type { Lists, Page } from './lists.ts'
import { jsonPatch, mergePatch } from './patch.ts'
import { idOf, type Address, type Registry } from './registry.ts'
import { fieldSelector, labelSelector, type Predicate } from './selectors.ts'
import type { Storage } from './storage.ts'
import { tableOf } from './table.ts'
import type { Watches } from './watches.ts'

export interface ServerParts {
  readonly kinds: () => readonly ServedKind[]
  readonly registry: Registry
  readonly storage: Storage
  readonly lists: Lists
  readonly watches: Watches
  readonly faults: Faults
  /** The bearer token that every request must carry, if any. */
  readonly token: () => string | undefined
}

interface Target {
  readonly kind: ServedKind
  readonly namespace: string | undefined
  readonly name: string | undefined
  readonly subresource: 'status' | undefined
}

/** etcd refuses larger ones; a real server answers the same. */
const maxRequestBytes = 3 * 1024 * 1024

export async function handleRequest(parts: ServerParts, request: IncomingMessage, response: ServerResponse) {
  try {
    const method = request.method ?? 'GET'
    const url = new URL(request.url ?? '/', 'http://localhost')
    checkToken(parts, request)
    parts.faults.check(method, url.pathname, url.search)
    if (parts.faults.takeLostAnswer(method)) {
      await route(parts, method, url, request, new ServerResponse(request)).finally(() => response.destroy())
      return
    }
    await route(parts, method, url, request, response)
  } catch (error) {
    if (response.destroyed) return
    const known = error instanceof ApiError ? error : new ApiError(500, 'InternalError', String(error))
    if (known.retryAfterSeconds !== undefined) response.setHeader('retry-after', String(known.retryAfterSeconds))
    send(response, known.code, known.toStatus())
  }
}

function checkToken(parts: ServerParts, request: IncomingMessage): void {
  const wanted = parts.token()
  if (wanted === undefined || request.headers.authorization === `Bearer ${wanted}`) return
  throw new ApiError(401, 'Unauthorized', 'Unauthorized')
}

async function route(
  parts: ServerParts,
  method: string,
  url: URL,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  if (['/healthz', '/livez', '/readyz'].includes(url.pathname)) {
    response.writeHead(200, { 'content-type': 'text/plain' }).end('ok')
    return
  }
  const document = discoveryDocument(parts.kinds(), url.pathname)
  if (document !== undefined) {
    send(response, 200, document)
    return
  }
  const target = targetOf(parts.kinds(), url.pathname)
  const asTable = (request.headers.accept ?? '').includes('as=Table')
  if (target.name === undefined) await collection(parts, target, { method, url, asTable, request, response })
  else await single(parts, { ...target, name: target.name }, { method, url, asTable, request, response })
}

interface Exchange {
  readonly method: string
  readonly url: URL
  readonly asTable: boolean
  readonly request: IncomingMessage
  readonly response: ServerResponse
}

async function collection(parts: ServerParts, target: Target, exchange: Exchange): Promise<void> {
  const { kind, namespace } = target
  const { method, url, response } = exchange
  if (method === 'POST') {
    if (kind.namespaced && namespace === undefined) throw methodNotAllowed()
    const body = await readBody(exchange.request)
    send(response, 201, parts.registry.create(kind, namespace, body, isStrict(url)))
    return
  }
  if (method !== 'GET') throw methodNotAllowed()
  const selects = selectorOf(url)
  if (['true', '1'].includes(url.searchParams.get('watch') ?? '')) {
    watch(parts, target, exchange, selects)
    return
  }
  const limit = Number(url.searchParams.get('limit') ?? 0)
  const token = url.searchParams.get('continue')
  const page =
    token === null || token === ''
      ? parts.lists.first(parts.storage.list(idOf(kind), namespace).filter(selects), parts.storage.revision, limit)
      : parts.lists.next(token, limit)
  send(response, 200, listDocument(kind, page, exchange.asTable))
}

function watch(parts: ServerParts, target: Target, exchange: Exchange, selects: Predicate): void {
  const { kind, namespace } = target
  const { searchParams } = exchange.url
  const version = searchParams.get('resourceVersion') ?? ''
  const timeout = searchParams.get('timeoutSeconds')
  const request = {
    kind,
    namespace,
    selects,
    resourceVersion: version === '' || version === '0' ? undefined : Number(version),
    bookmarks: searchParams.get('allowWatchBookmarks') === 'true',
    timeoutSeconds: timeout === null ? undefined : Number(timeout),
    present: (object: Stored) => (exchange.asTable ? tableOf(kind, [object], {}) : object),
  }
  parts.watches.serve(request, exchange.response, parts.faults.expiredWatch)
}

async function single(parts: ServerParts, target: Target & { name: string }, exchange: Exchange): Promise<void> {
  const { registry } = parts
  const { kind, subresource, name } = target
  const { response } = exchange
  switch (exchange.method) {
    case 'GET': {
      const object = registry.get(target)
      send(response, 200, exchange.asTable ? tableOf(kind, [object], {}) : object)
      return
    }
    case 'PUT':
      send(
        response,
        200,
        registry.update(target, await readBody(exchange.request), subresource, isStrict(exchange.url)),
      )
      return
    case 'PATCH':
      send(response, 200, await patch(parts, target, exchange))
      return
    case 'DELETE': {
      if (subresource !== undefined || !kind.deletable) throw methodNotAllowed()
      const options = await readBody(exchange.request, true)
      const preconditions = jsonAt(options, 'preconditions')
      const uid = textAt(preconditions, 'uid')
      const resourceVersion = textAt(preconditions, 'resourceVersion')
      const deleted = registry.delete(target, { uid, resourceVersion })
      const details = { ...detailsOf(kind, name), uid: deleted.object.metadata.uid }
      const success = { kind: 'Status', apiVersion: 'v1', metadata: {}, status: 'Success', details }
      send(response, 200, deleted.kind === 'removed' ? success : deleted.object)
      return
    }
    default:
      throw methodNotAllowed()
  }
}

async function patch(parts: ServerParts, target: Address & Target, exchange: Exchange): Promise<Stored> {
  const mediaType = (exchange.request.headers['content-type'] ?? '').split(';', 1).join('')
  const body: unknown = JSON.parse(await readText(exchange.request))
  switch (mediaType) {
    case 'application/merge-patch+json':
      if (!isJson(body)) throw badRequest('a merge patch must be an object')
      return parts.registry.patch(
        target,
        (present) => mergePatch(present, body),
        target.subresource,
        isStrict(exchange.url),
      )
    case 'application/json-patch+json':
      return parts.registry.patch(
        target,
        (present) => jsonPatch(present, body),
        target.subresource,
        isStrict(exchange.url),
      )
    default:
      throw unsupportedMediaType('application/json-patch+json, application/merge-patch+json')
  }
}

function targetOf(kinds: readonly ServedKind[], pathname: string): Target {
  const segments = pathname.split('/').filter(Boolean).map(decodeURIComponent)
  const isCore = segments[0] === 'api'
  const [group = '', version = ''] = isCore ? ['', segments[1]] : segments.slice(1, 3)
  let rest = segments.slice(isCore ? 2 : 3)
  let namespace: string | undefined
  // `/namespaces/x` is a namespace itself; `/namespaces/x/plural` is a collection in it.
  if (rest[0] === 'namespaces' && rest.length > 2 && rest[2] !== 'status') {
    namespace = rest[1]
    rest = rest.slice(2)
  }
  const [plural, name, subresource, ...more] = rest
  const kind = kinds.find((one) => one.group === group && one.version === version && one.plural === plural)
  if (kind === undefined || more.length > 0 || (isCore ? 'api' : 'apis') !== segments[0]) throw noSuchPath()
  if (namespace !== undefined && !kind.namespaced) throw noSuchPath()
  if (name !== undefined && kind.namespaced && namespace === undefined) throw noSuchPath()
  if (subresource !== undefined && !(subresource === 'status' && kind.status)) throw noSuchPath()
  return { kind, namespace, name, subresource: subresource === undefined ? undefined : 'status' }
}

function isStrict(url: URL): boolean {
  return url.searchParams.get('fieldValidation') === 'Strict'
}

function selectorOf(url: URL): Predicate {
  const labels = labelSelector(url.searchParams.get('labelSelector') ?? '')
  const fields = fieldSelector(url.searchParams.get('fieldSelector') ?? '')
  return (object) => labels(object) && fields(object)
}

function listDocument(kind: ServedKind, page: Page, asTable: boolean): Json {
  const metadata = {
    resourceVersion: page.resourceVersion,
    ...(page.continue !== undefined && { continue: page.continue }),
    ...(page.remainingItemCount !== undefined && { remainingItemCount: page.remainingItemCount }),
  }
  if (asTable) return tableOf(kind, page.items, metadata)
  const apiVersion = kind.group === '' ? kind.version : `${kind.group}/${kind.version}`
  return { kind: `${kind.kind}List`, apiVersion, metadata, items: page.items }
}

async function readBody(request: IncomingMessage, optional = false): Promise<Json> {
  if ((request.headers['content-type'] ?? '').includes('protobuf')) throw unsupportedMediaType('application/json')
  const text = await readText(request)
  if (text === '' && optional) return {}
  try {
    const body: unknown = JSON.parse(text)
    if (isJson(body)) return body
  } catch (error) {
    throw badRequest(`the request body is not JSON: ${String(error)}`)
  }
  throw badRequest('the request body is not an object')
}

async function readText(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of request as AsyncIterable<Buffer>) {
    bytes += chunk.length
    if (bytes > maxRequestBytes) throw new ApiError(413, 'RequestEntityTooLarge', 'the request is too large')
    chunks.push(chunk)
  }
  return Buffer.concat(chunks).toString()
}

function unsupportedMediaType(accepted: string): ApiError {
  const message = `the body of the request was in an unknown format - accepted media types include: ${accepted}`
  return new ApiError(415, 'UnsupportedMediaType', message)
}

function methodNotAllowed(): ApiError {
  const message = 'the server does not allow this method on the requested resource'
  return new ApiError(405, 'MethodNotAllowed', message, {})
}

function send(response: ServerResponse, status: number, body: Json): void {
  if (response.headersSent) {
    response.destroy()
    return
  }
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body))
}

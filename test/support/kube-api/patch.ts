// JSON merge patch (RFC 7386) and JSON patch (RFC 6902) on plain values; no meaning of any field.
import { isDeepStrictEqual } from 'node:util'
import { ApiError, badRequest } from './api-error.ts'
import { isJson, type Json } from './json.ts'

export function mergePatch(target: unknown, patch: unknown): unknown {
  if (!isJson(patch)) return patch
  const result: Json = isJson(target) ? { ...target } : {}
  for (const [name, value] of Object.entries(patch)) {
    if (value === null) Reflect.deleteProperty(result, name)
    else result[name] = mergePatch(result[name], value)
  }
  return result
}

/** @throws ApiError 400 for a patch that is none, 422 when it does not apply, a failed `test` included */
export function jsonPatch(target: unknown, patch: unknown): unknown {
  if (!Array.isArray(patch)) throw badRequest('json: cannot unmarshal a JSON patch that is not an array')
  return patch.reduce(applyOperation, structuredClone(target))
}

function applyOperation(document: unknown, operation: unknown): unknown {
  if (!isJson(operation) || typeof operation['path'] !== 'string')
    throw badRequest('a JSON patch operation has no path')
  const { op, path, from, value } = operation
  switch (op) {
    case 'add':
      return put(document, pointer(path), value, 'insert')
    case 'replace':
      read(document, pointer(path), path)
      return put(document, pointer(path), value, 'replace')
    case 'remove':
      read(document, pointer(path), path)
      return drop(document, pointer(path))
    case 'test':
      if (!isDeepStrictEqual(read(document, pointer(path), path, true) ?? null, value ?? null)) {
        throw notApplicable(`testing value ${path} failed`)
      }
      return document
    case 'copy':
    case 'move': {
      if (typeof from !== 'string') throw badRequest(`a JSON patch ${op} has no from`)
      const moved = read(document, pointer(from), from)
      const rest = op === 'move' ? drop(document, pointer(from)) : document
      return put(rest, pointer(path), structuredClone(moved), 'insert')
    }
    default:
      throw badRequest(`unexpected JSON patch operation: ${JSON.stringify(op)}`)
  }
}

function pointer(path: string): string[] {
  if (path === '') return []
  return path
    .slice(1)
    .split('/')
    .map((token) => token.replaceAll('~1', '/').replaceAll('~0', '~'))
}

function read(document: unknown, tokens: readonly string[], path: string, optional = false): unknown {
  let value = document
  for (const token of tokens) {
    const next: unknown = Array.isArray(value) ? value[Number(token)] : isJson(value) ? value[token] : undefined
    if (next === undefined && !optional) throw notApplicable(`the path ${path} does not exist`)
    value = next
  }
  return value
}

function put(document: unknown, tokens: readonly string[], value: unknown, mode: 'insert' | 'replace'): unknown {
  const [token, ...rest] = tokens
  if (token === undefined) return value
  if (Array.isArray(document)) {
    const index = token === '-' ? document.length : Number(token)
    if (!Number.isInteger(index) || index < 0 || index > document.length) throw notApplicable(`no index ${token}`)
    const last = rest.length === 0
    const member: unknown = last ? value : put(document[index], rest, value, mode)
    return document.toSpliced(index, last && mode === 'insert' ? 0 : 1, member)
  }
  if (!isJson(document)) throw notApplicable(`nothing can be put at ${token}`)
  if (rest.length > 0 && document[token] === undefined) throw notApplicable(`the path at ${token} does not exist`)
  return { ...document, [token]: put(document[token], rest, value, mode) }
}

function drop(document: unknown, tokens: readonly string[]): unknown {
  const [token, ...rest] = tokens
  if (token === undefined) return undefined
  if (Array.isArray(document)) {
    const index = Number(token)
    return rest.length === 0 ? document.toSpliced(index, 1) : document.with(index, drop(document[index], rest))
  }
  if (!isJson(document)) return document
  if (rest.length === 0) return Object.fromEntries(Object.entries(document).filter(([name]) => name !== token))
  return { ...document, [token]: drop(document[token], rest) }
}

function notApplicable(why: string): ApiError {
  return new ApiError(422, 'Invalid', `the server rejected our request due to an error in our request: ${why}`, {})
}

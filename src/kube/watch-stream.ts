// Bytes of a watch response to typed events; no connection, no resume: what a reflector does with them is not its business.
import { KubeError } from './errors.ts'
import type { Resource } from './object.ts'

/** Longest line taken, bytes. etcd stores at most 1.5 MiB an object; JSON is at most a few times as long. */
export const maxWatchLineBytes = 8 * 1024 * 1024

export type WatchEvent<T> =
  | { readonly kind: 'added' | 'modified' | 'deleted'; readonly object: T }
  | { readonly kind: 'bookmark'; readonly resourceVersion: string }
  | { readonly kind: 'error'; readonly error: KubeError }

const newline = 0x0a

/**
 * Splits a body at newlines. Blank lines are dropped; bytes after the last newline are yielded as a line of their own.
 * @throws KubeError `KUBE_PROTOCOL` when a line is longer than `maxBytes`
 */
export async function* splitLines(
  body: AsyncIterable<Uint8Array>,
  what: string,
  maxBytes: number = maxWatchLineBytes,
): AsyncGenerator<string> {
  let pending: Uint8Array[] = []
  let pendingBytes = 0
  for await (const chunk of body) {
    let start = 0
    for (let end = chunk.indexOf(newline); end >= 0; end = chunk.indexOf(newline, start)) {
      pending.push(chunk.subarray(start, end))
      pendingBytes += end - start
      start = end + 1
      if (pendingBytes > maxBytes) throw tooLong(what, maxBytes)
      const line = Buffer.concat(pending).toString('utf8').trim()
      pending = []
      pendingBytes = 0
      if (line !== '') yield line
    }
    if (start === chunk.length) continue
    pending.push(chunk.subarray(start))
    pendingBytes += chunk.length - start
    if (pendingBytes > maxBytes) throw tooLong(what, maxBytes)
  }
  const rest = Buffer.concat(pending).toString('utf8').trim()
  if (rest !== '') yield rest
}

/**
 * One line of a watch. The type parameter is a promise of the server's, not checked here: whoever acts on the object
 * parses it with its schema.
 * @throws KubeError `KUBE_PROTOCOL` for anything that is no watch event
 */
export function parseWatchLine<T extends Resource>(line: string, what: string): WatchEvent<T> {
  const { type, object } = parseEnvelope(line, what)
  switch (type) {
    case 'ADDED':
    case 'MODIFIED':
    case 'DELETED': {
      if (!isResource(object)) throw KubeError.protocol(what, `a ${type} event without a name or a resourceVersion`)
      return { kind: eventKinds[type], object: object as T }
    }
    case 'BOOKMARK': {
      const version = bookmarkVersion(object)
      if (version === undefined) throw KubeError.protocol(what, 'a bookmark without a resourceVersion')
      return { kind: 'bookmark', resourceVersion: version }
    }
    case 'ERROR':
      return { kind: 'error', error: KubeError.fromStatus(what, 500, object) }
    default:
      throw KubeError.protocol(what, `an event of the unknown type ${JSON.stringify(type)}`)
  }
}

const eventKinds = { ADDED: 'added', MODIFIED: 'modified', DELETED: 'deleted' } as const

function parseEnvelope(line: string, what: string): { type: unknown; object: unknown } {
  let parsed: unknown
  try {
    parsed = JSON.parse(line)
  } catch (error) {
    throw KubeError.protocol(what, `a line that is not JSON (${line.length} characters)`, error)
  }
  if (typeof parsed !== 'object' || parsed === null) throw KubeError.protocol(what, 'a line that is not an object')
  const { type, object } = parsed as Record<string, unknown>
  return { type, object }
}

function isResource(value: unknown): value is Resource {
  const metadata = metadataOf(value)
  return typeof metadata?.['name'] === 'string' && typeof metadata['resourceVersion'] === 'string'
}

function bookmarkVersion(value: unknown): string | undefined {
  const version = metadataOf(value)?.['resourceVersion']
  return typeof version === 'string' ? version : undefined
}

function metadataOf(value: unknown): Record<string, unknown> | undefined {
  if (typeof value !== 'object' || value === null) return undefined
  const metadata: unknown = Reflect.get(value, 'metadata')
  return typeof metadata === 'object' && metadata !== null ? (metadata as Record<string, unknown>) : undefined
}

function tooLong(what: string, maxBytes: number): KubeError {
  return KubeError.protocol(what, `a line of more than ${maxBytes} bytes`)
}

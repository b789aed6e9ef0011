// Answers of the API server to values and errors; no connection and no meaning of any kind.
import { KubeError } from './errors.ts'
import { apiVersionOf, type Resource, type ResourceType } from './object.ts'
import type { ResourceList } from './requests.ts'
import type { KubeResponse } from './transport.ts'

const maxBodyBytes = 64 * 1024 * 1024

/** The error that an answer other than 2xx stands for. */
export async function failure(what: string, response: KubeResponse): Promise<KubeError> {
  const text = await readText(response.body, what)
  let body: unknown = text
  try {
    body = JSON.parse(text)
  } catch {
    // Not from the API server itself but from something on the way: its text is the message.
  }
  return KubeError.fromStatus(what, response.status, body, response.retryAfter)
}

/** The whole body. @throws KubeError `KUBE_PROTOCOL` past 64 MiB */
export async function readText(body: AsyncIterable<Uint8Array>, what: string): Promise<string> {
  const chunks: Uint8Array[] = []
  let bytes = 0
  for await (const chunk of body) {
    bytes += chunk.length
    if (bytes > maxBodyBytes) throw KubeError.protocol(what, `an answer of more than ${maxBodyBytes} bytes`)
    chunks.push(chunk)
  }
  return Buffer.concat(chunks).toString('utf8')
}

/** @throws KubeError `KUBE_PROTOCOL` */
export function parseJson(text: string, what: string): unknown {
  try {
    return JSON.parse(text)
  } catch (error) {
    throw KubeError.protocol(what, `an answer that is not JSON (${text.length} characters)`, error)
  }
}

/** Items of a list carry no apiVersion and kind of their own for built-in kinds. */
export function parseList<T extends Resource>(type: ResourceType, body: unknown, what: string): ResourceList<T> {
  const { metadata, items, kind } = (body ?? {}) as {
    metadata?: Record<string, unknown>
    items?: unknown
    kind?: unknown
  }
  const resourceVersion = metadata?.['resourceVersion']
  if (typeof resourceVersion !== 'string' || !(Array.isArray(items) || items === null)) {
    throw KubeError.protocol(what, 'an answer that is not a list')
  }
  const itemKind = typeof kind === 'string' ? kind.replace(/List$/, '') : type.kind
  const token = metadata?.['continue']
  return {
    resourceVersion,
    continue: typeof token === 'string' && token !== '' ? token : undefined,
    items: ((items ?? []) as T[]).map((item) => ({ apiVersion: apiVersionOf(type), kind: itemKind, ...item })),
  }
}

// Has a Kubernetes API, real or in-process, judge corpus entries over HTTP as kubectl would; makes no verdict of its own.
import { apiGroup, apiVersionName, providerHealthKind, proxyKind } from '../../../src/api/group.ts'
import type { KubeRequest, KubeTransport } from '../../../src/kube/transport.ts'
import type { CorpusEntry, Json } from './entry.ts'

/** An answer of the API. */
export interface Answer {
  readonly status: number
  /** The object, or a metav1.Status. */
  readonly body: Json
}

/** What an API said about one entry. */
export interface Judgement {
  /** The last answer: of the first write that was refused, or of the last write. */
  readonly answer: Answer
  /** `field: message` per cause, or the Status's message where it names none; empty when all was accepted. */
  readonly complaints: readonly string[]
}

const requestBudgetMs = 60_000

/** Requests with strict field validation, which kubectl asks for too. */
export async function send(
  transport: KubeTransport,
  method: KubeRequest['method'],
  path: string,
  body?: Json,
): Promise<Answer> {
  const headers = { accept: 'application/json', 'content-type': 'application/json' }
  const request = body === undefined ? { method, path, headers } : { method, path, headers, body: JSON.stringify(body) }
  const response = await transport.send(request, AbortSignal.timeout(requestBudgetMs))
  const chunks: Uint8Array[] = []
  for await (const chunk of response.body) chunks.push(chunk)
  return { status: response.status, body: JSON.parse(Buffer.concat(chunks).toString()) as Json }
}

/** Creates the entry's object, or creates the old one and replaces it; writes its status, if it has one. */
export async function judgeEntry(transport: KubeTransport, namespace: string, entry: CorpusEntry): Promise<Judgement> {
  const names = entry.kind === proxyKind.kind ? proxyKind : providerHealthKind
  const scope = names.namespaced ? `namespaces/${namespace}/` : ''
  const collection = `/apis/${apiGroup}/${apiVersionName}/${scope}${names.plural}`
  const metadata: Json = { name: entry.name, ...(names.namespaced ? { namespace } : {}) }
  const write = (method: 'POST' | 'PUT', path: string, object: Json, stored?: Answer) => {
    const meta = { ...(stored?.body['metadata'] as Json | undefined), ...metadata }
    return send(transport, method, `${path}?fieldValidation=Strict`, { ...object, metadata: meta })
  }

  const { status, ...rest } = entry.object
  let answer = await write('POST', collection, entry.old ?? rest)
  if (answer.status === 201 && entry.old !== undefined) {
    answer = await write('PUT', `${collection}/${entry.name}`, rest, answer)
  }
  if (answer.status < 300 && status !== undefined) {
    answer = await write('PUT', `${collection}/${entry.name}/status`, entry.object, answer)
  }
  return { answer, complaints: answer.status < 300 ? [] : complaints(answer.body) }
}

interface StatusBody {
  readonly message?: string
  readonly details?: { readonly causes?: readonly { readonly field?: string; readonly message?: string }[] }
}

function complaints(body: StatusBody): readonly string[] {
  const causes = body.details?.causes ?? []
  if (causes.length === 0) return [body.message ?? '']
  return causes.map(({ field, message }) => `${field ?? ''}: ${message ?? ''}`)
}

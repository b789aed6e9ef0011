// Refusals of the in-process API, as the metav1.Status objects that a real API server answers with.
import type { Json } from './json.ts'
import type { ServedKind } from './kinds.ts'

/** One thing wrong with an object. `message` follows the field in the text: `Invalid value: 0: must be at least 1`. */
export interface FieldProblem {
  readonly field: string
  readonly message: string
  readonly reason?: 'FieldValueInvalid' | 'FieldValueRequired' | 'FieldValueForbidden' | 'FieldValueNotSupported'
}

export class ApiError extends Error {
  override readonly name = 'ApiError'
  readonly code: number
  readonly reason: string
  readonly details: Json | undefined
  readonly retryAfterSeconds: number | undefined

  constructor(code: number, reason: string, message: string, details?: Json, retryAfterSeconds?: number) {
    super(message)
    this.code = code
    this.reason = reason
    this.details = details
    this.retryAfterSeconds = retryAfterSeconds
  }

  toStatus(): Json {
    return {
      kind: 'Status',
      apiVersion: 'v1',
      metadata: {},
      status: 'Failure',
      message: this.message,
      reason: this.reason,
      ...(this.details !== undefined && { details: this.details }),
      code: this.code,
    }
  }
}

export function notFound(kind: ServedKind, name: string): ApiError {
  return new ApiError(404, 'NotFound', `${resourceOf(kind)} "${name}" not found`, detailsOf(kind, name))
}

export function noSuchPath(): ApiError {
  return new ApiError(404, 'NotFound', 'the server could not find the requested resource', {})
}

export function alreadyExists(kind: ServedKind, name: string): ApiError {
  return new ApiError(409, 'AlreadyExists', `${resourceOf(kind)} "${name}" already exists`, detailsOf(kind, name))
}

export function conflict(kind: ServedKind, name: string, why: string): ApiError {
  const message = `Operation cannot be fulfilled on ${resourceOf(kind)} "${name}": ${why}`
  return new ApiError(409, 'Conflict', message, detailsOf(kind, name))
}

export function modified(kind: ServedKind, name: string): ApiError {
  const why = 'the object has been modified; please apply your changes to the latest version and try again'
  return conflict(kind, name, why)
}

export function badRequest(message: string): ApiError {
  return new ApiError(400, 'BadRequest', message)
}

export function invalid(kind: ServedKind, name: string, problems: readonly FieldProblem[]): ApiError {
  const texts = problems.map((problem) => `${problem.field}: ${problem.message}`)
  const list = texts.length === 1 ? texts.join('') : `[${texts.join(', ')}]`
  const subject = kind.group === '' ? kind.kind : `${kind.kind}.${kind.group}`
  return new ApiError(422, 'Invalid', `${subject} "${name}" is invalid: ${list}`, {
    name,
    ...(kind.group !== '' && { group: kind.group }),
    kind: kind.kind,
    causes: problems.map((problem) => ({
      reason: problem.reason ?? 'FieldValueInvalid',
      message: problem.message,
      field: problem.field,
    })),
  })
}

export function expired(message: string): ApiError {
  return new ApiError(410, 'Expired', message)
}

/** `plural.group`, or `plural` in the core group. */
export function resourceOf(kind: ServedKind): string {
  return kind.group === '' ? kind.plural : `${kind.plural}.${kind.group}`
}

/** In the details of a Status, `kind` is the plural of the resource. */
export function detailsOf(kind: ServedKind, name: string): Json {
  return { name, ...(kind.group !== '' && { group: kind.group }), kind: kind.plural }
}

// The one error class of everything said to the API server, and its classification; not a retry policy.
import { DeadlineError } from '../lib/deadline.ts'
import { errorMessage, toError } from '../lib/errors.ts'

/** Closed set; stable for logs, metrics and tests. */
export type KubeErrorCode =
  | 'KUBE_CONFIG' // no usable kubeconfig, or its credentials could not be read
  | 'KUBE_UNREACHABLE' // no answer: refused, reset, TLS, name resolution
  | 'KUBE_TIMEOUT' // no answer within the budget
  | 'KUBE_PROTOCOL' // an answer that is not what the API says it is
  | 'KUBE_UNAUTHORIZED'
  | 'KUBE_FORBIDDEN'
  | 'KUBE_NOT_FOUND'
  | 'KUBE_ALREADY_EXISTS'
  | 'KUBE_CONFLICT'
  | 'KUBE_EXPIRED' // the resourceVersion or continue token is older than what the server keeps
  | 'KUBE_INVALID'
  | 'KUBE_THROTTLED'
  | 'KUBE_SERVER' // any other 5xx
  | 'KUBE_REFUSED' // any other 4xx
  | 'KUBE_UID_CHANGED' // the name now belongs to another object

/** The part of a metav1.Status that names what is wrong and where. */
export interface StatusDetails {
  readonly name?: string
  readonly group?: string
  readonly kind?: string
  readonly uid?: string
  readonly causes?: readonly { readonly reason?: string; readonly message?: string; readonly field?: string }[]
  readonly retryAfterSeconds?: number
}

export interface KubeErrorFields {
  readonly code: KubeErrorCode
  /** HTTP status, 0 when there was no answer. */
  readonly status: number
  /** metav1.StatusReason (`NotFound`, `Conflict`, …), or `Unreachable`, `Timeout`, `Protocol`, `UIDChanged`, `Config`. */
  readonly reason: string
  readonly details?: StatusDetails | undefined
  /** How long the server asks to wait, milliseconds. */
  readonly retryAfterMs?: number | undefined
  readonly cause?: unknown
}

/** A request to the API server failed. A caller's own abort is never turned into one. */
export class KubeError extends Error {
  override readonly name = 'KubeError'
  readonly code: KubeErrorCode
  readonly status: number
  readonly reason: string
  readonly details: StatusDetails | undefined
  readonly retryAfterMs: number | undefined

  constructor(message: string, fields: KubeErrorFields) {
    super(message, fields.cause === undefined ? undefined : { cause: fields.cause })
    this.code = fields.code
    this.status = fields.status
    this.reason = fields.reason
    this.details = fields.details
    this.retryAfterMs = fields.retryAfterMs
  }

  /** The funnel for whatever a transport throws. `what` names the request: `GET /api/v1/namespaces`. */
  static from(thrown: unknown, what: string): KubeError {
    if (thrown instanceof KubeError) return thrown
    if (thrown instanceof DeadlineError) {
      // the budget of a request is named after it; only a budget of another name needs to be told of which request
      return new KubeError(thrown.message.startsWith(what) ? thrown.message : `${what}: ${thrown.message}`, {
        code: 'KUBE_TIMEOUT',
        status: 0,
        reason: 'Timeout',
        cause: thrown,
      })
    }
    return new KubeError(`${what}: no answer from the API server: ${describeNetworkError(thrown)}`, {
      code: 'KUBE_UNREACHABLE',
      status: 0,
      reason: 'Unreachable',
      cause: toError(thrown),
    })
  }

  /** An answer that is not 2xx, or the object of an in-stream ERROR event. */
  static fromStatus(what: string, httpStatus: number, body: unknown, retryAfter?: string): KubeError {
    const parsed = parseStatus(body)
    const status = parsed.code ?? httpStatus
    const reason = parsed.reason ?? defaultReason(status)
    const seconds = parsed.details?.retryAfterSeconds ?? (retryAfter === undefined ? Number.NaN : Number(retryAfter))
    return new KubeError(`${what}: ${status} ${reason}: ${parsed.message ?? 'no message'}`, {
      code: codeOf(status, reason),
      status,
      reason,
      details: parsed.details,
      retryAfterMs: Number.isFinite(seconds) && seconds > 0 ? seconds * 1000 : undefined,
    })
  }

  static protocol(what: string, problem: string, cause?: unknown): KubeError {
    return new KubeError(`${what}: ${problem}`, { code: 'KUBE_PROTOCOL', status: 0, reason: 'Protocol', cause })
  }

  static uidChanged(what: string, wantedUid: string, foundUid: string): KubeError {
    return new KubeError(`${what} is another object now: wanted UID ${wantedUid}, found ${foundUid}`, {
      code: 'KUBE_UID_CHANGED',
      status: 409,
      reason: 'UIDChanged',
    })
  }
}

export function isNotFound(error: unknown): boolean {
  return error instanceof KubeError && error.code === 'KUBE_NOT_FOUND'
}

/** Somebody else wrote first; read again and retry. Not {@link isAlreadyExists}, which shares the HTTP status. */
export function isConflict(error: unknown): boolean {
  return error instanceof KubeError && error.code === 'KUBE_CONFLICT'
}

export function isAlreadyExists(error: unknown): boolean {
  return error instanceof KubeError && error.code === 'KUBE_ALREADY_EXISTS'
}

export function isExpired(error: unknown): boolean {
  return error instanceof KubeError && error.code === 'KUBE_EXPIRED'
}

export function isUidChanged(error: unknown): boolean {
  return error instanceof KubeError && error.code === 'KUBE_UID_CHANGED'
}

function codeOf(status: number, reason: string): KubeErrorCode {
  switch (status) {
    case 401:
      return 'KUBE_UNAUTHORIZED'
    case 403:
      return 'KUBE_FORBIDDEN'
    case 404:
      return 'KUBE_NOT_FOUND'
    case 409:
      return reason === 'AlreadyExists' ? 'KUBE_ALREADY_EXISTS' : 'KUBE_CONFLICT'
    case 410:
      return 'KUBE_EXPIRED'
    case 422:
      return 'KUBE_INVALID'
    case 429:
      return 'KUBE_THROTTLED'
    default:
      return status >= 500 ? 'KUBE_SERVER' : 'KUBE_REFUSED'
  }
}

function defaultReason(status: number): string {
  switch (status) {
    case 404:
      return 'NotFound'
    case 409:
      return 'Conflict'
    case 410:
      return 'Expired'
    case 429:
      return 'TooManyRequests'
    default:
      return status >= 500 ? 'InternalError' : 'Unknown'
  }
}

interface ParsedStatus {
  readonly code?: number
  readonly reason?: string
  readonly message?: string
  readonly details?: StatusDetails
}

/** Source: metav1.Status. A body of any other shape (a proxy's error page) yields its first characters as the message. */
function parseStatus(body: unknown): ParsedStatus {
  if (typeof body === 'string') return body.trim() === '' ? {} : { message: body.trim().slice(0, 200) }
  if (typeof body !== 'object' || body === null) return {}
  const { code, reason, message, details } = body as Record<string, unknown>
  return {
    ...(typeof code === 'number' && { code }),
    ...(typeof reason === 'string' && reason !== '' && { reason }),
    ...(typeof message === 'string' && { message }),
    ...(typeof details === 'object' && details !== null && { details }),
  }
}

/** Node reports a refused dual-stack dial as an AggregateError without a message. */
function describeNetworkError(thrown: unknown): string {
  const error = toError(thrown)
  if (error instanceof AggregateError) return error.errors.map(errorMessage).join('; ')
  if (error.cause instanceof Error && error.message === 'terminated') return `terminated: ${error.cause.message}`
  const code: unknown = Reflect.get(error, 'code')
  return error.message !== '' ? error.message : typeof code === 'string' ? code : error.name
}

// The one table of what a failure on a libvirt host means to us: kind, whose doing, reason. What raises an error is elsewhere.
import { DeadlineError } from '../../lib/deadline.ts'
import { errorMessage, toError } from '../../lib/errors.ts'
import {
  ErrorCode,
  LibvirtConnectionError,
  LibvirtError,
  LibvirtStreamError,
  type LibvirtConnectionErrorCode,
  type LibvirtStreamErrorCode,
} from '../../wire/libvirt/errors.ts'
import { SshError, type SshErrorCode } from '../../wire/ssh/errors.ts'
import { ProviderError, type ProviderErrorKind } from '../errors.ts'

/** Where a health check broke; flavour.ts has what each type calls it. */
export type CheckReason =
  | 'CredentialsUnavailable'
  | 'Unreachable'
  /** The SSH handshake failed, for another reason than a key. */
  | 'HandshakeFailed'
  | 'Unauthorized'
  /** SSH worked, libvirt's socket did not. */
  | 'SocketRefused'
  | 'Forbidden'
  | 'Timeout'
  | 'PoolNotFound'
  | 'PoolNotActive'
  | 'APIError'

/** A permanent one is always the environment's doing here: what the spec can get wrong is found before a host is asked. */
export interface ErrorClass {
  readonly kind: ProviderErrorKind
  /** CamelCase; becomes a condition's reason and a latch's code. */
  readonly code: string
  readonly checkReason: CheckReason
  /** The way out, where the daemon's own text does not tell it. */
  readonly hint?: string
}

export interface LibvirtRow extends ErrorClass {
  readonly number: number
  /** errno in int1 that the row is about; absent for any. */
  readonly errno?: number
  /** As a libvirtd 9.0.0 said it; in brackets where only its source was read. */
  readonly captured: string
}

const errno = { ENOENT: 2, ENODEV: 19, ENOSPC: 28 } as const

const apiError = { checkReason: 'APIError' } as const
const forbidden = {
  kind: 'permanent',
  code: 'Forbidden',
  checkReason: 'Forbidden',
  hint: 'put the SSH user into the libvirt group of the host',
} as const

/** First match counts. A code that is in no row is transient with code `LibvirtError`. */
export const libvirtRows: readonly LibvirtRow[] = [
  {
    number: ErrorCode.NO_DOMAIN,
    captured: "Domain not found: no domain with matching name 'nope'",
    kind: 'notFound',
    code: 'DomainNotFound',
    ...apiError,
  },
  {
    number: ErrorCode.NO_STORAGE_VOL,
    captured: "Storage volume not found: no storage vol with matching name 'nope.qcow2'",
    kind: 'notFound',
    code: 'VolumeNotFound',
    ...apiError,
  },
  {
    number: ErrorCode.NO_STORAGE_POOL,
    captured: "Storage pool not found: no storage pool with matching name 'nope'",
    kind: 'permanent',
    code: 'PoolNotFound',
    checkReason: 'PoolNotFound',
    hint: 'create the pool on the host (virsh pool-list --all shows what there is) or correct hosts[].pool',
  },
  {
    number: ErrorCode.NO_NETWORK,
    captured: "Network not found: no network with matching name 'nope'",
    kind: 'permanent',
    code: 'NetworkNotFound',
    ...apiError,
    hint: 'create the network on the host (virsh net-list --all shows what there is) or correct hosts[].network',
  },
  {
    number: ErrorCode.XML_ERROR,
    captured: 'XML error: No PCI buses available',
    kind: 'permanent',
    code: 'DocumentRejected',
    ...apiError,
  },
  {
    number: ErrorCode.XML_DETAIL,
    captured: "firmware feature 'enrolled-keys' cannot be enabled when firmware feature 'secure-boot' is disabled",
    kind: 'permanent',
    code: 'DocumentRejected',
    ...apiError,
  },
  {
    number: ErrorCode.XML_INVALID_SCHEMA,
    captured: 'XML document failed to validate against schema: Unable to validate doc against domain.rng',
    kind: 'permanent',
    code: 'DocumentRejected',
    ...apiError,
  },
  {
    number: ErrorCode.CONFIG_UNSUPPORTED,
    captured: 'unsupported configuration: invalid domain type bogus',
    kind: 'permanent',
    code: 'ConfigUnsupported',
    ...apiError,
  },
  {
    number: ErrorCode.NO_SUPPORT,
    captured: 'this function is not supported by the connection driver: virStorageVolUpload',
    kind: 'permanent',
    code: 'NotSupported',
    ...apiError,
  },
  {
    number: ErrorCode.INVALID_ARG,
    captured: 'unsupported flags (0x4) in function testDomainUndefineFlags',
    kind: 'permanent',
    code: 'InvalidArgument',
    ...apiError,
  },
  { number: ErrorCode.AUTH_FAILED, captured: '[authentication failed: ...]', ...forbidden },
  { number: ErrorCode.ACCESS_DENIED, captured: '[access denied]', ...forbidden },
  {
    number: ErrorCode.OPERATION_DENIED,
    captured: 'operation forbidden: read only access prevents virDomainDefineXML',
    kind: 'permanent',
    code: 'Forbidden',
    checkReason: 'Forbidden',
    hint: "hosts[].socket must name the daemon's read-write socket",
  },
  {
    number: ErrorCode.SYSTEM_ERROR,
    errno: errno.ENOSPC,
    captured: 'Unable to write /srv/fullpool/a.qcow2: No space left on device',
    kind: 'quotaExceeded',
    code: 'PoolFull',
    ...apiError,
    hint: 'free space in the storage pool',
  },
  {
    number: ErrorCode.SYSTEM_ERROR,
    errno: errno.ENOENT,
    captured:
      "Cannot access storage file '/var/lib/libvirt/images/e1.qcow2' (as uid:0, gid:0): No such file or directory",
    kind: 'transient',
    code: 'FileMissing',
    ...apiError,
  },
  {
    number: ErrorCode.SYSTEM_ERROR,
    errno: errno.ENODEV,
    captured: "Cannot get interface MTU on 'nobr': No such device",
    kind: 'transient',
    code: 'BridgeMissing',
    ...apiError,
    hint: 'create the bridge on the host or correct hosts[].bridge',
  },
  {
    number: ErrorCode.OPERATION_INVALID,
    captured: 'Requested operation is not valid: domain is already running',
    kind: 'transient',
    code: 'OperationInvalid',
    ...apiError,
  },
  {
    number: ErrorCode.STORAGE_VOL_EXIST,
    captured: "storage volume 'a.qcow2' exists already",
    kind: 'transient',
    code: 'VolumeExists',
    ...apiError,
  },
  {
    number: ErrorCode.AGENT_UNRESPONSIVE,
    captured: 'Guest agent is not responding: QEMU guest agent is not connected',
    kind: 'transient',
    code: 'AgentUnresponsive',
    ...apiError,
  },
]

const otherLibvirt: ErrorClass = { kind: 'transient', code: 'LibvirtError', ...apiError }

const unreachable = { kind: 'transient', code: 'Unreachable', checkReason: 'Unreachable' } as const
const timeout = { kind: 'transient', code: 'Timeout', checkReason: 'Timeout' } as const
const unauthorized = { kind: 'permanent', code: 'Unauthorized', checkReason: 'Unauthorized' } as const

export const sshRows: { readonly [C in SshErrorCode]: ErrorClass } = {
  // The Secret may not have landed yet.
  CREDENTIALS_MISSING: { kind: 'transient', code: 'CredentialsUnavailable', checkReason: 'CredentialsUnavailable' },
  CREDENTIALS_UNREADABLE: { kind: 'transient', code: 'CredentialsUnavailable', checkReason: 'CredentialsUnavailable' },
  CREDENTIALS_INVALID: { kind: 'permanent', code: 'CredentialsUnavailable', checkReason: 'CredentialsUnavailable' },
  TCP: unreachable,
  HANDSHAKE: { ...unreachable, checkReason: 'HandshakeFailed' },
  HOST_KEY_UNKNOWN: unauthorized,
  HOST_KEY_CHANGED: unauthorized,
  HOST_KEY_REVOKED: unauthorized,
  UNAUTHORIZED: unauthorized,
  FORWARD_REFUSED: { ...unreachable, checkReason: 'SocketRefused' },
  CLOSED: unreachable,
  // A dial that ran out of its own budget while the round had time left is a host that does not answer.
  TIMEOUT: unreachable,
}

export const connectionRows: { readonly [C in LibvirtConnectionErrorCode]: ErrorClass } = {
  CLOSED: unreachable,
  PROTOCOL: { kind: 'transient', code: 'ProtocolError', ...apiError },
  TIMEOUT: timeout,
  KEEPALIVE: unreachable,
  AUTH_UNSUPPORTED: { kind: 'permanent', code: 'Forbidden', checkReason: 'Forbidden' },
  AUTH_FAILED: forbidden,
  BUSY: timeout,
}

export const streamRows: { readonly [C in LibvirtStreamErrorCode]: ErrorClass } = {
  SOURCE_SHORT: { kind: 'transient', code: 'TransferFailed', ...apiError },
  SOURCE_LONG: { kind: 'transient', code: 'TransferFailed', ...apiError },
  SOURCE_STALLED: { kind: 'transient', code: 'TransferFailed', ...apiError },
  TIMEOUT: timeout,
  TOO_LARGE: { kind: 'transient', code: 'TransferFailed', ...apiError },
}

/** Undefined for a ProviderError, which has its class from where it was raised, and for what is none of the wire's errors. */
export function classOf(thrown: unknown): ErrorClass | undefined {
  if (thrown instanceof LibvirtError) {
    const row = libvirtRows.find(
      (candidate) =>
        candidate.number === thrown.code && (candidate.errno === undefined || candidate.errno === thrown.int1),
    )
    return row ?? otherLibvirt
  }
  if (thrown instanceof SshError) return sshRows[thrown.code]
  if (thrown instanceof LibvirtConnectionError) return connectionRows[thrown.code]
  if (thrown instanceof LibvirtStreamError) return streamRows[thrown.code]
  if (thrown instanceof DeadlineError) return timeout
  return undefined
}

export interface ErrorScope {
  /** Name of the host in the config. */
  readonly target: string
  /** Ended calls are `Cancelled`, whatever broke because of it. */
  readonly signal?: AbortSignal
}

/** The one place where a failure becomes a ProviderError; one that is one already passes through. */
export function classify(thrown: unknown, scope: ErrorScope): ProviderError {
  if (thrown instanceof ProviderError) return thrown
  const { target } = scope
  const cause = toError(thrown)
  const found = classOf(thrown)
  if (found === undefined || (found.kind === 'transient' && scope.signal?.aborted === true)) {
    const code = scope.signal?.aborted === true ? 'Cancelled' : 'Unexpected'
    return ProviderError.transient(`host ${target}: ${cause.message}`, { code, target, cause })
  }
  const hint = found.hint === undefined ? '' : ` (${found.hint})`
  const message = `host ${target}: ${errorMessage(thrown)}${hint}`
  const options = { code: found.code, target, cause }
  switch (found.kind) {
    case 'permanent':
      return ProviderError.permanent('environment', message, options)
    case 'transient':
      return ProviderError.transient(message, options)
    case 'notFound':
      return ProviderError.notFound(message, options)
    case 'quotaExceeded':
      return ProviderError.quotaExceeded(message, options)
  }
}

/** A create never answers `notFound`: what is missing while something is made is missing for now. */
export function classifyInCreate(thrown: unknown, scope: ErrorScope): ProviderError {
  const error = classify(thrown, scope)
  return error.kind === 'notFound'
    ? ProviderError.transient(error.message, { code: error.code, target: scope.target, cause: error.cause })
    : error
}

export function hasCode(thrown: unknown, ...numbers: readonly number[]): thrown is LibvirtError {
  return thrown instanceof LibvirtError && numbers.includes(thrown.code)
}

/** What a call about a volume answers; undefined when the volume is not there. */
export async function ifThere<T>(call: Promise<T>): Promise<T | undefined> {
  try {
    return await call
  } catch (thrown) {
    if (hasCode(thrown, ErrorCode.NO_STORAGE_VOL)) return undefined
    throw thrown
  }
}

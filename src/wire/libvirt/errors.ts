// The errors of this folder: what the daemon answered, how a transfer went wrong, and why a connection is of no more use.
import { errorCodeName } from './error-codes.ts'
import type { ProcedureName, RemoteError } from './protocol.gen.ts'

export { ErrorCode, ErrorDomain, errorCodeName } from './error-codes.ts'

/** The daemon answered a call or a transfer with an error. The connection is as good as before. */
export class LibvirtError extends Error {
  override readonly name = 'LibvirtError'
  /** libvirt's number; compare with {@link ErrorCode}. */
  readonly code: number
  /** Name of the number, for example `NO_DOMAIN`. */
  readonly codeName: string
  /** Part of libvirt that raised it. Varies for one code. */
  readonly domain: number
  readonly level: number
  readonly str1: string | null
  readonly str2: string | null
  readonly str3: string | null
  /** The errno for `SYSTEM_ERROR`, else mostly -1. */
  readonly int1: number
  readonly int2: number
  readonly procedure: ProcedureName

  constructor(procedure: ProcedureName, remote: RemoteError) {
    super(remote.message ?? `libvirt error ${remote.code}`)
    this.procedure = procedure
    this.code = remote.code
    this.codeName = errorCodeName(remote.code)
    this.domain = remote.domain
    this.level = remote.level
    this.str1 = remote.str1
    this.str2 = remote.str2
    this.str3 = remote.str3
    this.int1 = remote.int1
    this.int2 = remote.int2
  }
}

/**
 * - `CLOSED`: ended by us, by the peer, or by the transport below.
 * - `PROTOCOL`: the peer sent what libvirt's protocol does not allow.
 * - `TIMEOUT`: a call, a transfer or the opening ran out of its budget.
 * - `KEEPALIVE`: nothing came for as long as the keepalive allows.
 * - `AUTH_UNSUPPORTED`: the daemon wants an authentication that this client does not speak.
 * - `AUTH_FAILED`: the daemon did not let us in.
 * - `BUSY`: no place came free within the budget; the connection itself lives on.
 */
export type LibvirtConnectionErrorCode =
  'CLOSED' | 'PROTOCOL' | 'TIMEOUT' | 'KEEPALIVE' | 'AUTH_UNSUPPORTED' | 'AUTH_FAILED' | 'BUSY'

/** The connection is dead or could not be used; a call that ended with it may or may not have happened on the host. */
export class LibvirtConnectionError extends Error {
  override readonly name = 'LibvirtConnectionError'
  readonly code: LibvirtConnectionErrorCode

  constructor(code: LibvirtConnectionErrorCode, message: string, options?: ErrorOptions) {
    super(message, options)
    this.code = code
  }
}

/**
 * - `SOURCE_SHORT`, `SOURCE_LONG`: the source did not have the announced length.
 * - `SOURCE_STALLED`: the source gave nothing for too long.
 * - `TIMEOUT`: the transfer ran out of its budget.
 * - `TOO_LARGE`: more data came than asked for or allowed.
 */
export type LibvirtStreamErrorCode = 'SOURCE_SHORT' | 'SOURCE_LONG' | 'SOURCE_STALLED' | 'TIMEOUT' | 'TOO_LARGE'

/** A transfer was given up by this side. What was written before may stand on the host; the connection mostly lives on. */
export class LibvirtStreamError extends Error {
  override readonly name = 'LibvirtStreamError'
  readonly code: LibvirtStreamErrorCode

  constructor(code: LibvirtStreamErrorCode, message: string, options?: ErrorOptions) {
    super(message, options)
    this.code = code
  }
}

// The errors that libvirtd 9.0.0 answers with, texts and numbers as it was heard to say them; when they are raised is decided by the model.
import { ErrorCode, ErrorDomain } from '../../../../src/wire/libvirt/error-codes.ts'
import type { RemoteError } from '../../../../src/wire/libvirt/protocol.gen.ts'

/** Thrown by the model; the connection sends it as the reply. */
export class StubError extends Error {
  override readonly name = 'StubError'
  readonly remote: RemoteError

  constructor(remote: RemoteError) {
    super(remote.message ?? '')
    this.remote = remote
  }
}

const levelError = 2
export const errno = { ENOENT: 2, EBADF: 9, ENODEV: 19, ENOSPC: 28 } as const

/** What a remote error looks like when only code and text matter. */
export function remoteError(code: number, message: string, changes: Partial<RemoteError> = {}): RemoteError {
  return {
    code,
    domain: ErrorDomain.NONE,
    message,
    level: levelError,
    dom: null,
    str1: '%s',
    str2: message,
    str3: null,
    int1: -1,
    int2: -1,
    net: null,
    ...changes,
  }
}

/** libvirt fills `detail` into `format`, and sends all three. */
function failure(code: number, domain: number, format: string, detail: string, int1 = -1): StubError {
  const message = format.replace('%s', () => detail)
  return new StubError(remoteError(code, message, { domain, str1: format, str2: detail, int1 }))
}

const { QEMU, STORAGE, DOMAIN, NETWORK, XML, RPC, STREAMS, NONE } = ErrorDomain

export const fail = {
  internal: (detail: string, domain: number = RPC) =>
    failure(ErrorCode.INTERNAL_ERROR, domain, 'internal error: %s', detail),
  notSupported: (what: string) =>
    failure(ErrorCode.NO_SUPPORT, NONE, 'this function is not supported by the connection driver: %s', what),
  noDriver: (uri: string) => failure(ErrorCode.NO_CONNECT, NONE, 'no connection driver available for %s', uri),
  rpc: (detail: string) => failure(ErrorCode.RPC, RPC, '%s', detail),
  unsupportedFlags: (flags: number, where: string, domain: number) =>
    new StubError(
      remoteError(ErrorCode.INVALID_ARG, `unsupported flags (0x${flags.toString(16)}) in function ${where}`, {
        domain,
        str1: where,
        str2: 'flags',
        int1: 0,
        int2: 0,
      }),
    ),
  readOnly: (apiName: string, domain: number) =>
    failure(ErrorCode.OPERATION_DENIED, domain, 'operation forbidden: %s', `read only access prevents ${apiName}`),

  noDomain: (detail: string) => failure(ErrorCode.NO_DOMAIN, QEMU, 'Domain not found: %s', detail),
  noNetwork: (name: string) =>
    failure(ErrorCode.NO_NETWORK, NETWORK, 'Network not found: %s', `no network with matching name '${name}'`),
  networkInactive: (name: string) =>
    failure(
      ErrorCode.OPERATION_INVALID,
      NETWORK,
      'Requested operation is not valid: %s',
      `network '${name}' is not active`,
    ),
  domainInvalid: (detail: string, domain: number = QEMU) =>
    failure(ErrorCode.OPERATION_INVALID, domain, 'Requested operation is not valid: %s', detail),
  domainXml: (detail: string, domain: number = DOMAIN) => failure(ErrorCode.XML_ERROR, domain, 'XML error: %s', detail),
  xmlDetail: (detail: string) => failure(ErrorCode.XML_DETAIL, DOMAIN, '%s', detail),
  unsupportedConfig: (detail: string, domain: number) =>
    failure(ErrorCode.CONFIG_UNSUPPORTED, domain, 'unsupported configuration: %s', detail),
  domainExists: (detail: string) => failure(ErrorCode.OPERATION_FAILED, DOMAIN, 'operation failed: %s', detail),
  noMetadata: () =>
    failure(
      ErrorCode.NO_DOMAIN_METADATA,
      DOMAIN,
      'metadata not found: %s',
      'Requested metadata element is not present',
    ),
  agent: (detail: string) => failure(ErrorCode.AGENT_UNRESPONSIVE, QEMU, 'Guest agent is not responding: %s', detail),
  noAgentChannel: () =>
    failure(ErrorCode.ARGUMENT_UNSUPPORTED, QEMU, 'argument unsupported: %s', 'QEMU guest agent is not configured'),

  noPool: (detail: string) => failure(ErrorCode.NO_STORAGE_POOL, STORAGE, 'Storage pool not found: %s', detail),
  noVolume: (detail: string) => failure(ErrorCode.NO_STORAGE_VOL, STORAGE, 'Storage volume not found: %s', detail),
  storageInvalid: (detail: string) =>
    failure(ErrorCode.OPERATION_INVALID, STORAGE, 'Requested operation is not valid: %s', detail),
  storageFailed: (detail: string) => failure(ErrorCode.OPERATION_FAILED, STORAGE, 'operation failed: %s', detail),
  storageXml: (detail: string, domain: number = STORAGE) =>
    failure(ErrorCode.XML_ERROR, domain, 'XML error: %s', detail),
  volumeExists: (name: string) =>
    failure(ErrorCode.STORAGE_VOL_EXIST, STORAGE, 'storage volume %s exists already', `'${name}'`),
  invalidStorageArg: (detail: string) => failure(ErrorCode.INVALID_ARG, STORAGE, 'invalid argument: %s', detail),

  system: (detail: string, errorNumber: number, domain: number) =>
    failure(ErrorCode.SYSTEM_ERROR, domain, '%s', detail, errorNumber),
  stream: (detail: string, errorNumber: number) => failure(ErrorCode.SYSTEM_ERROR, STREAMS, '%s', detail, errorNumber),
}

export const xmlDomain = XML

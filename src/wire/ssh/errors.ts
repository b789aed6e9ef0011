// The one error class of the SSH wire; it says what broke and where, not whether to retry.

/**
 * What went wrong.
 *
 * - `CREDENTIALS_MISSING`: a key or known_hosts file is not there (yet).
 * - `CREDENTIALS_UNREADABLE`: something is there and cannot be read: permissions, a directory, the disk.
 * - `CREDENTIALS_INVALID`: a file was read and cannot be used.
 * - `TCP`: no TCP connection to the host.
 * - `HANDSHAKE`: TCP worked, the SSH handshake did not, for none of the reasons below.
 * - `HOST_KEY_UNKNOWN`, `HOST_KEY_CHANGED`, `HOST_KEY_REVOKED`: the host's key was refused by us.
 * - `UNAUTHORIZED`: our key was refused by the host.
 * - `FORWARD_REFUSED`: the host did not connect us to the socket.
 * - `CLOSED`: the connection ended, or had ended before.
 * - `TIMEOUT`: the step's own budget ran out, or the host went silent.
 */
export type SshErrorCode =
  | 'CREDENTIALS_MISSING'
  | 'CREDENTIALS_UNREADABLE'
  | 'CREDENTIALS_INVALID'
  | 'TCP'
  | 'HANDSHAKE'
  | 'HOST_KEY_UNKNOWN'
  | 'HOST_KEY_CHANGED'
  | 'HOST_KEY_REVOKED'
  | 'UNAUTHORIZED'
  | 'FORWARD_REFUSED'
  | 'CLOSED'
  | 'TIMEOUT'

/** How far a dial had come. `socket` is everything after the SSH handshake. */
export type SshStage = 'credentials' | 'tcp' | 'ssh' | 'socket'

/** Its message names the file or host and the way out, and never quotes a key or a known_hosts line. */
export class SshError extends Error {
  override readonly name = 'SshError'
  readonly code: SshErrorCode
  readonly stage: SshStage

  constructor(code: SshErrorCode, stage: SshStage, message: string, options?: ErrorOptions) {
    super(message, options)
    this.code = code
    this.stage = stage
  }
}

// One SSH connection that forwards streams to unix sockets on the host; it knows no shell, no pool and no retry.
import type { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import ssh2, { type Client } from 'ssh2'
import type { Clock } from '../../lib/clock.ts'
import { deadline, DeadlineError } from '../../lib/deadline.ts'
import { toError } from '../../lib/errors.ts'
import { parseSshAddress, type SshAddress } from './address.ts'
import { Connection } from './connection.ts'
import type { SshCredentials } from './credentials.ts'
import { SshError } from './errors.ts'
import { display, hostKeyAlgorithms, judgeHostKey, noCommonHostKey } from './host-key.ts'
import { loginsWith } from './login.ts'
import { connectFailure, tcpConnect, type TcpConnect } from './tcp.ts'

export interface DialOptions {
  /** `host:port`, IPv6 in brackets. */
  readonly address: string
  readonly user: string
  readonly credentials: SshCredentials
  /** Ends the dial; the promise then rejects with the signal's reason. An established connection is not affected. */
  readonly signal: AbortSignal
  readonly clock: Clock
  /** Budget of TCP connect and SSH handshake together, milliseconds. */
  readonly timeoutMs: number
  /** A question is sent after this long and must be answered within as long again, milliseconds; default 15,000. */
  readonly keepaliveMs?: number
  readonly connect?: TcpConnect
}

/** An authenticated connection. */
export interface SshConnection {
  /**
   * Connects to the unix socket at `path` on the host. The stream fails with an {@link SshError} when the connection is
   * lost, and outlives `signal`, which ends only the opening.
   * @throws {@link SshError} `FORWARD_REFUSED`, `CLOSED` or `TIMEOUT`
   */
  openStreamLocal(path: string, options: OpenOptions): Promise<Duplex>
  /** Resolves when the connection has ended, for whatever reason; never rejects. */
  readonly closed: Promise<SshError>
  /** Destroys the TCP connection at once. It waits for nothing, so it also ends a write to a host that is gone. */
  kill(reason: Error): void
  /** Says goodbye and resolves when the connection has ended. Idempotent. */
  close(): Promise<void>
}

export interface OpenOptions {
  readonly signal: AbortSignal
  /** Milliseconds. */
  readonly timeoutMs: number
}

const defaultKeepaliveMs = 15_000

/**
 * Connects, verifies the host's key, and logs in with the private key.
 * @throws {@link SshError}, or the reason of `options.signal`
 */
export async function dialSsh(options: DialOptions): Promise<SshConnection> {
  const address = parseSshAddress(options.address)
  using budget = deadline(options.clock, `SSH dial to ${options.address}`, options.timeoutMs, options.signal)
  const socket = await openTcp(options, address, budget.signal)
  return await handshake(options, address, socket, budget.signal)
}

async function openTcp(options: DialOptions, address: SshAddress, signal: AbortSignal): Promise<Socket> {
  try {
    return await (options.connect ?? tcpConnect)(address.host, address.port, signal)
  } catch (thrown) {
    const error = toError(thrown)
    if (error instanceof DeadlineError) {
      throw new SshError('TIMEOUT', 'tcp', `no TCP connection to ${display(address)}: ${error.message}`, {
        cause: error,
      })
    }
    if (signal.aborted) throw error
    throw new SshError('TCP', 'tcp', `no TCP connection to ${display(address)}: ${connectFailure(error)}`, {
      cause: error,
    })
  }
}

function handshake(
  options: DialOptions,
  address: SshAddress,
  socket: Socket,
  signal: AbortSignal,
): Promise<SshConnection> {
  const { credentials, user, clock } = options
  const keepaliveMs = options.keepaliveMs ?? defaultKeepaliveMs
  const client = new ssh2.Client()
  return new Promise((resolve, reject) => {
    let refusedKey: SshError | undefined
    const settle = () => {
      signal.removeEventListener('abort', onAbort)
      client.off('ready', onReady).off('error', onError).off('close', onClose)
    }
    const fail = (error: Error) => {
      settle()
      // Errors can follow the first one; without a listener they would end the process.
      client.on('error', () => undefined)
      socket.destroy()
      reject(error)
    }
    const onReady = () => {
      settle()
      resolve(new Connection({ client, socket, address, user, clock, keepaliveMs, keyRefusal: () => refusedKey }))
    }
    const onError = (error: Error) => fail(refusedKey ?? handshakeError(options, address, error))
    const onClose = () => onError(new Error('the host closed the connection'))
    const onAbort = () => {
      const reason = toError(signal.reason)
      fail(
        reason instanceof DeadlineError
          ? new SshError('TIMEOUT', 'ssh', `no SSH handshake with ${display(address)}: ${reason.message}`, {
              cause: reason,
            })
          : reason,
      )
    }
    client.on('ready', onReady).on('error', onError).on('close', onClose)
    signal.addEventListener('abort', onAbort, { once: true })
    try {
      signal.throwIfAborted()
      connectClient(client, socket, {
        user,
        credentials,
        keepaliveMs,
        algorithms: hostKeyAlgorithms(credentials.trust, address),
        verify: (key) => {
          refusedKey = judgeHostKey(credentials.trust, address, key)
          return refusedKey === undefined
        },
      })
    } catch (error) {
      if (signal.aborted) onAbort()
      else fail(toError(error))
    }
  })
}

interface ClientSetup {
  readonly user: string
  readonly credentials: SshCredentials
  readonly keepaliveMs: number
  readonly algorithms: ReturnType<typeof hostKeyAlgorithms>
  /** Asked again at every rekeying. */
  readonly verify: (key: Buffer) => boolean
}

function connectClient(client: Client, socket: Socket, setup: ClientSetup): void {
  client.connect({
    sock: socket,
    username: setup.user,
    authHandler: loginsWith(setup.user, setup.credentials.key.reveal()),
    algorithms: { serverHostKey: setup.algorithms },
    // Without it ssh2 accepts any host key.
    hostVerifier: setup.verify,
    // Forward also through servers whose banner is not OpenSSH's.
    strictVendor: false,
    // The dial has a budget of its own.
    readyTimeout: 0,
    // ssh2 only asks; whether the host is still there is judged by watchSilence.
    keepaliveInterval: setup.keepaliveMs,
    keepaliveCountMax: Number.MAX_SAFE_INTEGER,
  })
}

function handshakeError(options: DialOptions, address: SshAddress, error: Error): SshError {
  const level = 'level' in error ? error.level : undefined
  const { credentials, user } = options
  if (level === 'client-authentication') {
    const old =
      credentials.key.reveal().type === 'ssh-rsa'
        ? '; a host that takes neither rsa-sha2-512 nor rsa-sha2-256 needs an ed25519 key'
        : ''
    return new SshError(
      'UNAUTHORIZED',
      'ssh',
      `${display(address)} refused user ${user} with the key in ${credentials.keyFile}: ` +
        `add its public half (ssh-keygen -y -f ${credentials.keyFile}) to that user's authorized_keys on the host${old}`,
      { cause: error },
    )
  }
  if (/no matching host key format/.test(error.message)) return noCommonHostKey(credentials.trust, address, error)
  return new SshError('HANDSHAKE', 'ssh', `SSH handshake with ${display(address)} failed: ${error.message}`, {
    cause: error,
  })
}

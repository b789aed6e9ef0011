// An established SSH connection: opens forwarded streams and knows when and why it ended. It never reconnects.
import type { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import type { Client } from 'ssh2'
import type { Clock, Timer } from '../../lib/clock.ts'
import { deadline, DeadlineError, raceSignal } from '../../lib/deadline.ts'
import { toError } from '../../lib/errors.ts'
import type { SshAddress } from './address.ts'
import type { OpenOptions, SshConnection } from './dial.ts'
import { SshError } from './errors.ts'
import { ForwardedStream } from './forwarded-stream.ts'
import { display } from './host-key.ts'
import { watchSilence, type SilenceWatch } from './keepalive.ts'
import { WriteBatch } from './write-batch.ts'

export interface ConnectionParts {
  /** Past its handshake, with no listeners of the dial left. */
  readonly client: Client
  readonly socket: Socket
  readonly address: SshAddress
  readonly user: string
  readonly clock: Clock
  /** Milliseconds. */
  readonly keepaliveMs: number
  /** Why the host's key was refused at a rekeying. */
  readonly keyRefusal: () => SshError | undefined
}

type State =
  /** `watch` ends the connection when the host goes silent. */
  | { readonly kind: 'open'; readonly watch: SilenceWatch }
  /** `cause` is known before the socket has ended; `late`, where goodbye was said, ends it when nobody answers. */
  | { readonly kind: 'ending'; readonly cause: SshError; readonly late?: Timer }
  | { readonly kind: 'closed'; readonly cause: SshError }

const goodbyeMs = 5000

/** Built by `dialSsh`; {@link SshConnection} has the contract. */
export class Connection implements SshConnection {
  readonly closed: Promise<SshError>
  readonly #parts: ConnectionParts
  readonly #streams = new Set<ForwardedStream>()
  readonly #ended = Promise.withResolvers<SshError>()
  readonly #batch: WriteBatch
  #state: State

  constructor(parts: ConnectionParts) {
    this.#parts = parts
    this.closed = this.#ended.promise
    const { client, socket, clock, keepaliveMs } = parts
    this.#batch = new WriteBatch(socket)
    const watch = watchSilence(clock, keepaliveMs, () =>
      this.#destroy(this.#error('TIMEOUT', `went silent for ${(2 * keepaliveMs) / 1000} s`)),
    )
    this.#state = { kind: 'open', watch }
    // Beside ssh2's own listener, which reads the same bytes.
    socket.on('data', () => watch.heard())
    client.on('error', (error) =>
      this.#destroy(parts.keyRefusal() ?? this.#error('CLOSED', `was lost: ${error.message}`, error)),
    )
    // ssh2 is unusable from here on, although the socket may still be closing.
    client.on('end', () => this.#destroy(this.#error('CLOSED', 'was closed by the host')))
    client.on('close', () => this.#onClosed())
    // The socket may have died between the last byte of the handshake and here.
    if (socket.destroyed) this.#onClosed()
  }

  async openStreamLocal(path: string, options: OpenOptions): Promise<Duplex> {
    if (this.#state.kind !== 'open') throw this.#state.cause
    using budget = deadline(this.#parts.clock, `opening ${path}`, options.timeoutMs, options.signal)
    const opening = this.#open(path)
    try {
      return await raceSignal(opening, budget.signal)
    } catch (thrown) {
      // Whoever waited has gone; a stream that comes all the same must not stay open.
      void opening.then((stream) => stream.destroy()).catch(() => undefined)
      if (!(thrown instanceof DeadlineError)) throw thrown
      throw new SshError('TIMEOUT', 'socket', `${display(this.#parts.address)} did not answer: ${thrown.message}`, {
        cause: thrown,
      })
    }
  }

  kill(reason: Error): void {
    this.#destroy(this.#error('CLOSED', `was ended: ${reason.message}`, reason))
  }

  async close(): Promise<void> {
    if (this.#state.kind === 'open') {
      const { client, clock, socket } = this.#parts
      const late = clock.after(goodbyeMs, () => socket.destroy())
      this.#setState({ kind: 'ending', cause: this.#error('CLOSED', 'was closed'), late })
      client.end()
    }
    await this.closed
  }

  #open(path: string): Promise<ForwardedStream> {
    return new Promise((resolve, reject) => {
      const done = (failure: Error | undefined, stream?: ForwardedStream) => {
        if (stream !== undefined) resolve(stream)
        else if (this.#state.kind !== 'open') reject(this.#state.cause)
        else reject(this.#refusal(path, failure ?? new Error('no channel')))
      }
      try {
        this.#parts.client.openssh_forwardOutStreamLocal(path, (failure, channel) => {
          // On failure ssh2 passes no channel, whatever its types say.
          if (failure !== undefined) done(failure)
          else {
            const isAlive = () => this.#state.kind === 'open'
            done(undefined, this.#track(new ForwardedStream(channel, isAlive, () => this.#batch.begin())))
          }
        })
      } catch (error) {
        done(toError(error))
      }
    })
  }

  #track(stream: ForwardedStream): ForwardedStream {
    this.#streams.add(stream)
    stream.once('close', () => this.#streams.delete(stream))
    return stream
  }

  /** sshd's answer does not tell an absent socket from one that may not be opened, or from forwarding that is off. */
  #refusal(path: string, failure: Error): SshError {
    const { address, user } = this.#parts
    return new SshError(
      'FORWARD_REFUSED',
      'socket',
      `${display(address)} did not connect to ${path} (${failure.message}): check that the socket exists there, ` +
        `that user ${user} may open it, and that sshd allows forwarding (AllowStreamLocalForwarding)`,
      { cause: failure },
    )
  }

  /** The only place where the state changes. What the state before owned ends with it. */
  #setState(next: State): void {
    const before = this.#state
    this.#state = next
    if (before.kind === 'open') before.watch.stop()
    if (before.kind === 'ending') before.late?.cancel()
    if (next.kind === 'closed') this.#ended.resolve(next.cause)
  }

  /** Ends the socket at once. The first cause stands; what follows it is its consequence. */
  #destroy(cause: SshError): void {
    if (this.#state.kind === 'open') this.#setState({ kind: 'ending', cause })
    this.#parts.socket.destroy()
    this.#failStreams(cause)
  }

  #onClosed(): void {
    if (this.#state.kind === 'closed') return
    const cause = this.#state.kind === 'ending' ? this.#state.cause : this.#error('CLOSED', 'was closed by the host')
    this.#setState({ kind: 'closed', cause })
    this.#failStreams(cause)
  }

  #failStreams(cause: SshError): void {
    for (const stream of this.#streams) stream.destroy(cause)
  }

  #error(code: 'CLOSED' | 'TIMEOUT', what: string, cause?: Error): SshError {
    const message = `SSH connection to ${display(this.#parts.address)} ${what}`
    return new SshError(code, 'socket', message, cause === undefined ? undefined : { cause })
  }
}

// A daemon of a test's making on a real unix socket: the product's codec from the other end, with answers to order.
import { mkdtemp, rm } from 'node:fs/promises'
import { connect, createServer, type Server, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { once } from 'node:events'
import type { Clock } from '../../../src/lib/clock.ts'
import {
  decodeArgs,
  encodeRet,
  errorReplyFrame,
  eventFrame,
  keepaliveFrame,
  procedureName,
  replyFrame,
  streamFrame,
} from '../../../src/wire/libvirt/codec.ts'
import { LibvirtConnection, type LibvirtConnectionOptions } from '../../../src/wire/libvirt/connection.ts'
import { FrameDecoder, MessageStatus, MessageType, type Frame } from '../../../src/wire/libvirt/frame.ts'
import {
  programs,
  type EventName,
  type Events,
  type ProcedureName,
  type Procedures,
  type RemoteError,
} from '../../../src/wire/libvirt/protocol.gen.ts'

/** Generous: it only ends a test that would hang. */
const waitMs = 60_000

type Handler = (peer: Peer, frame: Frame) => void

/** An error struct with the fields that matter. */
export function remoteError(code: number, message: string, int1 = -1): RemoteError {
  return {
    code,
    domain: 10,
    message,
    level: 2,
    dom: null,
    str1: '%s',
    str2: message,
    str3: null,
    int1,
    int2: -1,
    net: null,
  }
}

/** The daemon's end of one connection. */
export class Peer {
  readonly socket: Socket
  readonly frames: Frame[] = []
  readonly #decoder = new FrameDecoder()
  readonly #changed = new Set<() => void>()
  #ended = false

  constructor(socket: Socket, handle: (peer: Peer, frame: Frame) => void) {
    this.socket = socket
    socket.on('error', () => undefined)
    socket.on('data', (chunk: Buffer) =>
      this.#decoder.push(chunk, (frame) => {
        // A copy: the tests look at payloads long after the socket reused what they were cut from.
        this.frames.push({ ...frame, payload: Buffer.from(frame.payload) })
        handle(this, frame)
        this.#notify()
      }),
    )
    socket.on('close', () => {
      this.#ended = true
      this.#notify()
    })
  }

  /** Resolves with the packets that `wanted` accepts once there are `count` of them. */
  async received(wanted: (frame: Frame) => boolean, count = 1): Promise<readonly Frame[]> {
    for (;;) {
      const found = this.frames.filter(wanted)
      if (found.length >= count) return found
      if (this.#ended) throw new Error(`the connection ended with ${found.length} of ${count} packets`)
      await this.#change()
    }
  }

  /** Resolves when the client has gone. */
  async gone(): Promise<void> {
    while (!this.#ended) await this.#change()
  }

  send(...packets: readonly Buffer[]): void {
    this.socket.write(Buffer.concat(packets))
  }

  reply<P extends ProcedureName>(call: Frame, procedure: P, ret: Procedures[P]['ret']): void {
    this.send(replyFrame(procedure, call.serial, ret))
  }

  refuse(call: Frame, error: RemoteError): void {
    this.send(errorReplyFrame(call, error))
  }

  event<E extends EventName>(event: E, message: Events[E]): void {
    this.send(eventFrame(event, message))
  }

  stream(call: Frame, status: 'OK' | 'ERROR' | 'CONTINUE', payload?: Uint8Array): void {
    const procedure = procedureName(call.program, call.procedure)
    if (procedure === undefined) throw new Error(`procedure ${call.procedure} opens no stream`)
    this.send(streamFrame(procedure, call.serial, status, payload))
  }

  async #change(): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`nothing came for ${waitMs} ms`)), waitMs)
      const done = () => {
        clearTimeout(timer)
        this.#changed.delete(done)
        resolve()
      }
      this.#changed.add(done)
    })
  }

  #notify(): void {
    for (const done of this.#changed) done()
  }
}

export class TestDaemon {
  readonly peers: Peer[] = []
  /** Features that the daemon says it has. */
  readonly features = new Set([10, 14, 15])
  authTypes: readonly number[] = [0]
  readonly #server: Server
  readonly #folder: string
  readonly #handlers = new Map<ProcedureName, Handler>()
  readonly #closes = new Map<Socket, Promise<void>>()

  private constructor(server: Server, folder: string) {
    this.#server = server
    this.#folder = folder
    this.on('AUTH_LIST', (peer, call) => peer.reply(call, 'AUTH_LIST', { types: this.authTypes }))
    this.on('AUTH_POLKIT', (peer, call) => peer.reply(call, 'AUTH_POLKIT', { complete: 1 }))
    this.on('CONNECT_SUPPORTS_FEATURE', (peer, call) => {
      const { feature } = decodeArgs('CONNECT_SUPPORTS_FEATURE', call.payload)
      peer.reply(call, 'CONNECT_SUPPORTS_FEATURE', { supported: this.features.has(feature) ? 1 : 0 })
    })
    this.on('CONNECT_OPEN', (peer, call) => peer.reply(call, 'CONNECT_OPEN', null))
    this.on('CONNECT_CLOSE', (peer, call) => {
      peer.reply(call, 'CONNECT_CLOSE', null)
      peer.socket.end()
    })
    server.on('connection', (socket) => this.peers.push(new Peer(socket, (peer, frame) => this.#handle(peer, frame))))
  }

  static async listen(): Promise<TestDaemon> {
    const folder = await mkdtemp(join(tmpdir(), 'libvirt-daemon-'))
    const server = createServer()
    const daemon = new TestDaemon(server, folder)
    server.listen(join(folder, 'sock'))
    await once(server, 'listening')
    return daemon
  }

  /** What to do with calls of a procedure; without one they stay unanswered. */
  on(procedure: ProcedureName, handler: Handler): void {
    this.#handlers.set(procedure, handler)
  }

  /** Answers every call of a procedure alike. */
  answer<P extends ProcedureName>(procedure: P, ret: Procedures[P]['ret']): void {
    encodeRet(procedure, ret)
    this.on(procedure, (peer, call) => peer.reply(call, procedure, ret))
  }

  async dial(): Promise<Socket> {
    const socket = connect(join(this.#folder, 'sock'))
    // Listened for from the start: a socket says that it is closed some time before it emits it.
    this.#closes.set(socket, new Promise((resolve) => socket.once('close', () => resolve())))
    await once(socket, 'connect')
    return socket
  }

  /** Resolves when a socket of {@link dial} has emitted its close. */
  async hungUp(socket: Socket): Promise<void> {
    await this.#closes.get(socket)
  }

  /** A connection of the product to this daemon, and its socket and other end. */
  async open(
    clock: Clock,
    options: Partial<LibvirtConnectionOptions> = {},
  ): Promise<{ connection: LibvirtConnection; socket: Socket; peer: Peer }> {
    const socket = await this.dial()
    const connection = await LibvirtConnection.open(socket, {
      clock,
      signal: new AbortController().signal,
      timeoutMs: 60_000,
      keepalive: null,
      ...options,
    })
    const peer = this.peers.at(-1)
    if (peer === undefined) throw new Error('the daemon saw no connection')
    return { connection, socket, peer }
  }

  async close(): Promise<void> {
    for (const peer of this.peers) peer.socket.destroy()
    this.#server.close()
    await rm(this.#folder, { recursive: true })
  }

  #handle(peer: Peer, frame: Frame): void {
    if (frame.program === programs.KEEPALIVE.number) return
    if (frame.type !== MessageType.CALL) return
    const procedure = procedureName(frame.program, frame.procedure)
    if (procedure !== undefined) this.#handlers.get(procedure)?.(peer, frame)
  }
}

export function isCall(procedure: ProcedureName): (frame: Frame) => boolean {
  return (frame) => frame.type === MessageType.CALL && procedureName(frame.program, frame.procedure) === procedure
}

export function isStream(status: keyof typeof MessageStatus): (frame: Frame) => boolean {
  return (frame) => frame.type === MessageType.STREAM && frame.status === MessageStatus[status]
}

export function isKeepalive(procedure: 'PING' | 'PONG'): (frame: Frame) => boolean {
  const number = keepaliveFrame(procedure).readInt32BE(12)
  return (frame) => frame.program === programs.KEEPALIVE.number && frame.procedure === number
}

// The server's end of one libvirt RPC connection: order, limits and answers as libvirtd has them. What a call does is a procedure's.
import { setImmediate } from 'node:timers/promises'
import type { Duplex } from 'node:stream'
import { sleep } from '../../../../src/lib/clock.ts'
import { toError } from '../../../../src/lib/errors.ts'
import { Semaphore } from '../../../../src/lib/semaphore.ts'
import {
  decodeArgs,
  errorReplyFrame,
  keepaliveFrame,
  KeepaliveProcedure,
  procedureName,
  replyFrame,
} from '../../../../src/wire/libvirt/codec.ts'
import { FrameDecoder, FrameError, MessageStatus, MessageType, type Frame } from '../../../../src/wire/libvirt/frame.ts'
import { programs, type ProcedureName, type Procedures } from '../../../../src/wire/libvirt/protocol.gen.ts'
import { XdrError } from '../../../../src/wire/libvirt/xdr.ts'
import type { StubHost } from '../host.ts'
import type { StubEvent } from '../model/events.ts'
import { fail, StubError } from '../model/errors.ts'
import { withoutOpen } from './connect-procedures.ts'
import { eventFrameOf } from './event-frame.ts'
import type { Call, Session } from './handler.ts'
import { ServerKeepalive } from './keepalive.ts'
import { handlerOf } from './procedures.ts'
import type { ServerStream } from './streams.ts'

/** libvirtd.conf: max_client_requests. With so many unanswered, nothing more is read. */
const maxClientRequests = 5

export interface ServerOptions {
  readonly host: StubHost
  /** Told of every call that could be understood, before it is served. */
  readonly onCall: (procedure: ProcedureName) => void
  /** A fault of the stub itself. */
  readonly onBug: (error: Error) => void
}

/** Serves `stream` until it ends. Never rejects. */
export async function serveLibvirt(stream: Duplex, options: ServerOptions): Promise<void> {
  await new ServerConnection(stream, options).run()
}

class ServerConnection {
  readonly #stream: Duplex
  readonly #options: ServerOptions
  readonly #session: Session
  readonly #slots = new Semaphore(maxClientRequests)
  readonly #streams = new Map<number, ServerStream>()
  readonly #keepalive: ServerKeepalive
  readonly #calls = new Set<Promise<void>>()

  constructor(stream: Duplex, options: ServerOptions) {
    this.#stream = stream
    this.#options = options
    this.#session = {
      host: options.host,
      open: false,
      readOnly: false,
      keepalive: false,
      owner: this,
      deliver: (event, callbackID) => void this.#send(eventFrameOf(event, callbackID)),
    }
    // Also while the reader waits inside a stream for room to write.
    stream.on('close', () => {
      for (const open of this.#streams.values()) open.drop()
    })
    this.#keepalive = new ServerKeepalive(options.host.clock, {
      ping: () => void this.#send(keepaliveFrame('PING')),
      dead: () => stream.destroy(),
    })
  }

  async run(): Promise<void> {
    const decoder = new FrameDecoder()
    try {
      for await (const chunk of this.#stream) {
        const frames: Frame[] = []
        this.#keepalive.heard()
        decoder.push(chunk as Buffer, (frame) => frames.push(frame))
        for (const frame of frames) await this.#accept(frame)
      }
    } catch (thrown) {
      // Bytes that are not RPC end the connection without a word; so does a stream that broke.
      if (!(thrown instanceof FrameError) && !this.#stream.destroyed) this.#options.onBug(toError(thrown))
    } finally {
      this.#keepalive.stop()
      this.#stream.destroy()
      this.#options.host.events.forget(this.#session.owner)
    }
  }

  async #accept(frame: Frame): Promise<void> {
    if (frame.program === programs.KEEPALIVE.number && frame.type === MessageType.MESSAGE) {
      if (frame.procedure === KeepaliveProcedure.PING) await this.#send(keepaliveFrame('PONG'))
      return
    }
    if (frame.type === MessageType.STREAM) {
      await this.#acceptStream(frame)
      return
    }
    // Replies, messages and unknown types from a client are passed over in silence.
    if (frame.type !== MessageType.CALL) return
    await this.#acceptCall(frame)
  }

  async #acceptStream(frame: Frame): Promise<void> {
    const stream = this.#streams.get(frame.serial)
    if (stream === undefined) return
    if (!(await stream.handle(frame.status, frame.payload))) this.#streams.delete(frame.serial)
  }

  async #acceptCall(frame: Frame): Promise<void> {
    const call = this.#decode(frame)
    if (call instanceof StubError) {
      await this.#send(errorReplyFrame(frame, call.remote))
      return
    }
    const release = await this.#slots.acquire()
    const serving: Promise<void> = this.#serve(frame, call.procedure, call.args)
      .catch((error: unknown) => this.#options.onBug(toError(error)))
      .finally(() => {
        release()
        this.#calls.delete(serving)
      })
    this.#calls.add(serving)
  }

  #decode(frame: Frame): { procedure: ProcedureName; args: Procedures[ProcedureName]['args'] } | StubError {
    const { program, version, procedure: number, status } = frame
    const known = [programs.REMOTE, programs.QEMU].some(
      (entry) => entry.number === program && entry.version === version,
    )
    if (!known) return fail.rpc(`Cannot find program ${program} version ${version}`)
    if (status !== MessageStatus.OK) return fail.rpc(`Unexpected message status ${status}`)
    const procedure = procedureName(program, number)
    if (procedure === undefined) return fail.rpc(`unknown procedure: ${number}`)
    try {
      return { procedure, args: decodeArgs(procedure, frame.payload, 'lenient') }
    } catch (error) {
      if (!(error instanceof XdrError)) throw error
      return fail.rpc('Unable to decode message payload')
    }
  }

  async #serve<P extends ProcedureName>(frame: Frame, procedure: P, args: Procedures[P]['args']): Promise<void> {
    // A worker picks the call up later than the reader: stream data that came along with it finds no stream and is lost.
    await setImmediate()
    const { host } = this.#options
    const { knobs } = host
    this.#options.onCall(procedure)
    if (knobs.latencyMs > 0) await sleep(host.clock, knobs.latencyMs)
    await knobs.waitWhileHung(procedure, 'before')
    if (this.#stream.destroyed) return
    const after: StubEvent[] = []
    const opened: ServerStream[] = []
    const ending = { hangUp: false }
    const call = this.#call({
      emitAfterReply: (event) => after.push(event),
      openStream: (make) => {
        opened.push(make({ procedure, serial: frame.serial, send: (data) => this.#send(data) }))
      },
      hangUp: () => {
        ending.hangUp = true
      },
    })
    const reply = await this.#answer(frame, procedure, args, call)
    await knobs.waitWhileHung(procedure, 'after')
    for (const stream of opened) this.#streams.set(frame.serial, stream)
    await this.#send(reply)
    for (const stream of opened) stream.start()
    for (const event of after) host.events.emit(event)
    if (this.#session.keepalive) this.#keepalive.start()
    if (ending.hangUp) this.#stream.end()
  }

  async #answer<P extends ProcedureName>(
    frame: Frame,
    procedure: P,
    args: Procedures[P]['args'],
    call: Call,
  ): Promise<Buffer> {
    try {
      const failure = this.#options.host.knobs.takeFailure(procedure)
      if (failure !== undefined) throw new StubError(failure)
      if (!call.open && !withoutOpen.has(procedure)) throw fail.internal('hypervisor connection not open')
      const handler = handlerOf(procedure)
      if (handler === undefined) throw fail.notSupported(`the stub does not serve ${procedure}`)
      return replyFrame(procedure, frame.serial, await handler(call, args))
    } catch (error) {
      if (!(error instanceof StubError)) this.#options.onBug(toError(error))
      const answer = error instanceof StubError ? error : fail.internal(`fault of the stub: ${toError(error).message}`)
      return errorReplyFrame(frame, answer.remote)
    }
  }

  /** The session itself, so that what a call changes in it counts for the next. */
  #call(extra: Pick<Call, 'emitAfterReply' | 'openStream' | 'hangUp'>): Call {
    const session = this.#session
    return {
      ...session,
      ...extra,
      get open() {
        return session.open
      },
      set open(open) {
        session.open = open
      },
      set readOnly(readOnly) {
        session.readOnly = readOnly
      },
      get readOnly() {
        return session.readOnly
      },
      set keepalive(keepalive) {
        session.keepalive = keepalive
      },
      get keepalive() {
        return session.keepalive
      },
    }
  }

  /** Resolves when the socket has taken the frame, or is gone. */
  async #send(frame: Buffer): Promise<void> {
    const stream = this.#stream
    if (stream.destroyed || stream.writableEnded) return
    if (stream.write(frame)) return
    await new Promise<void>((resolve) => {
      const done = () => {
        stream.off('drain', done).off('close', done)
        resolve()
      }
      stream.on('drain', done).on('close', done)
    })
  }
}

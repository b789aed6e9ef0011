// The data of uploads and downloads on one connection, served as libvirtd does it; what is written is the model's.
import { MessageStatus, streamPacketBytes } from '../../../../src/wire/libvirt/frame.ts'
import { encodeError, streamFrame } from '../../../../src/wire/libvirt/codec.ts'
import type { ProcedureName, RemoteError } from '../../../../src/wire/libvirt/protocol.gen.ts'
import { errno, fail } from '../model/errors.ts'
import type { StubVolume } from '../model/pools.ts'
import type { StubHost } from '../host.ts'

/** How a stream sends; resolves when the socket took it. */
export type Send = (frame: Buffer) => Promise<void>

/** A stream that is open. `handle` is called with the client's packets in order, one at a time. */
export interface ServerStream {
  /** Resolves to false when the stream has ended. */
  handle(status: number, payload: Buffer): Promise<boolean>
  /** Called once, when the call's reply is out. */
  start(): void
  /** The connection is gone. */
  drop(): void
}

export interface StreamIdentity {
  readonly procedure: ProcedureName
  readonly serial: number
  readonly send: Send
}

/** STORAGE_VOL_UPLOAD: data until the client's OK, which is answered by OK; an error of ours ends it at any time. */
export class UploadStream implements ServerStream {
  readonly #host: StubHost
  readonly #volume: StubVolume
  readonly #identity: StreamIdentity
  /** Bytes that may come; 0 is no limit. */
  readonly #length: number
  readonly #offset: number
  readonly #dropped = Promise.withResolvers<'dropped'>()
  #written = 0
  #broken = false

  constructor(host: StubHost, volume: StubVolume, identity: StreamIdentity, range: { offset: number; length: number }) {
    this.#host = host
    this.#volume = volume
    this.#identity = identity
    this.#offset = range.offset
    this.#length = range.length
  }

  start(): void {
    // Nothing to send: the client begins.
  }

  /** What was written stays in the volume. */
  drop(): void {
    this.#dropped.resolve('dropped')
  }

  async handle(status: number, payload: Buffer): Promise<boolean> {
    if (status === MessageStatus.CONTINUE) return await this.#data(payload)
    if (status === MessageStatus.OK && this.#broken) {
      await this.#fail(fail.stream('cannot write to stream: Bad file descriptor', errno.EBADF).remote)
    } else {
      await this.#identity.send(streamFrame(this.#identity.procedure, this.#identity.serial, 'OK'))
    }
    return false
  }

  async #data(payload: Buffer): Promise<boolean> {
    // An empty packet closes the file; what comes behind it is lost, and only the finish is told so.
    if (payload.length === 0) this.#broken = true
    if (this.#broken) return true
    const error = await this.#write(payload)
    if (error === 'dropped') return false
    if (error === undefined) return true
    await this.#fail(error)
    return false
  }

  async #fail(error: RemoteError): Promise<void> {
    const { procedure, serial, send } = this.#identity
    await send(streamFrame(procedure, serial, 'ERROR', encodeError(error)))
  }

  async #write(payload: Buffer): Promise<RemoteError | 'dropped' | undefined> {
    let rest: Uint8Array = payload
    while (rest.length > 0) {
      const room = await Promise.race([this.#dropped.promise, this.#host.knobs.uploadRoom(this.#written)])
      if (room === 'dropped') return room
      const part = rest.subarray(0, Math.min(rest.length, room))
      const allowed = this.#length === 0 ? part.length : Math.min(part.length, this.#length - this.#written)
      const written = this.#host.pools.write(this.#volume, this.#offset + this.#written, part.subarray(0, allowed))
      this.#written += written
      if (written < allowed) {
        return fail.stream(`Unable to write ${this.#volume.path}: No space left on device`, errno.ENOSPC).remote
      }
      if (allowed < part.length)
        return fail.stream('cannot write to stream: No space left on device', errno.ENOSPC).remote
      rest = rest.subarray(part.length)
    }
    return undefined
  }
}

/** STORAGE_VOL_DOWNLOAD: data, an empty packet, and the client's OK, which is answered by OK. */
export class DownloadStream implements ServerStream {
  readonly #read: () => Generator<Buffer>
  readonly #identity: StreamIdentity
  #ended = false
  #pumping: Promise<void> = Promise.resolve()

  constructor(volume: StubVolume, identity: StreamIdentity, range: { offset: number; length: number }) {
    this.#identity = identity
    const end =
      range.length === 0 ? volume.content.length : Math.min(volume.content.length, range.offset + range.length)
    this.#read = function* () {
      for (let at = range.offset; at < end; at += streamPacketBytes) {
        yield volume.content.read(at, Math.min(streamPacketBytes, end - at))
      }
    }
  }

  start(): void {
    this.#pumping = this.#pump()
  }

  drop(): void {
    this.#ended = true
  }

  /** Both an abort and the finish are answered by OK, behind what is already on its way. */
  async handle(status: number): Promise<boolean> {
    if (status === MessageStatus.CONTINUE) return true
    this.#ended = true
    await this.#pumping
    await this.#identity.send(streamFrame(this.#identity.procedure, this.#identity.serial, 'OK'))
    return false
  }

  async #pump(): Promise<void> {
    const { procedure, serial, send } = this.#identity
    for (const part of this.#read()) {
      if (this.#ended) return
      await send(streamFrame(procedure, serial, 'CONTINUE', part))
    }
    await send(streamFrame(procedure, serial, 'CONTINUE'))
  }
}

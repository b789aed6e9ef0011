// What the peer suites need of a libvirt daemon, real or stub, and the clients they speak to it with.
import type { Duplex } from 'node:stream'
import { expect } from 'vitest'
import { systemClock } from '../../../src/lib/clock.ts'
import { decodeError, encodeArgs } from '../../../src/wire/libvirt/codec.ts'
import { LibvirtConnection } from '../../../src/wire/libvirt/connection.ts'
import { LibvirtError } from '../../../src/wire/libvirt/errors.ts'
import {
  encodeFrame,
  FrameDecoder,
  MessageStatus,
  MessageType,
  type Frame,
  type FrameHeader,
} from '../../../src/wire/libvirt/frame.ts'
import {
  procedures,
  programs,
  type ProcedureName,
  type Procedures,
  type RemoteError,
} from '../../../src/wire/libvirt/protocol.gen.ts'
import { eventually } from '../eventually.ts'

/** A daemon that a suite may make and delete things of its own on; their names begin with {@link prefix}. */
export interface LibvirtPeer {
  /** One more connection to its socket. */
  open(): Promise<Duplex>
  /** Name and folder of a running directory pool. */
  readonly pool: string
  readonly poolDir: string
  /** A bridge that guests may be attached to. */
  readonly bridge: string
  close(): Promise<void>
}

export const prefix = 'peer-suite-'
/** Generous: a define can take seconds on a loaded machine. */
export const callOptions = { timeoutMs: 120_000 }

export async function openLibvirt(peer: LibvirtPeer): Promise<LibvirtConnection> {
  return await LibvirtConnection.open(await peer.open(), {
    clock: systemClock,
    signal: new AbortController().signal,
    timeoutMs: 120_000,
  })
}

/** The daemon's error to a call that must fail. */
export async function refusal(call: Promise<unknown>): Promise<LibvirtError> {
  const outcome = await call.then(
    () => 'no error',
    (error: unknown) => error,
  )
  expect(outcome).toBeInstanceOf(LibvirtError)
  return outcome as LibvirtError
}

/** Sends packets one by one and keeps all that come back; it knows no rules, so that it can break them. */
export class RawClient {
  readonly received: Frame[] = []
  readonly #stream: Duplex
  #ended = false

  constructor(stream: Duplex) {
    this.#stream = stream
    const decoder = new FrameDecoder()
    stream.on('data', (chunk: Buffer) => decoder.push(chunk, (frame) => this.received.push(frame)))
    const onEnd = () => {
      this.#ended = true
    }
    // A reset is an end, too.
    stream.on('end', onEnd).on('close', onEnd).on('error', onEnd)
  }

  write(...packets: Uint8Array[]): void {
    this.#stream.write(Buffer.concat(packets))
  }

  /** Calls and waits for the reply. */
  async call<P extends ProcedureName>(procedure: P, serial: number, args: Procedures[P]['args']): Promise<Frame> {
    this.write(callPacket(procedure, serial, args))
    return await this.reply(serial)
  }

  async reply(serial: number): Promise<Frame> {
    return await this.next(
      `the reply to call ${serial}`,
      (frame) => frame.type === MessageType.REPLY && frame.serial === serial,
    )
  }

  /** The answer that ends a stream. */
  async streamEnd(serial: number): Promise<Frame> {
    return await this.next(
      `the end of stream ${serial}`,
      ({ type, serial: own, status }) =>
        type === MessageType.STREAM && own === serial && status !== MessageStatus.CONTINUE,
    )
  }

  async next(what: string, matches: (frame: Frame) => boolean): Promise<Frame> {
    return await eventually(what, 60_000, () => Promise.resolve(this.received.find(matches)))
  }

  async end(): Promise<void> {
    await eventually('the end of the connection', 60_000, () => Promise.resolve(this.#ended || undefined))
  }

  close(): void {
    this.#stream.destroy()
  }
}

export function callPacket<P extends ProcedureName>(
  procedure: P,
  serial: number,
  args: Procedures[P]['args'],
  changes: Partial<FrameHeader> = {},
): Buffer {
  return encodeFrame({ ...headerOf(procedure, serial), ...changes }, encodeArgs(procedure, args))
}

export function headerOf(procedure: ProcedureName, serial: number): FrameHeader {
  const { program, number } = procedures[procedure]
  const { number: programNumber, version } = programs[program]
  const { CALL } = MessageType
  return { program: programNumber, version, procedure: number, type: CALL, serial, status: MessageStatus.OK }
}

export function streamPacket(
  procedure: ProcedureName,
  serial: number,
  status: keyof typeof MessageStatus,
  data?: Uint8Array,
): Buffer {
  return encodeFrame({ ...headerOf(procedure, serial), type: MessageType.STREAM, status: MessageStatus[status] }, data)
}

/** The error struct of a reply or stream packet that must carry one. */
export function errorOf(frame: Frame): RemoteError {
  expect(frame.status).toBe(MessageStatus.ERROR)
  return decodeError(frame.payload, 'lenient')
}

/** Undoes what a suite began, last first; what never began needs nothing. */
export class Ending {
  readonly #steps: (() => Promise<void>)[] = []

  add(step: () => Promise<void>): void {
    this.#steps.unshift(step)
  }

  async run(): Promise<void> {
    for (const step of this.#steps.splice(0)) await step()
  }
}

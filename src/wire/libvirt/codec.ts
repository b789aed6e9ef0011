// Typed values to packets and back, for both ends of a connection; it knows no order of packets and no socket.
import { MessageStatus, MessageType, encodeFrame, type FrameHeader } from './frame.ts'
import {
  events,
  procedures,
  programs,
  remoteErrorStruct,
  streamHoleStruct,
  type EventName,
  type Events,
  type ProcedureName,
  type Procedures,
  type RemoteError,
  type StreamHole,
} from './protocol.gen.ts'
import { readValue, writeValue, type XdrStruct } from './schema.ts'
import { XdrError, XdrReader, XdrWriter, type XdrMode } from './xdr.ts'

/** virkeepaliveprotocol.x: keepalive_procedure. */
export const KeepaliveProcedure = { PING: 1, PONG: 2 } as const

/** Serial of every event message of the REMOTE program. */
const eventSerial = 1

const procedureNames: ReadonlyMap<string, ProcedureName> = new Map(
  Object.entries(procedures).map(([name, { program, number }]) => [
    `${programs[program].number}/${number}`,
    name as ProcedureName,
  ]),
)
const eventNames: ReadonlyMap<number, EventName> = new Map(
  Object.entries(events).map(([name, { number }]) => [number, name as EventName]),
)

/** Name of a procedure number, or undefined when this project does not speak it. */
export function procedureName(program: number, number: number): ProcedureName | undefined {
  return procedureNames.get(`${program}/${number}`)
}

/** Name of the event that a message's numbers stand for, or undefined when this project does not know it. */
export function eventName(program: number, number: number): EventName | undefined {
  return program === programs.REMOTE.number ? eventNames.get(number) : undefined
}

export function encodeArgs<P extends ProcedureName>(procedure: P, args: Procedures[P]['args']): Buffer {
  return encodeStruct(procedures[procedure].args, args)
}

export function decodeArgs<P extends ProcedureName>(
  procedure: P,
  payload: Uint8Array,
  mode?: XdrMode,
): Procedures[P]['args'] {
  return decodeStruct(procedures[procedure].args, payload, mode) as Procedures[P]['args']
}

export function encodeRet<P extends ProcedureName>(procedure: P, ret: Procedures[P]['ret']): Buffer {
  return encodeStruct(procedures[procedure].ret, ret)
}

export function decodeRet<P extends ProcedureName>(
  procedure: P,
  payload: Uint8Array,
  mode?: XdrMode,
): Procedures[P]['ret'] {
  return decodeStruct(procedures[procedure].ret, payload, mode) as Procedures[P]['ret']
}

export function encodeEvent<E extends EventName>(event: E, message: Events[E]): Buffer {
  return encodeStruct(events[event].msg, message)
}

export function decodeEvent<E extends EventName>(event: E, payload: Uint8Array, mode?: XdrMode): Events[E] {
  return decodeStruct(events[event].msg, payload, mode) as Events[E]
}

export function encodeError(error: RemoteError): Buffer {
  return encodeStruct(remoteErrorStruct, error)
}

export function decodeError(payload: Uint8Array, mode?: XdrMode): RemoteError {
  return decodeStruct(remoteErrorStruct, payload, mode) as RemoteError
}

export function encodeStreamHole(hole: StreamHole): Buffer {
  return encodeStruct(streamHoleStruct, hole)
}

export function decodeStreamHole(payload: Uint8Array, mode?: XdrMode): StreamHole {
  return decodeStruct(streamHoleStruct, payload, mode) as StreamHole
}

/** Packet of a call (client). */
export function callFrame<P extends ProcedureName>(procedure: P, serial: number, args: Procedures[P]['args']): Buffer {
  return encodeFrame(
    procedureHeader(procedure, MessageType.CALL, serial, MessageStatus.OK),
    encodeArgs(procedure, args),
  )
}

/** Packet of a successful reply (server). */
export function replyFrame<P extends ProcedureName>(procedure: P, serial: number, ret: Procedures[P]['ret']): Buffer {
  return encodeFrame(procedureHeader(procedure, MessageType.REPLY, serial, MessageStatus.OK), encodeRet(procedure, ret))
}

/**
 * Packet of a failed reply (server). It echoes program, version, procedure and serial of the call, known or not.
 * @param call header of the call that failed
 */
export function errorReplyFrame(call: FrameHeader, error: RemoteError): Buffer {
  return encodeFrame({ ...call, type: MessageType.REPLY, status: MessageStatus.ERROR }, encodeError(error))
}

/** Packet of an event (server). */
export function eventFrame<E extends EventName>(event: E, message: Events[E]): Buffer {
  const header: FrameHeader = {
    program: programs.REMOTE.number,
    version: programs.REMOTE.version,
    procedure: events[event].number,
    type: MessageType.MESSAGE,
    serial: eventSerial,
    status: MessageStatus.OK,
  }
  return encodeFrame(header, encodeEvent(event, message))
}

/** Packet of a stream (both ends): raw data for `CONTINUE`, nothing for `OK` and a client's abort, an error struct for a server's. */
export function streamFrame(
  procedure: ProcedureName,
  serial: number,
  status: keyof typeof MessageStatus,
  payload?: Uint8Array,
): Buffer {
  return encodeFrame(streamHeader(procedure, serial, status), payload)
}

/** Header of a stream packet, for a writer that fills the payload in itself. */
export function streamHeader(
  procedure: ProcedureName,
  serial: number,
  status: keyof typeof MessageStatus,
): FrameHeader {
  return procedureHeader(procedure, MessageType.STREAM, serial, MessageStatus[status])
}

/** Packet of a keepalive (both ends). */
export function keepaliveFrame(procedure: keyof typeof KeepaliveProcedure): Buffer {
  return encodeFrame({
    program: programs.KEEPALIVE.number,
    version: programs.KEEPALIVE.version,
    procedure: KeepaliveProcedure[procedure],
    type: MessageType.MESSAGE,
    serial: 0,
    status: MessageStatus.OK,
  })
}

function procedureHeader(procedure: ProcedureName, type: number, serial: number, status: number): FrameHeader {
  const { program, number } = procedures[procedure]
  return {
    program: programs[program].number,
    version: programs[program].version,
    procedure: number,
    type,
    serial,
    status,
  }
}

function encodeStruct(struct: XdrStruct | null, value: unknown): Buffer {
  if (struct === null) {
    if (value !== null) throw new XdrError('TYPE', 'null wanted: there is nothing to carry')
    return Buffer.alloc(0)
  }
  const writer = new XdrWriter()
  writeValue(writer, struct, value)
  return writer.finish()
}

function decodeStruct(struct: XdrStruct | null, payload: Uint8Array, mode: XdrMode = 'strict'): unknown {
  const reader = new XdrReader(payload, mode)
  const value = struct === null ? null : readValue(reader, struct)
  reader.end()
  return value
}

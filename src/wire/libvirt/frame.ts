// Packets of libvirt's RPC: a 28-byte header and a payload, cut out of a byte stream; it knows no procedure.

/** Size of the header with its length word, bytes. */
export const frameHeaderBytes = 28
/** Largest value of the length word, which counts itself (virnetprotocol.x: VIR_NET_MESSAGE_MAX + 4). */
export const frameMaxBytes = 33_554_436
/** Data per stream packet that libvirt's own clients use, bytes (virnetprotocol.x: VIR_NET_MESSAGE_LEGACY_PAYLOAD_MAX). */
export const streamPacketBytes = 262_120

/** virnetprotocol.x: virNetMessageType. */
export const MessageType = {
  CALL: 0,
  REPLY: 1,
  MESSAGE: 2,
  STREAM: 3,
  CALL_WITH_FDS: 4,
  REPLY_WITH_FDS: 5,
  STREAM_HOLE: 6,
} as const

/** virnetprotocol.x: virNetMessageStatus. CONTINUE is used by streams alone. */
export const MessageStatus = { OK: 0, ERROR: 1, CONTINUE: 2 } as const

export interface FrameHeader {
  readonly program: number
  readonly version: number
  /** Signed: a peer may send a negative one. */
  readonly procedure: number
  readonly type: number
  readonly serial: number
  readonly status: number
}

export interface Frame extends FrameHeader {
  /** May be a view on bytes handed to the decoder. */
  readonly payload: Buffer
}

/** The byte stream is not libvirt's RPC; nothing after this point can be understood. */
export class FrameError extends Error {
  override readonly name = 'FrameError'
  readonly code = 'FRAME_LENGTH'
  readonly length: number

  constructor(length: number, maxBytes: number) {
    super(`packet length ${length} is outside ${frameHeaderBytes} to ${maxBytes}`)
    this.length = length
  }
}

/** Writes a header for `payloadBytes` of payload into the first 28 bytes of `target`. */
export function writeFrameHeader(target: Buffer, header: FrameHeader, payloadBytes: number): void {
  target.writeUInt32BE(frameHeaderBytes + payloadBytes, 0)
  target.writeUInt32BE(header.program, 4)
  target.writeUInt32BE(header.version, 8)
  target.writeInt32BE(header.procedure, 12)
  target.writeInt32BE(header.type, 16)
  target.writeUInt32BE(header.serial, 20)
  target.writeInt32BE(header.status, 24)
}

/** One packet, ready to be written. */
export function encodeFrame(header: FrameHeader, payload?: Uint8Array): Buffer {
  const payloadBytes = payload?.byteLength ?? 0
  const frame = Buffer.allocUnsafe(frameHeaderBytes + payloadBytes)
  writeFrameHeader(frame, header, payloadBytes)
  if (payload !== undefined) frame.set(payload, frameHeaderBytes)
  return frame
}

/** Bytes in any cut become packets. Holds at most one incomplete packet and never reserves room for what has not come. */
export class FrameDecoder {
  readonly #maxBytes: number
  #chunks: Buffer[] = []
  #buffered = 0
  #failure: FrameError | undefined

  /** @param options.maxBytes largest length word accepted */
  constructor(options: { readonly maxBytes?: number } = {}) {
    this.#maxBytes = options.maxBytes ?? frameMaxBytes
  }

  /** Bytes of an incomplete packet. */
  get bufferedBytes(): number {
    return this.#buffered
  }

  /**
   * Calls `onFrame` for each packet that `chunk` completes, in order. Throws {@link FrameError} at the first bad length
   * word, after the packets in front of it were delivered, and again at every later call.
   */
  push(chunk: Uint8Array, onFrame: (frame: Frame) => void): void {
    if (this.#failure !== undefined) throw this.#failure
    if (chunk.byteLength === 0) return
    this.#chunks.push(Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength))
    this.#buffered += chunk.byteLength
    while (this.#buffered >= 4) {
      const length = this.#peekLength()
      if (length < frameHeaderBytes || length > this.#maxBytes) {
        this.#chunks = []
        this.#buffered = 0
        this.#failure = new FrameError(length, this.#maxBytes)
        throw this.#failure
      }
      if (this.#buffered < length) return
      onFrame(parseFrame(this.#take(length)))
    }
  }

  #peekLength(): number {
    const [first] = this.#chunks
    if (first !== undefined && first.length >= 4) return first.readUInt32BE(0)
    // The length word itself is cut: join what is there, once, so that later looks are cheap.
    const joined = Buffer.concat(this.#chunks)
    this.#chunks = [joined]
    return joined.readUInt32BE(0)
  }

  #take(length: number): Buffer {
    let gathered = 0
    let count = 0
    for (const chunk of this.#chunks) {
      gathered += chunk.length
      count++
      if (gathered >= length) break
    }
    const used = this.#chunks.splice(0, count)
    const [only] = used
    const joined = used.length === 1 && only !== undefined ? only : Buffer.concat(used)
    if (gathered > length) this.#chunks.unshift(joined.subarray(length))
    this.#buffered -= length
    return joined.subarray(0, length)
  }
}

function parseFrame(bytes: Buffer): Frame {
  return {
    program: bytes.readUInt32BE(4),
    version: bytes.readUInt32BE(8),
    procedure: bytes.readInt32BE(12),
    type: bytes.readInt32BE(16),
    serial: bytes.readUInt32BE(20),
    status: bytes.readInt32BE(24),
    payload: bytes.subarray(frameHeaderBytes),
  }
}

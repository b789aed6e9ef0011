// Data into a volume: packs what a source gives into packets and ends the transfer in exactly one way; it opens no source.
import { streamHeader } from './codec.ts'
import { LibvirtStreamError } from './errors.ts'
import type { ExchangeHost } from './exchange.ts'
import { frameHeaderBytes, streamPacketBytes, writeFrameHeader } from './frame.ts'
import type { StorageVol } from './protocol.gen.ts'
import { StreamExchange } from './stream.ts'
import { TransferStop, type TransferOptions } from './transfer.ts'

/** Default of {@link UploadOptions.stallTimeoutMs}. */
export const sourceStallTimeoutMs = 60_000

/** libvirt-storage.h, virStorageVolUpload: a length of 0 takes whatever comes, and the file grows with it. */
const noLimit = 0n

export interface UploadOptions extends TransferOptions {
  /** Bytes that the source will give. The daemon takes fewer without a word, so it is checked here. Absent: as many as come. */
  readonly length?: bigint
  /** Where in the volume the data goes, bytes. Default 0. */
  readonly offset?: bigint
  /** Longest wait for the source's next piece, milliseconds. Default one minute. */
  readonly stallTimeoutMs?: number
  /** Bytes handed to the connection so far, after each packet. */
  readonly onProgress?: (bytes: number) => void
}

/**
 * Resolves when the daemon confirmed that all of it is written. Throws the daemon's `LibvirtError`, a
 * {@link LibvirtStreamError}, the source's own error or the signal's reason, each with the connection alive and the
 * source released; or a `LibvirtConnectionError`.
 * @param source its chunks may be read until the upload has ended: it must not write to one again
 */
export async function upload(
  host: ExchangeHost,
  vol: StorageVol,
  source: AsyncIterable<Uint8Array>,
  options: UploadOptions,
): Promise<{ bytes: number }> {
  using stop = new TransferStop(host.clock, `upload to volume ${vol.name}`, options)
  const args = { vol, offset: options.offset ?? 0n, length: options.length ?? noLimit, flags: 0 }
  const stream = new StreamExchange(host, 'STORAGE_VOL_UPLOAD', args, {
    onData: () => undefined,
    onFailed: (error) => stop.stop(error),
  })
  host.exchanges.submit(stream)
  try {
    await stop.race(stream.opened())
    const bytes = await sendAll(host, stream, source, options, stop)
    await stop.race(stream.finish())
    return { bytes }
  } catch (error) {
    await stream.abort()
    throw error
  }
}

async function sendAll(
  host: ExchangeHost,
  stream: StreamExchange,
  source: AsyncIterable<Uint8Array>,
  options: UploadOptions,
  stop: TransferStop,
): Promise<number> {
  const packer = new Packer(stream)
  const stallMs = options.stallTimeoutMs ?? sourceStallTimeoutMs
  const stalled = () =>
    new LibvirtStreamError('SOURCE_STALLED', `the source gave nothing for ${stallMs} ms after ${packer.bytes} bytes`)
  const send = async (packet: readonly Uint8Array[]) => {
    const goOn = stream.send(packet)
    options.onProgress?.(packer.bytes - packer.pendingBytes)
    if (!goOn) await stop.race(host.drained())
  }
  const iterator = source[Symbol.asyncIterator]()
  let exhausted = false
  try {
    for (;;) {
      const next = await stop.raceStall(iterator.next(), stallMs, stalled)
      if (next.done === true) break
      if (options.length !== undefined && BigInt(packer.bytes + next.value.byteLength) > options.length) {
        throw new LibvirtStreamError('SOURCE_LONG', `the source gave more than the announced ${options.length} bytes`)
      }
      for (const packet of packer.add(next.value)) await send(packet)
    }
    exhausted = true
  } finally {
    // Not awaited: an async generator runs its return only after the next() that may be what hangs.
    if (!exhausted) void releaseSource(iterator)
  }
  if (options.length !== undefined && BigInt(packer.bytes) < options.length) {
    throw new LibvirtStreamError('SOURCE_SHORT', `the source ended after ${packer.bytes} of ${options.length} bytes`)
  }
  const last = packer.flush()
  if (last !== undefined) await send(last)
  return packer.bytes
}

/** The transfer has its own error already; what the source says about being released would only hide it. */
async function releaseSource(iterator: AsyncIterator<Uint8Array>): Promise<void> {
  try {
    await iterator.return?.()
  } catch {
    return
  }
}

/** Pieces of one packet, at most. A source of crumbs gets shorter packets rather than ones in thousands of pieces. */
const maxPieces = 256

/**
 * Cuts the source's chunks into packets of the protocol's usual size. Never makes an empty one: it would break the upload.
 *
 * A packet is its header and views of the chunks, not a copy: to allocate as much memory again as is sent has the garbage
 * collector run all the time.
 */
class Packer {
  readonly #stream: StreamExchange
  #pieces: Uint8Array[] = []
  #filled = 0
  #bytes = 0

  constructor(stream: StreamExchange) {
    this.#stream = stream
  }

  /** Bytes taken in. */
  get bytes(): number {
    return this.#bytes
  }

  /** Bytes taken in that no packet has carried yet. */
  get pendingBytes(): number {
    return this.#filled
  }

  /** Packets that `chunk` completes. */
  *add(chunk: Uint8Array): Generator<readonly Uint8Array[]> {
    for (let rest = chunk; rest.byteLength > 0;) {
      const taken = rest.subarray(0, streamPacketBytes - this.#filled)
      this.#pieces.push(taken)
      this.#filled += taken.byteLength
      this.#bytes += taken.byteLength
      rest = rest.subarray(taken.byteLength)
      if (this.#filled < streamPacketBytes && this.#pieces.length < maxPieces) continue
      const packet = this.flush()
      if (packet !== undefined) yield packet
    }
  }

  /** The packet under way, or undefined when there is none. */
  flush(): readonly Uint8Array[] | undefined {
    if (this.#filled === 0) return undefined
    const header = Buffer.allocUnsafe(frameHeaderBytes)
    writeFrameHeader(header, streamHeader('STORAGE_VOL_UPLOAD', this.#stream.serial, 'CONTINUE'), this.#filled)
    const packet = [header, ...this.#pieces]
    this.#pieces = []
    this.#filled = 0
    return packet
  }
}

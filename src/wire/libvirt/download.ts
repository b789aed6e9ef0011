// Data out of a volume as an async sequence; the transfer ends in exactly one way, also when the reader walks off.
import { LibvirtStreamError } from './errors.ts'
import type { ExchangeHost } from './exchange.ts'
import type { StorageVol } from './protocol.gen.ts'
import { StreamExchange } from './stream.ts'
import { TransferStop, type TransferOptions } from './transfer.ts'

/** Unread bytes of a download above which the connection stops reading its socket. */
export const downloadHighWaterBytes = 1_048_576

export interface DownloadOptions extends TransferOptions {
  /** First byte wanted. */
  readonly offset: bigint
  /** Bytes wanted, 0 for all up to the end of the volume. Fewer come when the volume ends earlier. */
  readonly length: bigint
}

/**
 * The volume's bytes in pieces. Opens with the first `next()`; leaving the loop gives the transfer up. The budget runs
 * while the reader works, too: a reader that never comes back cannot block the connection for longer.
 * Throws as an upload does.
 */
export async function* download(
  host: ExchangeHost,
  vol: StorageVol,
  options: DownloadOptions,
): AsyncGenerator<Buffer, void, undefined> {
  using stop = new TransferStop(host.clock, `download of volume ${vol.name}`, options)
  const inbox = new Inbox(host)
  let receivedBytes = 0n
  const stream = new StreamExchange(
    host,
    'STORAGE_VOL_DOWNLOAD',
    { vol, offset: options.offset, length: options.length, flags: 0 },
    {
      onData(data) {
        receivedBytes += BigInt(data.length)
        if (options.length > 0n && receivedBytes > options.length) {
          stop.stop(new LibvirtStreamError('TOO_LARGE', `more than the ${options.length} bytes asked for came`))
          return
        }
        inbox.put(data)
      },
      onFailed: (error) => stop.stop(error),
    },
  )
  // At once, not when the reader comes back: until then the connection might not be read.
  const onStop = () => {
    inbox.close()
    void stream.abort()
  }
  stop.signal.addEventListener('abort', onStop, { once: true })
  host.exchanges.submit(stream)
  let finished = false
  try {
    for (;;) {
      const data = await stop.race(inbox.take())
      if (data.length === 0) break
      yield data
    }
    // All of a small volume may come before the reply.
    await stop.race(stream.opened())
    await stop.race(stream.finish())
    finished = true
  } finally {
    stop.signal.removeEventListener('abort', onStop)
    inbox.close()
    if (!finished) await stream.abort()
  }
}

/**
 * All of the volume's bytes asked for, in memory.
 * @param options.maxBytes refuses more than this with `TOO_LARGE`
 */
export async function downloadAll(
  host: ExchangeHost,
  vol: StorageVol,
  options: DownloadOptions & { readonly maxBytes: number },
): Promise<Buffer> {
  const pieces: Buffer[] = []
  let bytes = 0
  for await (const piece of download(host, vol, options)) {
    bytes += piece.length
    if (bytes > options.maxBytes) {
      throw new LibvirtStreamError('TOO_LARGE', `volume ${vol.name} holds more than ${options.maxBytes} bytes`)
    }
    pieces.push(piece)
  }
  return Buffer.concat(pieces)
}

/** Pieces between socket and reader; holds the socket while too many wait. */
class Inbox {
  readonly #host: ExchangeHost
  #pieces: Buffer[] = []
  #bytes = 0
  #holding = false
  #closed = false
  #waiter: PromiseWithResolvers<Buffer> | undefined

  constructor(host: ExchangeHost) {
    this.#host = host
  }

  put(piece: Buffer): void {
    if (this.#closed) return
    if (this.#waiter !== undefined) {
      this.#waiter.resolve(piece)
      this.#waiter = undefined
      return
    }
    this.#pieces.push(piece)
    this.#bytes += piece.length
    if (!this.#holding && this.#bytes > downloadHighWaterBytes) {
      this.#holding = true
      this.#host.hold()
    }
  }

  /** The next piece. One reader at a time. */
  async take(): Promise<Buffer> {
    const piece = this.#pieces.shift()
    if (piece === undefined) {
      this.#waiter = Promise.withResolvers()
      return await this.#waiter.promise
    }
    this.#bytes -= piece.length
    if (this.#bytes <= downloadHighWaterBytes / 2) this.#letGo()
    return piece
  }

  /** Drops what is there and what still comes. */
  close(): void {
    this.#closed = true
    this.#pieces = []
    this.#bytes = 0
    this.#letGo()
  }

  #letGo(): void {
    if (!this.#holding) return
    this.#holding = false
    this.#host.release()
  }
}

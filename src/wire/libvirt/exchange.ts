// The places of one connection: which calls and transfers are under way, and who waits for a place; it knows no packets.
import type { Clock } from '../../lib/clock.ts'
import type { LibvirtConnectionError } from './errors.ts'
import type { Frame } from './frame.ts'
import type { ProcedureName } from './protocol.gen.ts'

/** Calls without an answer after which libvirtd stops reading a connection (libvirtd.conf: max_client_requests). */
export const serverMaxRequests = 5
/** One less, so that keepalives are always read. */
export const maxExchanges = serverMaxRequests - 1
/** One less again, so that a quick call always finds a place. */
export const maxSlowExchanges = maxExchanges - 1

/** A call, or a call with the transfer it opened: it holds one place until the daemon's last answer to it. */
export interface Exchange {
  readonly procedure: ProcedureName
  /** It may take seconds on the daemon's side: agent calls and transfers. */
  readonly slow: boolean
  /** Its turn has come: write the call. */
  start(serial: number): void
  /** A reply or a stream packet with its serial. */
  onFrame(frame: Frame): void
  /** The connection ended. It no longer holds a place; nothing else will be called. */
  onClosed(error: LibvirtConnectionError): void
}

/** What an exchange needs of its connection. */
export interface ExchangeHost {
  readonly clock: Clock
  readonly exchanges: ExchangeTable
  /** Writes the pieces as one. False: wait for `drained` before more bulk data. */
  write(...pieces: readonly Uint8Array[]): boolean
  drained(): Promise<void>
  /** Stops and resumes reading from the socket, for a reader that cannot keep up. */
  hold(): void
  release(): void
  /** Ends the connection. */
  fail(error: LibvirtConnectionError): void
}

/** Exchanges by serial, and the queue in front of them. First come, first served, but a slow one lets quick ones pass. */
export class ExchangeTable {
  readonly #active = new Map<number, Exchange>()
  readonly #queue = new Set<Exchange>()
  #slowActive = 0
  #nextSerial = 0

  get activeCount(): number {
    return this.#active.size
  }

  get queuedCount(): number {
    return this.#queue.size
  }

  /** Starts it now, or as soon as a place is free. */
  submit(exchange: Exchange): void {
    this.#queue.add(exchange)
    this.#startNext()
  }

  /** Starts it now whatever is under way; only for the courtesy close, which may take the daemon's last place. */
  submitAtOnce(exchange: Exchange): void {
    this.#start(exchange)
  }

  /** Leaves the queue. */
  withdraw(exchange: Exchange): void {
    this.#queue.delete(exchange)
    this.#startNext()
  }

  find(serial: number): Exchange | undefined {
    return this.#active.get(serial)
  }

  /** The daemon's last answer came: the place is free. */
  done(serial: number): void {
    const exchange = this.#active.get(serial)
    if (exchange === undefined) return
    this.#active.delete(serial)
    if (exchange.slow) this.#slowActive--
    this.#startNext()
  }

  /** Turns away all that have not started. */
  closeQueue(error: LibvirtConnectionError): void {
    const queued = [...this.#queue]
    this.#queue.clear()
    for (const exchange of queued) exchange.onClosed(error)
  }

  /** Ends everything. */
  close(error: LibvirtConnectionError): void {
    const active = [...this.#active.values()]
    this.#active.clear()
    this.#slowActive = 0
    this.closeQueue(error)
    for (const exchange of active) exchange.onClosed(error)
  }

  #startNext(): void {
    for (const exchange of this.#queue) {
      if (this.#active.size >= maxExchanges) return
      if (exchange.slow && this.#slowActive >= maxSlowExchanges) continue
      this.#queue.delete(exchange)
      this.#start(exchange)
    }
  }

  #start(exchange: Exchange): void {
    while (this.#active.has(this.#nextSerial)) this.#nextSerial = (this.#nextSerial + 1) >>> 0
    const serial = this.#nextSerial
    this.#nextSerial = (serial + 1) >>> 0
    this.#active.set(serial, exchange)
    if (exchange.slow) this.#slowActive++
    exchange.start(serial)
  }
}

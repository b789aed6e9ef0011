// XDR primitives (RFC 4506) as libvirt uses them, over bytes in memory; it knows no structs and no packets.

/** Longest string the protocol allows, bytes (remote_protocol.x: REMOTE_STRING_MAX). */
export const xdrStringMaxBytes = 4_194_304

export type XdrErrorCode =
  'TRUNCATED' | 'LENGTH' | 'OPTIONAL' | 'PADDING' | 'TRAILING' | 'UNION' | 'RANGE' | 'TYPE' | 'NUL' | 'UUID'

/** Bytes that are not the announced type, or a value that the type cannot carry. */
export class XdrError extends Error {
  override readonly name = 'XdrError'
  readonly code: XdrErrorCode

  constructor(code: XdrErrorCode, message: string) {
    super(message)
    this.code = code
  }
}

/**
 * `strict` refuses whatever a correct peer never writes. `lenient` reads as libvirtd does: any marker but 0 means
 * present, padding is not looked at, left-over bytes are dropped, and a NUL ends a string.
 */
export type XdrMode = 'strict' | 'lenient'

const uuidPattern = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i

/** Reads values in order. Every method throws {@link XdrError} and none allocates more than the input holds. */
export class XdrReader {
  readonly #bytes: Buffer
  readonly #mode: XdrMode
  #offset = 0

  constructor(bytes: Uint8Array, mode: XdrMode = 'strict') {
    this.#bytes = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
    this.#mode = mode
  }

  get remaining(): number {
    return this.#bytes.length - this.#offset
  }

  int(): number {
    return this.#bytes.readInt32BE(this.#take(4))
  }

  uint(): number {
    return this.#bytes.readUInt32BE(this.#take(4))
  }

  hyper(): bigint {
    return this.#bytes.readBigInt64BE(this.#take(8))
  }

  uhyper(): bigint {
    return this.#bytes.readBigUInt64BE(this.#take(8))
  }

  double(): number {
    return this.#bytes.readDoubleBE(this.#take(8))
  }

  /** The marker in front of an optional value: whether a value follows. */
  present(): boolean {
    const marker = this.uint()
    if (marker > 1 && this.#mode === 'strict') throw new XdrError('OPTIONAL', `optional marker is ${marker}`)
    return marker !== 0
  }

  /** An element count of at most `max`. The elements themselves prove that the input holds them. */
  count(max: number): number {
    const count = this.uint()
    if (count > max) throw new XdrError('LENGTH', `array of ${count} elements, at most ${max} allowed`)
    return count
  }

  /** UTF-8 text; bytes that are not UTF-8 become U+FFFD, because daemons echo what they were given. */
  string(maxBytes: number = xdrStringMaxBytes): string {
    const length = this.uint()
    if (length > maxBytes) throw new XdrError('LENGTH', `string of ${length} bytes, at most ${maxBytes} allowed`)
    const start = this.#take(length)
    this.#padding(length)
    const bytes = this.#bytes.subarray(start, start + length)
    const nul = this.#mode === 'lenient' ? bytes.indexOf(0) : -1
    return (nul < 0 ? bytes : bytes.subarray(0, nul)).toString('utf8')
  }

  /** `char[length]`: one 4-byte word per character, ended by a zero or by the array. */
  chars(length: number): string {
    let text = ''
    let ended = false
    for (let i = 0; i < length; i++) {
      const char = this.int() & 0xff
      ended ||= char === 0
      if (!ended) text += String.fromCharCode(char)
    }
    return text
  }

  /** 16 opaque bytes as lower case text with dashes. */
  uuid(): string {
    const start = this.#take(16)
    const hex = this.#bytes.toString('hex', start, start + 16)
    return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`
  }

  /** Call it after the last value. */
  end(): void {
    if (this.remaining > 0 && this.#mode === 'strict') {
      throw new XdrError('TRAILING', `${this.remaining} bytes are left over`)
    }
  }

  #padding(length: number): void {
    const size = (4 - (length % 4)) % 4
    const start = this.#take(size)
    if (this.#mode === 'lenient') return
    for (let i = start; i < start + size; i++) {
      if (this.#bytes[i] !== 0) throw new XdrError('PADDING', 'padding is not zero')
    }
  }

  #take(size: number): number {
    if (size > this.remaining) {
      throw new XdrError('TRUNCATED', `${size} bytes wanted, ${this.remaining} left`)
    }
    const start = this.#offset
    this.#offset += size
    return start
  }
}

/** Writes values in order. Every method throws {@link XdrError} for a value that the type cannot carry. */
export class XdrWriter {
  #bytes = Buffer.allocUnsafe(256)
  #length = 0

  /** What was written so far. */
  finish(): Buffer {
    return this.#bytes.subarray(0, this.#length)
  }

  int(value: number): void {
    requireRange(value, -0x8000_0000, 0x7fff_ffff)
    const start = this.#grow(4)
    this.#bytes.writeInt32BE(value, start)
  }

  uint(value: number): void {
    requireRange(value, 0, 0xffff_ffff)
    const start = this.#grow(4)
    this.#bytes.writeUInt32BE(value, start)
  }

  hyper(value: bigint): void {
    if (BigInt.asIntN(64, value) !== value) throw new XdrError('RANGE', `${value} does not fit 64 bits`)
    const start = this.#grow(8)
    this.#bytes.writeBigInt64BE(value, start)
  }

  uhyper(value: bigint): void {
    if (BigInt.asUintN(64, value) !== value) throw new XdrError('RANGE', `${value} does not fit 64 unsigned bits`)
    const start = this.#grow(8)
    this.#bytes.writeBigUInt64BE(value, start)
  }

  double(value: number): void {
    const start = this.#grow(8)
    this.#bytes.writeDoubleBE(value, start)
  }

  present(value: boolean): void {
    this.uint(value ? 1 : 0)
  }

  count(value: number, max: number): void {
    if (value > max) throw new XdrError('LENGTH', `array of ${value} elements, at most ${max} allowed`)
    this.uint(value)
  }

  /** Refuses a NUL: the daemon would silently use only what stands in front of it. */
  string(value: string, maxBytes: number = xdrStringMaxBytes): void {
    if (value.includes('\0')) throw new XdrError('NUL', 'string contains a NUL')
    const length = Buffer.byteLength(value, 'utf8')
    if (length > maxBytes) throw new XdrError('LENGTH', `string of ${length} bytes, at most ${maxBytes} allowed`)
    this.uint(length)
    const padded = Math.ceil(length / 4) * 4
    const start = this.#grow(padded)
    this.#bytes.fill(0, start + length, start + padded)
    this.#bytes.write(value, start, length, 'utf8')
  }

  chars(value: string, length: number): void {
    if (value.length > length) throw new XdrError('LENGTH', `text of ${value.length} characters for char[${length}]`)
    for (let i = 0; i < length; i++) {
      const char = i < value.length ? value.charCodeAt(i) : 0
      requireRange(char, 0, 0xff)
      this.int((char << 24) >> 24)
    }
  }

  uuid(value: string): void {
    if (!uuidPattern.test(value)) throw new XdrError('UUID', `${JSON.stringify(value)} is not a UUID`)
    const start = this.#grow(16)
    this.#bytes.write(value.replaceAll('-', ''), start, 'hex')
  }

  /** Offset of `size` new bytes. May replace the buffer, so call it before touching `#bytes`. */
  #grow(size: number): number {
    const start = this.#length
    if (start + size > this.#bytes.length) {
      const larger = Buffer.allocUnsafe(Math.max(this.#bytes.length * 2, start + size))
      this.#bytes.copy(larger, 0, 0, start)
      this.#bytes = larger
    }
    this.#length += size
    return start
  }
}

function requireRange(value: number, min: number, max: number): void {
  if (!Number.isInteger(value) || value < min || value > max) {
    throw new XdrError('RANGE', `${value} is not an integer from ${min} to ${max}`)
  }
}

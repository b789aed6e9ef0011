// SSH's length-prefixed strings (RFC 4251, section 5), read and written; it knows no message and no key.

export interface WireString {
  readonly content: Buffer
  /** Offset of what follows it. */
  readonly end: number
}

/** Undefined where the string is not whole. */
export function readString(bytes: Buffer, offset: number): WireString | undefined {
  if (offset + 4 > bytes.length) return undefined
  const start = offset + 4
  const end = start + bytes.readUInt32BE(offset)
  return end > bytes.length ? undefined : { content: bytes.subarray(start, end), end }
}

/** All of `bytes` as strings; undefined where they are not that to the last byte. */
export function readStrings(bytes: Buffer): Buffer[] | undefined {
  const strings: Buffer[] = []
  for (let offset = 0; offset < bytes.length;) {
    const next = readString(bytes, offset)
    if (next === undefined) return undefined
    strings.push(next.content)
    offset = next.end
  }
  return strings
}

export function uint32(value: number): Buffer {
  const word = Buffer.alloc(4)
  word.writeUInt32BE(value)
  return word
}

/** One string of all parts. */
export function sshString(...parts: Buffer[]): Buffer {
  const content = Buffer.concat(parts)
  return Buffer.concat([uint32(content.length), content])
}

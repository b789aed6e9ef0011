// Public keys in SSH wire form: their type, and whether they can be ones; no signature is checked here.
import { readString, readStrings } from './wire-form.ts'

/** Key types that the handshake can verify and a login can use, most wanted first; certificates are not among them. */
export const keyTypes = [
  'ssh-ed25519',
  'ecdsa-sha2-nistp256',
  'ecdsa-sha2-nistp384',
  'ecdsa-sha2-nistp521',
  'ssh-rsa',
] as const
export type KeyType = (typeof keyTypes)[number]

export function isKeyType(type: string): type is KeyType {
  return keyTypes.some((known) => known === type)
}

/** The type that a key names itself (RFC 4253, section 6.6). */
export function embeddedType(key: Buffer): string | undefined {
  const type = readString(key, 0)
  return type === undefined || type.end === key.length ? undefined : type.content.toString('latin1')
}

/** Bytes of an uncompressed point (RFC 5656, section 3.1). */
const pointBytes = { nistp256: 65, nistp384: 97, nistp521: 133 } as const

/** Whether the bytes have the form of a key of that type, to the last byte. */
export function hasFormOf(type: KeyType, key: Buffer): boolean {
  const [, first, second, ...rest] = readStrings(key) ?? []
  if (first === undefined || rest.length > 0) return false
  switch (type) {
    case 'ssh-ed25519':
      return first.length === 32 && second === undefined
    case 'ssh-rsa':
      return first.length > 0 && second !== undefined && second.length > 0
    case 'ecdsa-sha2-nistp256':
      return isPoint('nistp256', first, second)
    case 'ecdsa-sha2-nistp384':
      return isPoint('nistp384', first, second)
    case 'ecdsa-sha2-nistp521':
      return isPoint('nistp521', first, second)
  }
}

/** Length of an RSA key's modulus. */
export function rsaBits(key: Buffer): number {
  const modulus = readStrings(key)?.[2] ?? Buffer.alloc(0)
  const start = modulus.findIndex((byte) => byte !== 0)
  return start < 0 ? 0 : (modulus.length - start) * 8 - Math.clz32(modulus.readUInt8(start)) + 24
}

function isPoint(curve: keyof typeof pointBytes, name: Buffer, point: Buffer | undefined): boolean {
  return name.toString('latin1') === curve && point?.length === pointBytes[curve] && point[0] === 4
}

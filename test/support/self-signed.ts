// A self-signed X.509 certificate for one IPv4 address, for HTTPS servers of tests and demos. Node makes keys and signatures but no
// certificates, openssl is not on every machine, and a library for the thirty lines of DER would bring a dozen packages.
import { generateKeyPairSync, randomBytes, sign } from 'node:crypto'

export interface SelfSigned {
  /** PEM. */
  readonly key: string
  /** PEM; also the one to trust. */
  readonly cert: string
}

/** Valid from an hour ago for two days. @param address IPv4 */
export function selfSigned(address: string, nowMs: number): SelfSigned {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const name = sequence(der(tag.set, sequence(oid('550403'), der(tag.utf8, Buffer.from('demo')))))
  const dayMs = 24 * 3_600_000
  const addressBytes = Buffer.from(address.split('.').map(Number))
  const alternativeNames = sequence(der(tag.ipAddress, addressBytes))
  const body = sequence(
    der(tag.version, der(tag.integer, Buffer.from([2]))),
    der(tag.integer, Buffer.concat([Buffer.from([1]), randomBytes(8)])),
    ecdsaWithSha256(),
    name,
    sequence(utcTime(nowMs - 3_600_000), utcTime(nowMs + 2 * dayMs)),
    name,
    publicKey.export({ type: 'spki', format: 'der' }),
    // subjectAltName
    der(tag.extensions, sequence(sequence(oid('551d11'), der(tag.octets, alternativeNames)))),
  )
  const signature = sign('sha256', body, privateKey)
  const certificate = sequence(body, ecdsaWithSha256(), der(tag.bits, Buffer.concat([Buffer.from([0]), signature])))
  return { key: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(), cert: pem(certificate) }
}

/** X.690 identifiers; the last three are the context tags of RFC 5280 (4.1, 4.2.1.6). */
const tag = {
  integer: 0x02,
  bits: 0x03,
  octets: 0x04,
  oid: 0x06,
  utf8: 0x0c,
  utcTime: 0x17,
  sequence: 0x30,
  set: 0x31,
  version: 0xa0,
  extensions: 0xa3,
  ipAddress: 0x87,
} as const

function der(identifier: number, content: Buffer): Buffer {
  const { length } = content
  // nothing here is longer than 65,535 bytes
  const header = length < 128 ? [length] : length < 256 ? [0x81, length] : [0x82, length >> 8, length & 255]
  return Buffer.concat([Buffer.from([identifier, ...header]), content])
}

function sequence(...parts: readonly Buffer[]): Buffer {
  return der(tag.sequence, Buffer.concat(parts))
}

function oid(hex: string): Buffer {
  return der(tag.oid, Buffer.from(hex, 'hex'))
}

function ecdsaWithSha256(): Buffer {
  return sequence(oid('2a8648ce3d040302'))
}

function utcTime(ms: number): Buffer {
  const digits = new Date(ms).toISOString().replaceAll(/\D/g, '')
  return der(tag.utcTime, Buffer.from(`${digits.slice(2, 14)}Z`))
}

function pem(certificate: Buffer): string {
  const lines = certificate.toString('base64').match(/.{1,64}/g) ?? []
  return `-----BEGIN CERTIFICATE-----\n${lines.join('\n')}\n-----END CERTIFICATE-----\n`
}

// The container of OpenSSH's own private key files (openssh-portable, PROTOCOL.key); it decodes no key inside.
import { readString, sshString, uint32 } from './wire-form.ts'

const magic = Buffer.from('openssh-key-v1\0')

export interface OpenSshContainer {
  /** `none` where the key is not encrypted. */
  readonly cipher: string
  /** Type of the first key, from its public half, which is never encrypted. */
  readonly keyType: string
}

/** @param lines base64; undefined where it is no such container */
export function readContainer(lines: readonly string[]): OpenSshContainer | undefined {
  const blob = Buffer.from(lines.join(''), 'base64')
  if (!blob.subarray(0, magic.length).equals(magic)) return undefined
  const cipher = readString(blob, magic.length)
  const kdf = cipher && readString(blob, cipher.end)
  const kdfOptions = kdf && readString(blob, kdf.end)
  // Four bytes for the number of keys.
  const publicKey = kdfOptions && readString(blob, kdfOptions.end + 4)
  const keyType = publicKey && readString(publicKey.content, 0)
  if (cipher === undefined || keyType === undefined) return undefined
  return { cipher: cipher.content.toString('latin1'), keyType: keyType.content.toString('latin1') }
}

/**
 * An unencrypted container around one ed25519 key, as text.
 * @param pub 32 bytes
 * @param seed 32 bytes
 */
export function ed25519Container(pub: Buffer, seed: Buffer): string {
  const type = Buffer.from('ssh-ed25519')
  const check = Buffer.alloc(8)
  const unpadded = Buffer.concat([check, sshString(type), sshString(pub), sshString(seed, pub), sshString()])
  const padding = Buffer.from([1, 2, 3, 4, 5, 6, 7]).subarray(0, (8 - (unpadded.length % 8)) % 8)
  const none = Buffer.from('none')
  const blob = Buffer.concat([
    magic,
    sshString(none),
    sshString(none),
    sshString(),
    uint32(1),
    sshString(sshString(type), sshString(pub)),
    sshString(unpadded, padding),
  ])
  const lines = blob.toString('base64').match(/.{1,70}/g) ?? []
  return ['-----BEGIN OPENSSH PRIVATE KEY-----', ...lines, '-----END OPENSSH PRIVATE KEY-----', ''].join('\n')
}

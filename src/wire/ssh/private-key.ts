// Private key text of any common form → a key that ssh2 can sign with; it reads no file.
import { createPrivateKey, type JsonWebKey, type KeyObject } from 'node:crypto'
import ssh2, { type ParsedKey } from 'ssh2'

/** Why a text is no usable private key; `message` is a clause like `holds a public key`, and never quotes the text. */
export class PrivateKeyError extends Error {
  override readonly name = 'PrivateKeyError'
  readonly code = 'PRIVATE_KEY_INVALID'
  /** What to do about it, given the name of the file that the text came from. */
  readonly remedy: (file: string) => string

  constructor(problem: string, remedy: (file: string) => string) {
    super(problem)
    this.remedy = remedy
  }
}

const newKey = () => "make a new one with ssh-keygen -t ed25519 -N '' -f NEWFILE"
const signable = new Set([
  'ssh-ed25519',
  'ssh-rsa',
  'ecdsa-sha2-nistp256',
  'ecdsa-sha2-nistp384',
  'ecdsa-sha2-nistp521',
])
const curves = new Set<string | undefined>(['prime256v1', 'secp384r1', 'secp521r1'])
const privateBlock = /-----BEGIN ((?:[A-Z0-9]+ )*)PRIVATE KEY-----\n([\s\S]*?)\n-----END \1PRIVATE KEY-----/
const publicText =
  /-----BEGIN (?:[A-Z0-9]+ )?PUBLIC KEY-----|---- BEGIN SSH2 PUBLIC KEY|^(?:ssh-|ecdsa-sha2-|sk-)\S+ AAAA/m

/**
 * Reads an unencrypted ed25519, RSA or ECDSA private key in OpenSSH, PEM (PKCS#1, SEC1) or PKCS#8 form. Windows line
 * ends, a byte order mark, text around the key and a missing last newline do not matter.
 * @throws {@link PrivateKeyError}
 */
export function parsePrivateKey(text: string): ParsedKey {
  const normal = text
    .replace(/^\uFEFF/, '')
    .replace(/\r\n?/g, '\n')
    .replace(/[ \t]+$/gm, '')
  if (normal.trim() === '') throw new PrivateKeyError('is empty', newKey)
  if (normal.includes('PuTTY-User-Key-File')) {
    throw new PrivateKeyError(
      'is a PuTTY key',
      (file) => `convert it with puttygen ${file} -O private-openssh -o NEWFILE`,
    )
  }
  const block = privateBlock.exec(normal)
  if (block === null) {
    if (publicText.test(normal)) {
      throw new PrivateKeyError(
        'holds a public key',
        () => 'use the private key: the file of the same name without .pub',
      )
    }
    throw new PrivateKeyError('holds no private key', newKey)
  }
  const [pem, label = '', body = ''] = block
  if (label === 'ENCRYPTED ' || /^Proc-Type:.*ENCRYPTED/m.test(body) || isEncryptedOpenSsh(label, body)) {
    throw new PrivateKeyError(
      'is encrypted with a passphrase',
      (file) => `use a key without one, or remove the passphrase with ssh-keygen -p -N '' -f ${file}`,
    )
  }
  const key = ssh2.utils.parseKey(label === 'OPENSSH ' ? pem : toReadable(pem))
  // The library's own message can quote bytes of the file, so it is neither shown nor kept as the cause.
  if (key instanceof Error) throw malformed()
  if (!signable.has(key.type)) throw unsupported()
  proveUsable(key)
  return key
}

function malformed(): PrivateKeyError {
  return new PrivateKeyError('is malformed or cut off', () => `copy it again from its origin, or ${newKey()}`)
}

function unsupported(): PrivateKeyError {
  return new PrivateKeyError('is of a type that is not supported (ed25519, RSA and ECDSA are)', newKey)
}

const openSshMagic = Buffer.from('openssh-key-v1\0')
const cipherName = /^[a-z0-9][a-z0-9@.-]*$/

/** OpenSSH's own form names its cipher in clear text right after the magic (openssh-portable, PROTOCOL.key). */
function isEncryptedOpenSsh(label: string, body: string): boolean {
  if (label !== 'OPENSSH ') return false
  const blob = Buffer.from(body, 'base64')
  const at = openSshMagic.length
  if (blob.length < at + 4 || !blob.subarray(0, at).equals(openSshMagic)) return false
  const cipher = blob.toString('latin1', at + 4, at + 4 + blob.readUInt32BE(at))
  return cipherName.test(cipher) && cipher !== 'none'
}

/** ssh2 reads PKCS#1 and SEC1 but not PKCS#8; node:crypto reads all three and checks more of each. */
function toReadable(pem: string): string {
  let key: KeyObject
  try {
    key = createPrivateKey(pem)
  } catch {
    throw malformed()
  }
  switch (key.asymmetricKeyType) {
    case 'rsa':
      return key.export({ format: 'pem', type: 'pkcs1' }).toString()
    case 'ec':
      if (!curves.has(key.asymmetricKeyDetails?.namedCurve)) throw unsupported()
      return key.export({ format: 'pem', type: 'sec1' }).toString()
    case 'ed25519':
      return openSshEd25519(key.export({ format: 'jwk' }))
    default:
      throw unsupported()
  }
}

/** An ed25519 key in the only form that ssh2 reads it in (openssh-portable, PROTOCOL.key). */
function openSshEd25519(jwk: JsonWebKey): string {
  const pub = Buffer.from(jwk.x ?? '', 'base64url')
  const seed = Buffer.from(jwk.d ?? '', 'base64url')
  const type = Buffer.from('ssh-ed25519')
  const check = Buffer.alloc(8)
  const unpadded = Buffer.concat([check, sshString(type), sshString(pub), sshString(seed, pub), sshString()])
  const padding = Buffer.from([1, 2, 3, 4, 5, 6, 7]).subarray(0, (8 - (unpadded.length % 8)) % 8)
  const none = Buffer.from('none')
  const blob = Buffer.concat([
    openSshMagic,
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

function uint32(value: number): Buffer {
  const word = Buffer.alloc(4)
  word.writeUInt32BE(value)
  return word
}

function sshString(...parts: Buffer[]): Buffer {
  const content = Buffer.concat(parts)
  return Buffer.concat([uint32(content.length), content])
}

/** A key whose halves do not belong together parses well and then fails every login as "not authorized". */
function proveUsable(key: ParsedKey): void {
  const sample = Buffer.from('egress-proxies-operator')
  const hash = key.type === 'ssh-rsa' ? 'sha256' : undefined
  // Both calls return the failure instead of throwing it, whatever their types say.
  const signature: unknown = key.sign(sample, hash)
  if (!Buffer.isBuffer(signature)) throw malformed()
  const verified: unknown = key.verify(sample, signature, hash)
  if (verified !== true) throw malformed()
}

// Private key text of any common form → a key that ssh2 can sign with; it reads no file.
import { createPrivateKey } from 'node:crypto'
import ssh2, { type ParsedKey } from 'ssh2'
import { copyAgain, findKey, newKey, type Remedy } from './key-text.ts'
import { ed25519Container, readContainer } from './openssh-key.ts'
import { isKeyType, rsaBits } from './public-key.ts'

/** Why a text is no usable private key; `message` is a clause like `holds a public key`, and never quotes the text. */
export class PrivateKeyError extends Error {
  override readonly name = 'PrivateKeyError'
  readonly code = 'PRIVATE_KEY_INVALID'
  /** What to do about it, given the name of the file that the text came from. */
  readonly remedy: Remedy

  constructor(problem: string, remedy: Remedy) {
    super(problem)
    this.remedy = remedy
  }
}

/** sshd refuses shorter keys (RequiredRSASize); OpenSSH refuses longer ones, and signing with one takes seconds. */
const rsaLimits = { minBits: 1024, maxBits: 16_384 }
const curves = new Set<string | undefined>(['prime256v1', 'secp384r1', 'secp521r1'])

/**
 * Reads an unencrypted ed25519, RSA or ECDSA private key in OpenSSH, PEM (PKCS#1, SEC1) or PKCS#8 form. Windows line
 * ends, a byte order mark, text around the key and a missing last newline do not matter.
 * @throws {@link PrivateKeyError}
 */
export function parsePrivateKey(text: string): ParsedKey {
  const found = findKey(text)
  if (found.kind === 'wrong') throw new PrivateKeyError(found.problem, found.remedy)
  const { label, lines, pem } = found
  const key = label === 'OPENSSH ' ? readOpenSsh(lines, pem) : readPem(label, lines, pem)
  if (!isKeyType(key.type)) throw unsupported()
  if (key.type === 'ssh-rsa') requireSaneRsa(rsaBits(key.getPublicSSH()))
  proveUsable(key)
  return key
}

function readOpenSsh(lines: readonly string[], pem: string): ParsedKey {
  const container = readContainer(lines)
  if (container === undefined) throw malformed()
  if (container.cipher !== 'none') throw encrypted((file) => `ssh-keygen -p -N '' -f ${file}`)
  if (!isKeyType(container.keyType)) throw unsupported()
  return readWithSsh2(pem)
}

/** ssh2 reads PKCS#1 and SEC1 but not PKCS#8; node:crypto reads all three and checks more of each. */
function readPem(label: string, lines: readonly string[], pem: string): ParsedKey {
  if (label === 'ENCRYPTED ' || lines.some((line) => /^Proc-Type:.*ENCRYPTED/.test(line))) {
    // ssh-keygen does not read all of these.
    throw encrypted((file) => `openssl pkey -in ${file} -out NEWFILE`)
  }
  const key = decoded(() => createPrivateKey(pem))
  switch (key.asymmetricKeyType) {
    case 'rsa':
      requireSaneRsa(key.asymmetricKeyDetails?.modulusLength ?? 0)
      return readWithSsh2(decoded(() => key.export({ format: 'pem', type: 'pkcs1' }).toString()))
    case 'ec':
      if (!curves.has(key.asymmetricKeyDetails?.namedCurve)) throw unsupported()
      return readWithSsh2(decoded(() => key.export({ format: 'pem', type: 'sec1' }).toString()))
    case 'ed25519': {
      const { x = '', d = '' } = decoded(() => key.export({ format: 'jwk' }))
      return readWithSsh2(ed25519Container(Buffer.from(x, 'base64url'), Buffer.from(d, 'base64url')))
    }
    default:
      throw unsupported()
  }
}

/** Some damage is noticed by OpenSSL only when it writes the key: a scalar that is longer than its curve's, for one. */
function decoded<T>(step: () => T): T {
  try {
    return step()
  } catch {
    throw malformed()
  }
}

/** The library's own message can quote bytes of the file, so it is neither shown nor kept as the cause. */
function readWithSsh2(pem: string): ParsedKey {
  let key: ParsedKey | Error
  try {
    key = ssh2.utils.parseKey(pem)
  } catch {
    throw malformed()
  }
  if (key instanceof Error) throw malformed()
  return key
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

function requireSaneRsa(bits: number): void {
  const { minBits, maxBits } = rsaLimits
  if (bits >= minBits && bits <= maxBits) return
  throw new PrivateKeyError(`is an RSA key of ${bits} bits (${minBits} to ${maxBits} are usable)`, newKey)
}

function encrypted(command: Remedy): PrivateKeyError {
  return new PrivateKeyError(
    'is encrypted with a passphrase',
    (file) => `use a key without one, or remove the passphrase with ${command(file)}`,
  )
}

function malformed(): PrivateKeyError {
  return new PrivateKeyError('is malformed or cut off', copyAgain)
}

function unsupported(): PrivateKeyError {
  return new PrivateKeyError('is of a type that is not supported (ed25519, RSA and ECDSA are)', newKey)
}

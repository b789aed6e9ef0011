// The logins to try with one key, in order: one per signature algorithm. It decides nothing about host keys.
import type { ParsedKey, PublicKeyAuthMethod } from 'ssh2'

/** RSA signature algorithms (RFC 8332), most wanted first. `ssh-rsa`, which signs with SHA-1, is not among them. */
const rsaSignatures = [
  ['rsa-sha2-512', 'sha512'],
  ['rsa-sha2-256', 'sha256'],
] as const

/**
 * Why ssh2 is not left to choose: it signs with SHA-1 for a server that does not list its algorithms, and tries only one
 * of the two others where a server lists both and allows one.
 */
export function loginsWith(user: string, key: ParsedKey): PublicKeyAuthMethod[] {
  const keys =
    key.type === 'ssh-rsa' ? rsaSignatures.map(([algorithm, hash]) => signingWith(key, algorithm, hash)) : [key]
  return keys.map((each) => ({ type: 'publickey', username: user, key: each }))
}

/** The same key under the name of a signature algorithm, which is what ssh2 then asks for and signs as. */
function signingWith(key: ParsedKey, algorithm: string, hash: string): ParsedKey {
  // Inherits from the key, because ssh2 recognises its keys by a symbol of its own.
  return Object.create(key, {
    type: { value: algorithm },
    sign: { value: (data: Buffer) => key.sign(data, hash) },
  }) as ParsedKey
}

// Key pairs and known_hosts lines for tests and stubs, made on the spot; none is ever stored.
import ssh2 from 'ssh2'

export type TestKeyKind = 'ed25519' | 'rsa' | 'ecdsa'

export interface TestKeyPair {
  /** OpenSSH private key text. */
  readonly privateKey: string
  /** `type base64`, as in authorized_keys and known_hosts, without a comment. */
  readonly publicKey: string
  /** The public half in SSH wire form. */
  readonly publicBlob: Buffer
}

export function generateTestKey(kind: TestKeyKind = 'ed25519'): TestKeyPair {
  const pair =
    kind === 'ed25519'
      ? ssh2.utils.generateKeyPairSync('ed25519')
      : kind === 'rsa'
        ? ssh2.utils.generateKeyPairSync('rsa', { bits: 2048 })
        : ssh2.utils.generateKeyPairSync('ecdsa', { bits: 256 })
  const [type = '', encoded = ''] = pair.public.split(' ')
  return {
    privateKey: pair.private,
    publicKey: `${type} ${encoded}`,
    publicBlob: Buffer.from(encoded, 'base64'),
  }
}

/** The line that `ssh-keyscan -p PORT HOST` would print. */
export function knownHostsLine(host: string, port: number, publicKey: string): string {
  return `${port === 22 ? host : `[${host}]:${port}`} ${publicKey}`
}

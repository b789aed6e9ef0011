// Key pairs and known_hosts lines for tests and stubs, made on the spot; none is ever stored.
import ssh2 from 'ssh2'

export type TestKeyKind = 'ed25519' | 'rsa' | 'ecdsa' | 'ecdsa521'

export interface TestKeyPair {
  /** OpenSSH private key text. */
  readonly privateKey: string
  /** `type base64`, as in authorized_keys and known_hosts, without a comment. */
  readonly publicKey: string
  /** The public half in SSH wire form. */
  readonly publicBlob: Buffer
}

export function generateTestKey(kind: TestKeyKind = 'ed25519'): TestKeyPair {
  for (;;) {
    const pair = generate(kind)
    // One ed25519 key in 256 loses a leading zero byte in ssh2's generator, and cannot be read back.
    if (ssh2.utils.parseKey(pair.private) instanceof Error) continue
    const [type = '', encoded = ''] = pair.public.split(' ')
    return {
      privateKey: pair.private,
      publicKey: `${type} ${encoded}`,
      publicBlob: Buffer.from(encoded, 'base64'),
    }
  }
}

function generate(kind: TestKeyKind) {
  switch (kind) {
    case 'ed25519':
      return ssh2.utils.generateKeyPairSync('ed25519')
    case 'rsa':
      return ssh2.utils.generateKeyPairSync('rsa', { bits: 2048 })
    case 'ecdsa':
      return ssh2.utils.generateKeyPairSync('ecdsa', { bits: 256 })
    case 'ecdsa521':
      return ssh2.utils.generateKeyPairSync('ecdsa', { bits: 521 })
  }
}

/** The line that `ssh-keyscan -p PORT HOST` would print. */
export function knownHostsLine(host: string, port: number, publicKey: string): string {
  return `${port === 22 ? host : `[${host}]:${port}`} ${publicKey}`
}

/** What editors, clipboards and shells do to the text of a key, and what must not matter. */
export const blemishes: readonly (readonly [string, (text: string) => string])[] = [
  ['nothing', (text) => text],
  ['Windows line ends', (text) => text.replaceAll('\n', '\r\n')],
  ['old Mac line ends', (text) => text.replaceAll('\n', '\r')],
  ['no last newline', (text) => text.trimEnd()],
  ['a byte order mark', (text) => `\uFEFF${text}`],
  ['blank lines and blanks around it', (text) => `\n\r\n  ${text.trim()}  \n \n\n`],
  ['indentation', (text) => text.replaceAll(/^/gm, '    ')],
  ['text around it', (text) => `Bag Attributes\n    friendlyName: operator\n${text}the end\n`],
]

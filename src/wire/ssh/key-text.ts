// Finds the private key in the text of a key file, or says what else is in it; it decodes no key.

/** What to do about a wrong file, given its name. */
export type Remedy = (file: string) => string

export type KeyText =
  | {
      readonly kind: 'private'
      /** The words before `PRIVATE KEY`, for example `RSA`; empty for PKCS#8. */
      readonly label: string
      /** The lines between the markers, headers included. */
      readonly lines: readonly string[]
      /** The whole block with plain line ends. */
      readonly pem: string
    }
  /** `problem` is a clause like `holds a public key`. */
  | { readonly kind: 'wrong'; readonly problem: string; readonly remedy: Remedy }

export const newKey: Remedy = () => "make a new one with ssh-keygen -t ed25519 -N '' -f NEWFILE"
export const copyAgain: Remedy = (file) => `copy it again from its origin, or ${newKey(file)}`

const begin = /^-----BEGIN ((?:[A-Z0-9]+ )*)PRIVATE KEY-----$/
const privateOfPublic: Remedy = () => 'use the private key: the file of the same name without .pub'

interface WrongFile {
  readonly shows: (line: string) => boolean
  readonly problem: string
  readonly remedy: Remedy
}

/** What people put in place of a private key; the first row that any line shows counts. */
const wrongFiles: readonly WrongFile[] = [
  {
    shows: (line) => line.startsWith('PuTTY-User-Key-File'),
    problem: 'is a PuTTY key',
    remedy: (file) => `convert it with puttygen ${file} -O private-openssh -o NEWFILE`,
  },
  {
    shows: (line) => line === '---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----',
    problem: 'is a key in the form of SSH.com',
    remedy: (file) => `convert it with ssh-keygen -i -f ${file} > NEWFILE`,
  },
  { shows: (line) => /PRIVATE KEY-----/.test(line), problem: 'is malformed or cut off', remedy: copyAgain },
  {
    // `-----BEGIN ` in base64, as a Secret has it in `data`.
    shows: (line) => line.startsWith('LS0tLS1CRUdJTi'),
    problem: 'holds a key that was encoded in base64 once more',
    remedy: (file) => `decode it (base64 -d ${file} > NEWFILE); in a Secret, put the file in with --from-file`,
  },
  {
    shows: (line) => /^(?:ssh|ecdsa|sk)-[a-z0-9-]+-cert-v\d\d@openssh\.com\s/.test(line),
    problem: 'holds an SSH certificate',
    remedy: () => 'use the private key: the file of the same name without -cert.pub',
  },
  {
    shows: (line) => /^-----BEGIN (?:[A-Z0-9]+ )*CERTIFICATE(?: REQUEST)?-----$/.test(line),
    problem: 'holds a TLS certificate',
    remedy: newKey,
  },
  {
    shows: (line) =>
      /^-----BEGIN (?:[A-Z0-9]+ )?PUBLIC KEY-----$/.test(line) || line.startsWith('---- BEGIN SSH2 PUBLIC KEY'),
    problem: 'holds a public key',
    remedy: privateOfPublic,
  },
  {
    shows: (line) => /^(?:ssh|ecdsa|sk)-\S+\s+AAAA/.test(line),
    problem: 'holds a public key',
    remedy: privateOfPublic,
  },
  {
    shows: (line) => /^\S+\s+(?:\S+\s+)?(?:ssh|ecdsa|sk)-\S+\s+AAAA/.test(line),
    problem: 'is a known_hosts or authorized_keys file',
    remedy: () => 'name the private key here',
  },
]

/** Windows line ends, a byte order mark, blanks around lines and text around the key do not matter. */
export function findKey(text: string): KeyText {
  const lines = text
    .replace(/^\uFEFF/, '')
    .split(/\r\n|\r|\n/)
    .map((line) => line.trim())
  if (lines.every((line) => line === '')) return { kind: 'wrong', problem: 'is empty', remedy: newKey }
  const at = lines.findIndex((line) => begin.test(line))
  const label = begin.exec(lines[at] ?? '')?.[1] ?? ''
  const end = lines.indexOf(`-----END ${label}PRIVATE KEY-----`, at)
  if (at >= 0 && end >= 0) {
    const block = lines.slice(at, end + 1)
    return { kind: 'private', label, lines: block.slice(1, -1), pem: block.join('\n') + '\n' }
  }
  const wrong = wrongFiles.find(({ shows }) => lines.some(shows))
  return { kind: 'wrong', problem: wrong?.problem ?? 'holds no private key', remedy: wrong?.remedy ?? newKey }
}

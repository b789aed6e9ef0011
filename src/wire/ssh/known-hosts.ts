// OpenSSH known_hosts files: parsing and asking; no packages on npm does it. It reads no file and trusts nobody by itself.
import { parseHostField, type HostMatcher } from './host-pattern.ts'

/** A line that could not be used, without its content. */
export interface BadLine {
  /** Counted from 1. */
  readonly line: number
  readonly problem: string
}

interface Entry {
  readonly line: number
  readonly kind: 'key' | 'revoked' | 'authority'
  readonly matches: HostMatcher
  readonly keyType: string
  /** The public key in SSH wire form. */
  readonly key: Buffer
}

/** What the file says about one host's key. */
export type HostKeyVerdict =
  | { readonly kind: 'trusted'; readonly line: number }
  | { readonly kind: 'revoked'; readonly line: number }
  /** Other keys are known for the host. */
  | { readonly kind: 'changed'; readonly lines: readonly number[] }
  /** `authorityLine` is set when only a certificate authority is known for the host. */
  | { readonly kind: 'unknown'; readonly authorityLine?: number }

/** Key types that the handshake can verify, most wanted first; host certificates are not among them. */
export const hostKeyTypes = [
  'ssh-ed25519',
  'ecdsa-sha2-nistp256',
  'ecdsa-sha2-nistp384',
  'ecdsa-sha2-nistp521',
  'ssh-rsa',
] as const
export type HostKeyType = (typeof hostKeyTypes)[number]

const keyTypeShape = /^[a-z0-9][a-z0-9@.-]*$/
const base64Shape = /^[A-Za-z0-9+/]+={0,2}$/
const markers: Readonly<Record<string, Entry['kind']>> = { '@revoked': 'revoked', '@cert-authority': 'authority' }

/** The parsed content of one known_hosts file. */
export class KnownHosts {
  readonly badLines: readonly BadLine[]
  readonly #entries: readonly Entry[]

  private constructor(entries: readonly Entry[], badLines: readonly BadLine[]) {
    this.#entries = entries
    this.badLines = badLines
  }

  /** Never throws: lines that cannot be used are collected in `badLines`. */
  static parse(text: string): KnownHosts {
    const entries: Entry[] = []
    const badLines: BadLine[] = []
    for (const [index, raw] of text
      .replace(/^\uFEFF/, '')
      .split('\n')
      .entries()) {
      const content = raw.trim()
      if (content === '' || content.startsWith('#')) continue
      const parsed = parseLine(content, index + 1)
      if (typeof parsed === 'string') badLines.push({ line: index + 1, problem: parsed })
      else entries.push(parsed)
    }
    return new KnownHosts(entries, badLines)
  }

  /** Number of lines that could be used, of any kind. */
  get size(): number {
    return this.#entries.length
  }

  /** Types of the host's known keys as the file has them, most wanted first; empty when none is known. */
  keyTypes(host: string, port: number): string[] {
    const types = new Set(this.#keysOf(host, port).map((entry) => entry.keyType))
    const rank = (type: string) => {
      const index = hostKeyTypes.findIndex((known) => known === type)
      return index < 0 ? hostKeyTypes.length : index
    }
    return [...types].sort((a, b) => rank(a) - rank(b))
  }

  /**
   * Judges the key that a host presented.
   * @param key in SSH wire form
   */
  check(host: string, port: number, key: Buffer): HostKeyVerdict {
    const about = this.#about(lookupNames(host, port))
    const revoked = about.find((entry) => entry.kind === 'revoked' && entry.key.equals(key))
    if (revoked !== undefined) return { kind: 'revoked', line: revoked.line }

    const known = this.#keysOf(host, port)
    const trusted = known.find((entry) => entry.key.equals(key))
    if (trusted !== undefined) return { kind: 'trusted', line: trusted.line }
    if (known.length > 0) return { kind: 'changed', lines: known.map((entry) => entry.line) }

    const authority = about.find((entry) => entry.kind === 'authority')
    return authority === undefined ? { kind: 'unknown' } : { kind: 'unknown', authorityLine: authority.line }
  }

  /** As ssh(1) does it: a line without a port counts for any port, where no line names the port itself. */
  #keysOf(host: string, port: number): Entry[] {
    for (const names of [exactNames(host, port), plainNames(host)]) {
      const keys = this.#about(names).filter((entry) => entry.kind === 'key')
      if (keys.length > 0) return keys
    }
    return []
  }

  #about(names: readonly string[]): Entry[] {
    return this.#entries.filter((entry) => names.some((name) => entry.matches(name)))
  }
}

function parseLine(content: string, line: number): Entry | string {
  const fields = content.split(/[ \t]+/)
  let kind: Entry['kind'] = 'key'
  const marker = fields[0]
  if (marker?.startsWith('@') === true) {
    const known = markers[marker]
    if (known === undefined) return 'unknown marker'
    kind = known
    fields.shift()
  }
  const [hosts, keyType, encoded] = fields
  if (hosts === undefined || keyType === undefined || encoded === undefined) return 'fewer than three fields'
  const matches = parseHostField(hosts)
  if (matches === undefined) return 'malformed host field'
  if (!keyTypeShape.test(keyType)) return 'malformed key type'
  if (!base64Shape.test(encoded)) return 'key is not base64'
  const key = Buffer.from(encoded, 'base64')
  if (embeddedType(key) !== keyType) return 'key does not match its type'
  return { line, kind, matches, keyType, key }
}

/** The type that a key in SSH wire form names itself (RFC 4253, section 6.6). */
export function embeddedType(key: Buffer): string | undefined {
  if (key.length < 4) return undefined
  const length = key.readUInt32BE(0)
  return key.length > 4 + length ? key.toString('latin1', 4, 4 + length) : undefined
}

function plainNames(host: string): string[] {
  return [host.toLowerCase()]
}

/** ssh-keyscan writes port 22 without brackets; people also write `[host]:22`. */
function exactNames(host: string, port: number): string[] {
  const bracketed = `[${host.toLowerCase()}]:${port}`
  return port === 22 ? [host.toLowerCase(), bracketed] : [bracketed]
}

function lookupNames(host: string, port: number): string[] {
  return [...new Set([...exactNames(host, port), ...plainNames(host)])]
}

// OpenSSH known_hosts files: parsing and asking; no packages on npm does it. It reads no file and trusts nobody by itself.
import { isIPv6, SocketAddress } from 'node:net'
import { parseHostField, type HostMatcher } from './host-pattern.ts'
import { embeddedType, hasFormOf, isKeyType, keyTypes } from './public-key.ts'

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
  /** Other keys are known for the host at this port. */
  | { readonly kind: 'changed'; readonly lines: readonly number[] }
  /** `authorityLine` is set when only a certificate authority is known for the host. */
  | { readonly kind: 'unknown'; readonly authorityLine?: number }

/** What the file says about one host. */
export interface KnownHost {
  /** Types of its keys that may be trusted, as the file has them, most wanted first; empty when there is none. */
  readonly keyTypes: readonly string[]
  /**
   * Judges a key that it presented.
   * @param key in SSH wire form
   */
  check(key: Buffer): HostKeyVerdict
}

/** Far more than a key and a long list of names; what matching costs grows with it. */
const maxLineLength = 16_384
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

  /**
   * As ssh(1) has it: a line without a port also lets the host in at any other port, where no line has a key for the port
   * itself. Unlike there, a revocation counts for every port, and `[host]:22` for port 22.
   */
  host(host: string, port: number): KnownHost {
    const atPort = this.#about(namesAtPort(host, port))
    const atAnyPort = port === 22 ? atPort : this.#about(spellings(host))
    const about = [...new Set([...atPort, ...atAnyPort])]
    const revoked = about.filter(({ kind }) => kind === 'revoked')
    const own = atPort.filter(({ kind }) => kind === 'key')
    const known = own.length > 0 ? own : atAnyPort.filter(({ kind }) => kind === 'key')
    return {
      keyTypes: mostWantedFirst(known.filter(({ key }) => findKey(revoked, key) === undefined)),
      check(key) {
        const revocation = findKey(revoked, key)
        if (revocation !== undefined) return { kind: 'revoked', line: revocation.line }
        const trusted = findKey(known, key)
        if (trusted !== undefined) return { kind: 'trusted', line: trusted.line }
        if (own.length > 0) return { kind: 'changed', lines: own.map(({ line }) => line) }
        const authority = about.find(({ kind }) => kind === 'authority')
        return authority === undefined ? { kind: 'unknown' } : { kind: 'unknown', authorityLine: authority.line }
      },
    }
  }

  #about(names: readonly string[]): Entry[] {
    return this.#entries.filter((entry) => names.some((name) => entry.matches(name)))
  }
}

function parseLine(content: string, line: number): Entry | string {
  if (content.length > maxLineLength) return `longer than ${maxLineLength} characters`
  const fields = content.split(/[ \t]+/)
  let kind: Entry['kind'] = 'key'
  const marker = fields[0]
  if (marker?.startsWith('@') === true) {
    const known = Object.hasOwn(markers, marker) ? markers[marker] : undefined
    if (known === undefined) return 'unknown marker'
    kind = known
    fields.shift()
  }
  const [hosts = '', keyType = '', encoded = ''] = fields
  if (content.includes('PRIVATE KEY')) return 'belongs to a private key, not to known_hosts'
  if (isKeyType(hosts) && keyType.startsWith('AAAA')) return 'has no host name before the key'
  if (encoded === '') return 'fewer than three fields'
  const matches = parseHostField(hosts)
  if (matches === undefined) return 'malformed host field'
  if (!keyTypeShape.test(keyType)) return 'malformed key type'
  if (!base64Shape.test(encoded)) return 'key is not base64'
  const key = Buffer.from(encoded, 'base64')
  if (embeddedType(key) !== keyType) return 'key does not match its type'
  if (isKeyType(keyType) && !hasFormOf(keyType, key)) return 'key is malformed or cut off'
  return { line, kind, matches, keyType, key }
}

function findKey(entries: readonly Entry[], key: Buffer): Entry | undefined {
  return entries.find((entry) => entry.key.equals(key))
}

function mostWantedFirst(entries: readonly Entry[]): string[] {
  const rank = (type: string) => {
    const index = keyTypes.findIndex((known) => known === type)
    return index < 0 ? keyTypes.length : index
  }
  return [...new Set(entries.map(({ keyType }) => keyType))].sort((a, b) => rank(a) - rank(b))
}

/** The name as it is written; an IPv6 address also in its short form, under which ssh(1) looks it up. */
function spellings(host: string): string[] {
  const name = host.toLowerCase()
  if (!isIPv6(name) || name.includes('%')) return [name]
  return [...new Set([name, new SocketAddress({ address: name, family: 'ipv6' }).address])]
}

/** ssh-keyscan writes port 22 without brackets; people also write `[host]:22`. */
function namesAtPort(host: string, port: number): string[] {
  return spellings(host).flatMap((name) => (port === 22 ? [name, `[${name}]:22`] : [`[${name}]:${port}`]))
}

// The verdict on a host's key as the errors that people read; which key types to ask for. No sockets.
import { createHash } from 'node:crypto'
import type { HostTrust } from './credentials.ts'
import type { SshAddress } from './address.ts'
import { SshError } from './errors.ts'
import type { BadLine } from './known-hosts.ts'
import { embeddedType, isKeyType, type KeyType } from './public-key.ts'

/** SSH signature algorithms by key type; SHA-1 signatures (`ssh-rsa`) are not offered. */
const algorithmsOf: Readonly<Record<KeyType, readonly HostKeyAlgorithm[]>> = {
  'ssh-ed25519': ['ssh-ed25519'],
  'ecdsa-sha2-nistp256': ['ecdsa-sha2-nistp256'],
  'ecdsa-sha2-nistp384': ['ecdsa-sha2-nistp384'],
  'ecdsa-sha2-nistp521': ['ecdsa-sha2-nistp521'],
  'ssh-rsa': ['rsa-sha2-512', 'rsa-sha2-256'],
}

export type HostKeyAlgorithm = Exclude<KeyType, 'ssh-rsa'> | 'rsa-sha2-512' | 'rsa-sha2-256'

/**
 * What to offer in the handshake: only algorithms of the key types that are known for the host, so that a host with
 * several keys shows the one we know. All of them when the host is unknown, to be able to say which key it showed.
 * @throws {@link SshError} `HOST_KEY_UNKNOWN` when only types that cannot be verified are known
 */
export function hostKeyAlgorithms(trust: HostTrust, address: SshAddress): HostKeyAlgorithm[] {
  const known = trust.kind === 'knownHosts' ? trust.hosts.host(address.host, address.port).keyTypes : []
  if (known.length === 0 || trust.kind === 'anyKey') return Object.values(algorithmsOf).flat()
  const offered = known.flatMap((type) => (isKeyType(type) ? algorithmsOf[type] : []))
  if (offered.length > 0) return offered
  throw new SshError(
    'HOST_KEY_UNKNOWN',
    'ssh',
    `${trust.file} knows only keys of ${display(address)} that are not supported (${known.join(', ')}): ${addWith(trust.file, address)}`,
  )
}

/** Undefined when the key is to be trusted. */
export function judgeHostKey(trust: HostTrust, address: SshAddress, key: Buffer): SshError | undefined {
  if (trust.kind === 'anyKey') return undefined
  const verdict = trust.hosts.host(address.host, address.port).check(key)
  const shown = `${embeddedType(key) ?? 'unknown type'} ${fingerprint(key)}`
  const name = display(address)
  const { file } = trust
  switch (verdict.kind) {
    case 'trusted':
      return undefined
    case 'revoked':
      return refusal(
        'HOST_KEY_REVOKED',
        `host key of ${name} (${shown}) is revoked by ${file} line ${verdict.line}: give the host a new key`,
      )
    case 'changed':
      return refusal(
        'HOST_KEY_CHANGED',
        `host key of ${name} (${shown}) is not the one in known_hosts ${file} (line ${verdict.lines.join(', ')}): ` +
          `somebody may be in between; if the host was reinstalled, remove the old key with ` +
          `ssh-keygen -f ${file} -R '${knownHostsName(address)}' and ${addWith(file, address)}`,
      )
    case 'unknown': {
      const authority =
        verdict.authorityLine === undefined
          ? ''
          : ` (the certificate authority in line ${verdict.authorityLine} is not supported)`
      return refusal(
        'HOST_KEY_UNKNOWN',
        `host key of ${name} (${shown}) is not in known_hosts ${file}${authority}${unreadable(trust.hosts.badLines)}: ${addWith(file, address)}`,
      )
    }
  }
}

/** The host has no key of a type that known_hosts has for it. */
export function noCommonHostKey(trust: HostTrust, address: SshAddress, cause: Error): SshError {
  if (trust.kind === 'anyKey') {
    return new SshError('HANDSHAKE', 'ssh', `SSH handshake with ${display(address)} failed: ${cause.message}`, {
      cause,
    })
  }
  const types = trust.hosts.host(address.host, address.port).keyTypes.join(', ')
  return new SshError(
    'HOST_KEY_UNKNOWN',
    'ssh',
    `${display(address)} has no host key of a type that known_hosts ${trust.file} holds for it (${types}): ${addWith(trust.file, address)}`,
    { cause },
  )
}

/** As ssh-keygen -l prints it. */
export function fingerprint(key: Buffer): string {
  return `SHA256:${createHash('sha256').update(key).digest('base64').replace(/=+$/, '')}`
}

/** `host:port`, IPv6 in brackets. */
export function display({ host, port }: SshAddress): string {
  return host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`
}

function knownHostsName({ host, port }: SshAddress): string {
  return port === 22 ? host : `[${host}]:${port}`
}

function addWith(file: string, { host, port }: SshAddress): string {
  return `add it with ssh-keyscan -p ${port} ${host} >> ${file}`
}

function unreadable(badLines: readonly BadLine[]): string {
  if (badLines.length === 0) return ''
  const some = badLines.slice(0, 5).map(({ line, problem }) => `${line}: ${problem}`)
  return `, where ${badLines.length} line${badLines.length > 1 ? 's' : ''} cannot be read (line ${some.join('; line ')})`
}

function refusal(code: 'HOST_KEY_UNKNOWN' | 'HOST_KEY_CHANGED' | 'HOST_KEY_REVOKED', message: string): SshError {
  return new SshError(code, 'ssh', message)
}

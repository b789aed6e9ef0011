// Key and known_hosts files → credentials for one dial. Nothing is cached: a rotated Secret counts from the next dial on.
import { constants } from 'node:fs'
import { open } from 'node:fs/promises'
import type { ParsedKey } from 'ssh2'
import { toError } from '../../lib/errors.ts'
import { Secret } from '../../lib/secret.ts'
import { SshError } from './errors.ts'
import { KnownHosts } from './known-hosts.ts'
import { parsePrivateKey, PrivateKeyError } from './private-key.ts'

export interface SshCredentialFiles {
  /** Path of an unencrypted private key: ed25519, RSA or ECDSA; OpenSSH, PEM or PKCS#8. */
  readonly keyFile: string
  /** Path of an OpenSSH known_hosts file; needed unless host keys are ignored. */
  readonly knownHostsFile?: string
  /** Accept any host key. */
  readonly insecureIgnoreHostKey: boolean
}

/** How a host proves who it is. */
export type HostTrust =
  { readonly kind: 'knownHosts'; readonly file: string; readonly hosts: KnownHosts } | { readonly kind: 'anyKey' }

export interface SshCredentials {
  readonly keyFile: string
  readonly key: Secret<ParsedKey>
  readonly trust: HostTrust
}

const maxKeyBytes = 64 * 1024
/** What a Secret can hold. */
const maxKnownHostsBytes = 1024 * 1024

/**
 * Reads and parses the files; call it before every dial.
 * @throws {@link SshError} `CREDENTIALS_MISSING`, `CREDENTIALS_UNREADABLE` or `CREDENTIALS_INVALID`, stage `credentials`
 */
export async function loadCredentials(files: SshCredentialFiles): Promise<SshCredentials> {
  const keyText = await readText('SSH key file', files.keyFile, maxKeyBytes)
  const key = parseKeyFile(files.keyFile, keyText)
  if (files.insecureIgnoreHostKey) return { keyFile: files.keyFile, key, trust: { kind: 'anyKey' } }
  const file = files.knownHostsFile
  if (file === undefined) {
    throw new SshError(
      'CREDENTIALS_MISSING',
      'credentials',
      'no known_hosts file is configured, so no host can be verified: name one, or ignore host keys explicitly',
    )
  }
  const hosts = KnownHosts.parse(await readText('known_hosts file', file, maxKnownHostsBytes))
  const [firstBad] = hosts.badLines
  if (hosts.size === 0 && firstBad !== undefined) {
    throw invalid(
      `known_hosts file ${file} has no usable line (line ${firstBad.line}: ${firstBad.problem}): ` +
        `write it with ssh-keyscan -p PORT HOST > ${file}`,
    )
  }
  return { keyFile: files.keyFile, key, trust: { kind: 'knownHosts', file, hosts } }
}

function parseKeyFile(file: string, text: string): Secret<ParsedKey> {
  try {
    return new Secret(parsePrivateKey(text))
  } catch (error) {
    if (!(error instanceof PrivateKeyError)) throw error
    throw invalid(`SSH key file ${file} ${error.message}: ${error.remedy(file)}`)
  }
}

async function readText(what: string, file: string, maxBytes: number): Promise<string> {
  try {
    // Non-blocking, or a named pipe in the file's place would hold the call until somebody writes to it.
    const handle = await open(file, constants.O_RDONLY | constants.O_NONBLOCK)
    try {
      const stat = await handle.stat()
      if (!stat.isFile()) throw unreadable(`${what} ${file} is not a regular file: put the file in its place`)
      if (stat.size > maxBytes)
        throw invalid(`${what} ${file} is larger than ${maxBytes / 1024} KiB: keep in it what is needed`)
      return decode(await handle.readFile())
    } finally {
      await handle.close()
    }
  } catch (error) {
    if (error instanceof SshError) throw error
    const cause = toError(error)
    const code = 'code' in cause ? cause.code : undefined
    if (code === 'ENOENT' || code === 'ENOTDIR') {
      const message = `${what} ${file} does not exist: mount the Secret that holds it, or correct the path`
      throw new SshError('CREDENTIALS_MISSING', 'credentials', message, { cause })
    }
    const remedy = code === 'EACCES' ? `let the user that runs this (uid ${process.getuid?.()}) read it` : 'check it'
    throw unreadable(`${what} ${file} cannot be read (${cause.message}): ${remedy}`, cause)
  }
}

/** UTF-8, or UTF-16 with a byte order mark, which is what a redirection in Windows PowerShell writes. */
function decode(bytes: Buffer): string {
  const mark = bytes.toString('hex', 0, 2)
  if (mark === 'fffe') return new TextDecoder('utf-16le').decode(bytes)
  if (mark === 'feff') return new TextDecoder('utf-16be').decode(bytes)
  return bytes.toString('utf8')
}

function invalid(message: string): SshError {
  return new SshError('CREDENTIALS_INVALID', 'credentials', message)
}

function unreadable(message: string, cause?: Error): SshError {
  return new SshError('CREDENTIALS_UNREADABLE', 'credentials', message, cause === undefined ? undefined : { cause })
}

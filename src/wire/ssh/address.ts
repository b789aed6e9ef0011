// `host:port` as configs write it; not a resolver.
import { SshError } from './errors.ts'

export interface SshAddress {
  /** A name, an IPv4 address, or an IPv6 address without its brackets. */
  readonly host: string
  readonly port: number
}

const plain = /^([^:[\]\s]+):(\d{1,5})$/
const bracketed = /^\[([0-9A-Fa-f:.]+(?:%[^[\]\s]+)?)\]:(\d{1,5})$/

/**
 * Parses `host:port`; IPv6 in brackets.
 * @throws {@link SshError} `TCP`
 */
export function parseSshAddress(address: string): SshAddress {
  const match = plain.exec(address) ?? bracketed.exec(address)
  const host = match?.[1]
  const port = Number(match?.[2])
  if (host === undefined || port < 1 || port > 65_535) {
    throw new SshError('TCP', 'tcp', `${JSON.stringify(address)} is not host:port (IPv6 in brackets: [fd00::1]:22)`)
  }
  return { host, port }
}

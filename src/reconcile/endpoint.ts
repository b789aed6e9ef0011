// The URL of a proxy from its address and port; not a parser of either.
import { isIPv6 } from 'node:net'

/** `http://host:port`, IPv6 in brackets. */
export function endpointOf(ip: string, port: number): string {
  return `http://${isIPv6(ip) ? `[${ip}]` : ip}:${port}`
}

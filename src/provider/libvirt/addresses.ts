// Which of the addresses a source names is the instance's own; asking the sources is done elsewhere. Pure.
import { BlockList, isIP } from 'node:net'
import type { DomainInterface } from '../../wire/libvirt/protocol.gen.ts'

/** What counts as an address to reach an instance by. */
export interface AddressPolicy {
  /** For a demo whose instances are processes on this machine. */
  readonly allowLoopback: boolean
}

export const strictAddresses: AddressPolicy = { allowLoopback: false }

/** Interface-address sources (libvirt-domain.h: virDomainInterfaceAddressesSource). */
export const addressSource = { lease: 0, agent: 1, arp: 2 } as const
export type AddressSource = keyof typeof addressSource

/**
 * The address of the interface whose MAC is one of the domain's NICs: IPv4 before IPv6, never loopback, link-local,
 * multicast or unspecified. ARP tables keep rows of the past, and a guest that asked for leases under two identities has two:
 * from either, two candidates are as good as none.
 * @param macs lower case
 */
export function ownAddress(
  interfaces: readonly DomainInterface[],
  macs: readonly string[],
  source: AddressSource,
  policy: AddressPolicy,
): string | undefined {
  const own = interfaces.filter((nic) => nic.hwaddr !== null && macs.includes(nic.hwaddr.toLowerCase()))
  const usable = own.flatMap((nic) => nic.addrs.map((address) => address.addr)).filter((ip) => isUsable(ip, policy))
  for (const version of [4, 6]) {
    const candidates = new Set(usable.filter((ip) => isIP(ip) === version))
    if (source !== 'agent' && candidates.size > 1) return undefined
    const [first] = candidates
    if (first !== undefined) return first
  }
  return undefined
}

function isUsable(ip: string, policy: AddressPolicy): boolean {
  const version = isIP(ip)
  if (version === 0) return false
  const family = version === 4 ? 'ipv4' : 'ipv6'
  if (never.check(ip, family)) return false
  return policy.allowLoopback || !loopback.check(ip, family)
}

const never = blocks([
  ['0.0.0.0', 8, 'ipv4'],
  ['169.254.0.0', 16, 'ipv4'],
  ['224.0.0.0', 3, 'ipv4'],
  ['::', 128, 'ipv6'],
  ['fe80::', 10, 'ipv6'],
  ['ff00::', 8, 'ipv6'],
])
const loopback = blocks([
  ['127.0.0.0', 8, 'ipv4'],
  ['::1', 128, 'ipv6'],
])

function blocks(subnets: readonly (readonly [net: string, prefix: number, family: 'ipv4' | 'ipv6'])[]): BlockList {
  const list = new BlockList()
  for (const [net, prefix, family] of subnets) list.addSubnet(net, prefix, family)
  return list
}

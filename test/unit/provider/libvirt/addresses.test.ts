// Which address is the instance's own.
import { describe, expect, it } from 'vitest'
import { ownAddress, strictAddresses } from '../../../../src/provider/libvirt/addresses.ts'

const mac = '52:54:00:ee:00:01'
const nic = (hwaddr: string | null, ...addrs: string[]) => ({
  name: 'x',
  hwaddr,
  addrs: addrs.map((addr) => ({ type: addr.includes(':') ? 1 : 0, addr, prefix: 24 })),
})
const lo = nic('00:00:00:00:00:00', '127.0.0.1', '::1')

describe('ownAddress', () => {
  it('takes the NIC with the MAC of the domain, not the one listed first', () => {
    const answer = [
      lo,
      nic('02:42:ac:11:00:01', '172.17.0.1'),
      nic(mac.toUpperCase(), '192.168.77.126', 'fe80::5054:ff:feee:1'),
    ]
    expect(ownAddress(answer, [mac], 'agent', strictAddresses)).toBe('192.168.77.126')
    expect(ownAddress(answer, ['52:54:00:00:00:00'], 'agent', strictAddresses)).toBeUndefined()
    expect(ownAddress(answer, [], 'agent', strictAddresses)).toBeUndefined()
  })

  it('prefers IPv4, and takes IPv6 when that is all', () => {
    expect(ownAddress([nic(mac, '2001:db8::7', '10.0.0.7')], [mac], 'agent', strictAddresses)).toBe('10.0.0.7')
    expect(ownAddress([nic(mac, 'fe80::1', '2001:db8::7')], [mac], 'agent', strictAddresses)).toBe('2001:db8::7')
  })

  it.each([
    '127.0.0.1',
    '169.254.3.4',
    '0.0.0.0',
    '224.0.0.1',
    '255.255.255.255',
    '::1',
    '::',
    'fe80::1',
    'ff02::1',
    '',
    'nonsense',
  ])('never takes %j', (addr) => {
    expect(ownAddress([nic(mac, addr)], [mac], 'agent', strictAddresses)).toBeUndefined()
  })

  it('takes loopback only where the policy allows it', () => {
    expect(ownAddress([nic(mac, '127.0.0.5')], [mac], 'agent', { allowLoopback: true })).toBe('127.0.0.5')
    expect(ownAddress([nic(mac, '169.254.0.5')], [mac], 'agent', { allowLoopback: true })).toBeUndefined()
  })

  it('takes no ARP row when there are two, for one of them is of the past', () => {
    expect(ownAddress([nic(mac, '10.0.0.7'), nic(mac, '10.0.0.8')], [mac], 'arp', strictAddresses)).toBeUndefined()
    expect(ownAddress([nic(mac, '10.0.0.7'), nic(mac, '10.0.0.7')], [mac], 'arp', strictAddresses)).toBe('10.0.0.7')
    expect(ownAddress([nic(mac, '10.0.0.7', '10.0.0.8')], [mac], 'agent', strictAddresses)).toBe('10.0.0.7')
  })

  it('takes no interface without a MAC', () => {
    expect(ownAddress([nic(null, '10.0.0.7')], [mac], 'agent', strictAddresses)).toBeUndefined()
  })
})

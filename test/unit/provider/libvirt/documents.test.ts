// Domain and volume documents and the mark, written and read back, with what libvirt makes of them in between.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { Mark } from '../../../../src/provider/contract.ts'
import { domainUuid, domainXml, parseDomainXml, randomMac } from '../../../../src/provider/libvirt/domain-xml.ts'
import { markXml, ownership, readMark } from '../../../../src/provider/libvirt/mark.ts'
import { backingPath, overlayVolumeXml, rawVolumeXml } from '../../../../src/provider/libvirt/volume-xml.ts'
import { parseXml } from '../../../../src/provider/libvirt/xml.ts'

const mark: Mark = {
  uid: 'u-1',
  installation: 'home',
  namespace: 'default',
  name: 'a',
  specHash: 'v1:aa',
  imageDigest: 'bb',
  createdAt: '2026-09-16T17:42:11.000Z',
}
const spec = {
  name: 'proxy-abc',
  uuid: domainUuid('proxy-abc'),
  mac: '52:54:00:0a:0b:0c',
  vcpus: 2,
  memoryMiB: 1024,
  nic: { kind: 'bridge', bridge: 'br0' } as const,
  overlayPath: '/pool/a & b/proxy-abc.qcow2',
  seedPath: '/pool/a & b/proxy-abc-seed.iso',
  markNamespace: 'https://example.org/kvm2',
  mark,
}

describe('domain document', () => {
  it('says what the instance needs and nothing about graphics', () => {
    const domain = parseXml(domainXml({ ...spec, firmware: 'uefi' }))?.child('domain')
    const devices = domain?.child('devices')
    expect(domain?.attribute('type')).toBe('kvm')
    expect(domain?.child('name')?.text).toBe('proxy-abc')
    expect(domain?.child('uuid')?.text).toBe(spec.uuid)
    expect(domain?.child('memory')?.attribute('unit')).toBe('MiB')
    expect(domain?.child('memory')?.text).toBe('1024')
    expect(domain?.child('vcpu')?.text).toBe('2')
    expect(domain?.child('cpu')?.attribute('mode')).toBe('host-passthrough')
    expect(domain?.child('os')?.child('type')?.attribute('machine')).toBe('q35')
    expect(domain?.child('features')?.child('acpi')).toBeDefined()
    expect(domain?.child('features')?.child('apic')).toBeDefined()
    const [disk, cd, ...more] = devices?.children('disk') ?? []
    expect(more).toEqual([])
    expect([disk?.attribute('type'), disk?.child('source')?.attribute('file')]).toEqual(['file', spec.overlayPath])
    expect([disk?.child('target')?.attribute('dev'), disk?.child('target')?.attribute('bus')]).toEqual([
      'vda',
      'virtio',
    ])
    expect(disk?.attribute('device')).toBe('disk')
    expect(disk?.child('driver')?.attribute('type')).toBe('qcow2')
    expect(disk?.child('readonly')).toBeUndefined()
    expect([cd?.attribute('type'), cd?.child('driver')?.attribute('type')]).toEqual(['file', 'raw'])
    expect([cd?.attribute('device'), cd?.child('source')?.attribute('file')]).toEqual(['cdrom', spec.seedPath])
    expect([cd?.child('target')?.attribute('dev'), cd?.child('target')?.attribute('bus')]).toEqual(['sda', 'sata'])
    expect(cd?.child('readonly')).toBeDefined()
    const nic = devices?.child('interface')
    expect([nic?.attribute('type'), nic?.child('source')?.attribute('bridge')]).toEqual(['bridge', 'br0'])
    expect(nic?.child('model')?.attribute('type')).toBe('virtio')
    expect(nic?.child('mac')?.attribute('address')).toBe(spec.mac)
    expect(devices?.children('interface')).toHaveLength(1)
    expect(devices?.child('serial')?.attribute('type')).toBe('pty')
    expect(devices?.child('channel')?.child('target')?.attribute('name')).toBe('org.qemu.guest_agent.0')
    expect(devices?.child('channel')?.attribute('type')).toBe('unix')
    expect(devices?.child('channel')?.child('target')?.attribute('type')).toBe('virtio')
    expect(devices?.child('rng')?.attribute('model')).toBe('virtio')
    expect(devices?.child('rng')?.child('backend')?.attribute('model')).toBe('random')
    expect(devices?.child('rng')?.child('backend')?.text).toBe('/dev/urandom')
    for (const shown of ['graphics', 'video', 'input']) expect(devices?.child(shown)).toBeUndefined()
  })

  it('switches secure boot off by name for UEFI, and says nothing of either for BIOS', () => {
    const os = (firmware: 'uefi' | 'bios') =>
      parseXml(domainXml({ ...spec, firmware }))
        ?.child('domain')
        ?.child('os')
    const feature = os('uefi')?.child('firmware')?.child('feature')
    expect(os('uefi')?.attribute('firmware')).toBe('efi')
    expect([feature?.attribute('name'), feature?.attribute('enabled')]).toEqual(['secure-boot', 'no'])
    expect(os('bios')?.attribute('firmware')).toBeUndefined()
    expect(os('bios')?.child('firmware')).toBeUndefined()
  })

  it('tells its own MACs and files', () => {
    const xml = domainXml({ ...spec, mac: '52:54:00:AA:BB:CC', firmware: 'bios' })
    expect(parseDomainXml(xml)).toEqual({ macs: ['52:54:00:aa:bb:cc'], files: [spec.overlayPath, spec.seedPath] })
    expect(parseDomainXml('<domain>')).toBeUndefined()
  })

  it('has a UUID of its own per name that is valid and stable', () => {
    expect(domainUuid('proxy-abc')).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/)
    expect(domainUuid('proxy-abc')).toBe(domainUuid('proxy-abc'))
    expect(domainUuid('proxy-abd')).not.toBe(domainUuid('proxy-abc'))
  })

  it('has a unicast MAC under the prefix of QEMU', () => {
    expect(randomMac(() => 0)).toBe('52:54:00:00:00:00')
    expect(randomMac(() => 0.9999999)).toBe('52:54:00:ff:ff:ff')
  })
})

describe('volume documents', () => {
  it('name size, format and base', () => {
    const raw = parseXml(rawVolumeXml({ name: 'a & b', capacityBytes: 64 }))?.child('volume')
    expect([raw?.child('name')?.text, raw?.child('capacity')?.text]).toEqual(['a & b', '64'])
    const xml = overlayVolumeXml({ name: 'o', capacityBytes: 1, backingPath: '/x/<y>', backingFormat: 'raw' })
    expect(backingPath(xml)).toBe('/x/<y>')
    expect(parseXml(xml)?.child('volume')?.child('backingStore')?.child('format')?.attribute('type')).toBe('raw')
  })

  it('have no base where libvirt says none', () => {
    expect(backingPath("<volume type='file'><name>a</name><target/></volume>")).toBeUndefined()
    expect(backingPath('<volume><backingStore/></volume>')).toBeUndefined()
    expect(backingPath('not xml')).toBeUndefined()
  })
})

describe('mark', () => {
  it('comes back as it was written, whatever it holds', () => {
    const text = fc
      .string({ minLength: 1, maxLength: 30, unit: fc.constantFrom('a', 'b', '<', '>', '&', '"', "'", ' ', 'é', '0') })
      .map((value) => `x${value}x`)
    fc.assert(
      fc.property(fc.record({ uid: text, installation: text, name: text }, { requiredKeys: [] }), (some) => {
        expect(readMark(markXml(some))).toEqual({ kind: 'marked', mark: some })
      }),
    )
    expect(readMark(markXml(mark))).toEqual({ kind: 'marked', mark })
  })

  it('is read as the earlier implementation wrote it', () => {
    const text =
      '<instance xmlns="https://example.org/kvm2">\n <managed>true</managed>\n <uid> u-9 </uid>\n <createdAt>2026-01-01T00:00:00Z</createdAt></instance>'
    expect(readMark(text)).toEqual({ kind: 'marked', mark: { uid: 'u-9', createdAt: '2026-01-01T00:00:00Z' } })
  })

  it.each([
    '<other/>',
    '<instance/>',
    '<instance><managed>false</managed></instance>',
    '<instance><managed>true</managed><uid>a</uid><uid>b</uid></instance>',
    '<instance><managed>true</managed><uid><b/></uid></instance>',
    '<instance><managed>true</managed>',
    '',
  ])('is unreadable as %j', (text) => {
    expect(readMark(text)).toEqual({ kind: 'unreadable' })
  })

  it('is missing when there is no element', () => {
    expect(readMark(undefined)).toEqual({ kind: 'unmarked' })
  })
})

describe('ownership', () => {
  const owner = { uid: 'u-1', installation: 'home' }
  const of = (some: Mark) => ownership({ kind: 'marked', mark: some }, owner).kind

  it('goes by installation first and then by UID', () => {
    expect(of({ uid: 'u-1', installation: 'home' })).toBe('ours')
    expect(of({ uid: 'u-1' })).toBe('ours')
    expect(of({ uid: 'u-1', installation: 'away' })).toBe('otherInstallation')
    expect(of({ uid: 'u-2', installation: 'home' })).toBe('otherProxy')
    expect(of({ uid: 'u-2' })).toBe('unknownOwner')
    expect(of({ installation: 'home' })).toBe('unowned')
    expect(of({})).toBe('unowned')
    expect(of({ installation: 'away' })).toBe('otherInstallation')
  })
})

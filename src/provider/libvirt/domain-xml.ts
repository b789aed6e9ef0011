// The domain document of an instance, and what is read back from a running one; volumes and the mark have files of their own.
import { createHash } from 'node:crypto'
import type { Random } from '../../lib/backoff.ts'
import type { Mark } from '../contract.ts'
import type { NicSource } from './config.ts'
import { markTree } from './mark.ts'
import { buildXml, parseXml } from './xml.ts'

export interface DomainSpec {
  readonly name: string
  readonly uuid: string
  readonly mac: string
  readonly vcpus: number
  readonly memoryMiB: number
  /** `uefi` disables secure boot explicitly: libvirt picks the secure-boot firmware otherwise, and unsigned loaders never start. */
  readonly firmware: 'uefi' | 'bios'
  /** Of the one NIC. */
  readonly nic: NicSource
  /** Absolute path of the overlay (qcow2). */
  readonly overlayPath: string
  /** Absolute path of the seed (raw). */
  readonly seedPath: string
  readonly markNamespace: string
  readonly mark: Mark
}

/**
 * Disks are `type="file"` with absolute paths: AppArmor derives QEMU's profile from those, and volume-type disks fail with
 * "permission denied" on stock Debian and Ubuntu hosts.
 */
export function domainXml(spec: DomainSpec): string {
  const efi = { firmware: { feature: { '@enabled': 'no', '@name': 'secure-boot' } } }
  return buildXml({
    domain: {
      '@type': 'kvm',
      name: spec.name,
      uuid: spec.uuid,
      metadata: markTree(spec.markNamespace, spec.mark),
      memory: { '@unit': 'MiB', '#text': String(spec.memoryMiB) },
      vcpu: String(spec.vcpus),
      os: {
        ...(spec.firmware === 'uefi' ? { '@firmware': 'efi' } : {}),
        type: { '@arch': 'x86_64', '@machine': 'q35', '#text': 'hvm' },
        ...(spec.firmware === 'uefi' ? efi : {}),
        boot: { '@dev': 'hd' },
      },
      features: { acpi: '', apic: '' },
      cpu: { '@mode': 'host-passthrough' },
      clock: { '@offset': 'utc' },
      on_poweroff: 'destroy',
      on_reboot: 'restart',
      on_crash: 'destroy',
      devices: {
        disk: [
          {
            '@type': 'file',
            '@device': 'disk',
            driver: { '@name': 'qemu', '@type': 'qcow2' },
            source: { '@file': spec.overlayPath },
            target: { '@dev': 'vda', '@bus': 'virtio' },
          },
          {
            '@type': 'file',
            '@device': 'cdrom',
            driver: { '@name': 'qemu', '@type': 'raw' },
            source: { '@file': spec.seedPath },
            target: { '@dev': 'sda', '@bus': 'sata' },
            readonly: '',
          },
        ],
        interface: {
          '@type': spec.nic.kind,
          mac: { '@address': spec.mac },
          source: spec.nic.kind === 'bridge' ? { '@bridge': spec.nic.bridge } : { '@network': spec.nic.network },
          model: { '@type': 'virtio' },
        },
        serial: { '@type': 'pty' },
        console: { '@type': 'pty' },
        channel: { '@type': 'unix', target: { '@type': 'virtio', '@name': 'org.qemu.guest_agent.0' } },
        rng: { '@model': 'virtio', backend: { '@model': 'random', '#text': '/dev/urandom' } },
      },
    },
  })
}

export interface DomainDescription {
  /** Of every NIC, lower case, in document order. */
  readonly macs: readonly string[]
  /** Files of disks and CDs. */
  readonly files: readonly string[]
}

/** Undefined when the document cannot be read. */
export function parseDomainXml(xml: string): DomainDescription | undefined {
  const devices = parseXml(xml)?.child('domain')?.child('devices')
  if (devices === undefined) return undefined
  return {
    macs: devices.children('interface').flatMap((nic) => nic.child('mac')?.attribute('address')?.toLowerCase() ?? []),
    files: devices.children('disk').flatMap((disk) => disk.child('source')?.attribute('file') ?? []),
  }
}

/**
 * UUID of the domain made under that instance name. It is found by it even after a rename, and a repeated define of the same
 * name and UUID updates instead of making a second domain.
 */
export function domainUuid(instanceName: string): string {
  const bytes = createHash('sha256').update(`egress-proxies-operator domain ${instanceName}`).digest().subarray(0, 16)
  // Version 8 (vendor-specific) and the RFC 9562 variant.
  bytes.writeUInt8((bytes.readUInt8(6) & 0x0f) | 0x80, 6)
  bytes.writeUInt8((bytes.readUInt8(8) & 0x3f) | 0x80, 8)
  const hex = bytes.toString('hex')
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-')
}

/** A fresh address under QEMU's prefix. New for every domain, so that no old ARP row or lease is taken for the new one's. */
export function randomMac(random: Random): string {
  const tail = Array.from({ length: 3 }, () =>
    Math.floor(random() * 256)
      .toString(16)
      .padStart(2, '0'),
  )
  return ['52', '54', '00', ...tail].join(':')
}

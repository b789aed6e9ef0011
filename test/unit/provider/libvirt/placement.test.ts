// What a placement selects, and the words for one that selects nothing.
import { createHash } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import type { Placement } from '../../../../src/provider/contract.ts'
import { ProviderError } from '../../../../src/provider/errors.ts'
import { kvm2BlockSchema, normaliseLibvirtBlock } from '../../../../src/provider/libvirt/config.ts'
import { resolvePlacement } from '../../../../src/provider/libvirt/placement.ts'

const host = { user: 'u', bridge: 'br0' }
const block = {
  sshKeyFile: '/k',
  knownHostsFile: '/h',
  images: {
    debian: { url: 'https://images.example/d.qcow2' },
    pinned: {
      url: 'https://images.example/p.img',
      sha256: 'AB'.repeat(32),
      format: 'raw' as const,
      firmware: 'bios' as const,
    },
  },
  machineTypes: { small: { vcpus: 1, memoryMiB: 512 } },
  hosts: [
    { name: 'a', address: 'a.example:22', ...host },
    { name: 'b', address: 'b.example:22', ...host },
  ],
}
const config = normaliseLibvirtBlock(kvm2BlockSchema.parse(block))
const single = { ...config, hosts: config.hosts.slice(0, 1) }
const good = { zone: 'b', machineType: 'small', image: 'debian' }

function refusal(placement: Placement): unknown {
  try {
    resolvePlacement('kvm2', config, placement)
  } catch (error) {
    return error
  }
  return undefined
}

describe('resolvePlacement', () => {
  it('selects host, size and image', () => {
    const found = resolvePlacement('kvm2', config, good)
    expect(found.host.name).toBe('b')
    expect(found.machineType).toEqual({ vcpus: 1, memoryMiB: 512 })
    expect(found.image).toMatchObject({
      volume: 'base-debian.qcow2',
      format: 'qcow2',
      firmware: 'uefi',
      label: 'debian',
    })
  })

  it('takes no notice of a region', () => {
    expect(resolvePlacement('kvm2', config, { ...good, region: 'nowhere' })).toEqual(
      resolvePlacement('kvm2', config, good),
    )
  })

  it('takes the only host when no zone is given', () => {
    expect(resolvePlacement('kvm2', single, { machineType: 'small', image: 'debian' }).host.name).toBe('a')
  })

  it('names volumes by key and format, and the second one by what tells two images apart', () => {
    const { image } = resolvePlacement('kvm2', config, { ...good, image: 'pinned' })
    expect([image.volume, image.alternateVolume]).toEqual(['base-pinned.raw', 'base-pinned-abababababab.raw'])
    expect(image.firmware).toBe('bios')
  })

  it('takes a URL for an image, and shows it without credentials and query', () => {
    const url = 'https://user:secret@images.example/x.qcow2?token=secret'
    const { image } = resolvePlacement('kvm2', config, { ...good, image: url })
    const key = createHash('sha256').update(url).digest('hex').slice(0, 16)
    expect(image).toMatchObject({ url, volume: `base-${key}.qcow2`, label: 'https://images.example/x.qcow2' })
    expect(image.source).toEqual({ kind: 'placement' })
  })

  it.each<[string, Placement, string]>([
    ['placement.zone "x" is not in kvm2.hosts', { ...good, zone: 'x' }, 'ZoneUnknown'],
    [
      'placement.zone is required when kvm2.hosts lists more than one host',
      { machineType: 'small', image: 'debian' },
      'ZoneRequired',
    ],
    ['placement.machineType "x" is not in kvm2.machineTypes', { ...good, machineType: 'x' }, 'MachineTypeUnknown'],
    ['placement.machineType is required', { zone: 'a', image: 'debian' }, 'MachineTypeRequired'],
    ['placement.image "x" is neither a key in kvm2.images nor an http(s) URL', { ...good, image: 'x' }, 'ImageUnknown'],
    ['placement.image "ftp://a/b" is neither', { ...good, image: 'ftp://a/b' }, 'ImageUnknown'],
    ['placement.image "constructor" is neither', { ...good, image: 'constructor' }, 'ImageUnknown'],
    ['placement.image is required', { zone: 'a', machineType: 'small' }, 'ImageRequired'],
  ])('%s', (words, placement, code) => {
    const error = refusal(placement)
    expect(error).toBeInstanceOf(ProviderError)
    expect(error).toMatchObject({ kind: 'permanent', origin: 'spec', code })
    expect((error as ProviderError).message).toContain(words)
  })
})

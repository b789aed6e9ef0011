// Volume documents and contents for the peer suites.
import type { LibvirtConnection } from '../../../src/wire/libvirt/connection.ts'
import type { StoragePool, StorageVol } from '../../../src/wire/libvirt/protocol.gen.ts'
import { qcow2Header } from '../libvirt-stub/model/formats.ts'
import { callOptions, prefix } from './peer.ts'

export function rawVolume(name: string, capacityBytes: number, format: 'raw' | 'qcow2' = 'raw'): string {
  return (
    `<volume><name>${name}</name><capacity unit='bytes'>${capacityBytes}</capacity>` +
    `<allocation unit='bytes'>0</allocation><target><format type='${format}'/></target></volume>`
  )
}

export async function createVolume(libvirt: LibvirtConnection, pool: StoragePool, xml: string): Promise<StorageVol> {
  return (await libvirt.call('STORAGE_VOL_CREATE_XML', { pool, xml, flags: 0 }, callOptions)).vol
}

/** Deletes what this suite, or an earlier run of it, has left in the pool. */
export async function clearVolumes(libvirt: LibvirtConnection, pool: StoragePool): Promise<void> {
  const { vols } = await libvirt.call('STORAGE_POOL_LIST_ALL_VOLUMES', { pool, need_results: 1, flags: 0 }, callOptions)
  for (const vol of vols.filter(({ name }) => name.startsWith(prefix))) {
    await libvirt.call('STORAGE_VOL_DELETE', { vol, flags: 0 }, callOptions)
  }
}

/** Enough of a qcow2 image for a probe: a header, and nothing behind it. */
export function fakeQcow2(capacityBytes: number): Buffer {
  return Buffer.concat([qcow2Header({ capacity: capacityBytes }), Buffer.alloc(200_000)])
}

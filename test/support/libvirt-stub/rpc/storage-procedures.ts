// Procedures about storage pools and volumes.
import { ErrorDomain } from '../../../../src/wire/libvirt/error-codes.ts'
import type { StoragePool, StorageVol } from '../../../../src/wire/libvirt/protocol.gen.ts'
import { fail } from '../model/errors.ts'
import { readQcow2 } from '../model/formats.ts'
import {
  allocation,
  available,
  poolAllocation,
  volumeCapacity,
  type StubPool,
  type StubVolume,
} from '../model/pools.ts'
import { poolDocument, volumeDocument } from '../model/storage-xml.ts'
import { poolLifecycleEvent } from '../host.ts'
import { DownloadStream, UploadStream } from './streams.ts'
import type { Call, Handlers } from './handler.ts'

const poolState = { inactive: 0, running: 2 } as const
/** libvirt-storage.h: virStoragePoolEventLifecycleType. */
const poolEvent = { defined: 0, undefined: 1, started: 2, stopped: 3 } as const
const fileVolume = 0
const shrinkFlag = 4
const physicalFlag = 1

function poolHandle({ name, uuid }: StubPool): StoragePool {
  return { name, uuid }
}

function volumeHandle({ pool, name, path }: StubVolume): StorageVol {
  return { pool, name, key: path }
}

function poolOf(call: Call, pool: StoragePool): StubPool {
  return call.host.pools.byUuid(pool.uuid, pool.name)
}

function volumeOf(call: Call, vol: StorageVol): StubVolume {
  return call.host.pools.volume(vol.pool, vol.name)
}

function refuseFlags(flags: number, known: number, where: string): void {
  if ((flags & ~known) !== 0) throw fail.unsupportedFlags(flags & ~known, where, ErrorDomain.STORAGE)
}

function volumesOf(call: Call, pool: StoragePool): StubVolume[] {
  const { volumes } = call.host.pools.activePool(pool.uuid, pool.name)
  return [...volumes.values()].sort((a, b) => (a.name < b.name ? -1 : 1))
}

export const storageProcedures: Handlers = {
  STORAGE_POOL_LOOKUP_BY_NAME: (call, { name }) => ({ pool: poolHandle(call.host.pools.byName(name)) }),
  STORAGE_POOL_LOOKUP_BY_UUID: (call, { uuid }) => ({ pool: poolHandle(call.host.pools.byUuid(uuid)) }),
  STORAGE_POOL_LOOKUP_BY_VOLUME: (call, { vol }) => ({ pool: poolHandle(call.host.pools.byName(vol.pool)) }),
  CONNECT_LIST_ALL_STORAGE_POOLS: (call, { need_results, flags }) => {
    const pools = call.host.pools.all().filter(({ active }) => (flags & 3) === 0 || (flags & (active ? 2 : 1)) !== 0)
    return { pools: need_results === 0 ? [] : pools.map(poolHandle), ret: pools.length }
  },
  STORAGE_POOL_GET_INFO: (call, { pool }) => {
    const found = poolOf(call, pool)
    if (!found.active) return { state: poolState.inactive, capacity: 0n, allocation: 0n, available: 0n }
    return {
      state: poolState.running,
      capacity: BigInt(found.capacity),
      allocation: BigInt(poolAllocation(found)),
      available: BigInt(available(found)),
    }
  },
  STORAGE_POOL_GET_XML_DESC: (call, { pool }) => ({ xml: poolDocument(poolOf(call, pool)) }),
  STORAGE_POOL_IS_ACTIVE: (call, { pool }) => ({ active: poolOf(call, pool).active ? 1 : 0 }),
  STORAGE_POOL_IS_PERSISTENT: (call, { pool }) => {
    poolOf(call, pool)
    return { persistent: 1 }
  },
  STORAGE_POOL_GET_AUTOSTART: (call, { pool }) => ({ autostart: poolOf(call, pool).autostart ? 1 : 0 }),
  STORAGE_POOL_SET_AUTOSTART: (call, { pool, autostart }) => {
    poolOf(call, pool).autostart = autostart !== 0
    return null
  },
  STORAGE_POOL_DEFINE_XML: (call, { xml }) => {
    const pool = call.host.pools.define(xml)
    call.emitAfterReply(poolLifecycleEvent(pool, poolEvent.defined))
    return { pool: poolHandle(pool) }
  },
  STORAGE_POOL_CREATE: (call, { pool }) => {
    const found = poolOf(call, pool)
    call.host.pools.start(found)
    call.host.events.emit(poolLifecycleEvent(found, poolEvent.started))
    return null
  },
  STORAGE_POOL_DESTROY: (call, { pool }) => {
    const found = poolOf(call, pool)
    call.host.pools.stop(found)
    call.host.events.emit(poolLifecycleEvent(found, poolEvent.stopped))
    return null
  },
  STORAGE_POOL_UNDEFINE: (call, { pool }) => {
    const found = poolOf(call, pool)
    call.host.pools.undefine(found)
    call.emitAfterReply(poolLifecycleEvent(found, poolEvent.undefined))
    return null
  },
  STORAGE_POOL_REFRESH: (call, { pool }) => {
    const found = poolOf(call, pool)
    call.host.pools.refresh(found)
    call.host.events.emit({
      name: 'STORAGE_POOL_EVENT_REFRESH',
      subject: found.uuid,
      message: { pool: poolHandle(found) },
    })
    return null
  },
  STORAGE_POOL_NUM_OF_VOLUMES: (call, { pool }) => ({ num: volumesOf(call, pool).length }),
  STORAGE_POOL_LIST_VOLUMES: (call, { pool, maxnames }) => ({
    names: volumesOf(call, pool)
      .map(({ name }) => name)
      .slice(0, maxnames),
  }),
  STORAGE_POOL_LIST_ALL_VOLUMES: (call, { pool, need_results }) => {
    const volumes = volumesOf(call, pool)
    return { vols: need_results === 0 ? [] : volumes.map(volumeHandle), ret: volumes.length }
  },

  STORAGE_VOL_LOOKUP_BY_NAME: (call, { pool, name }) => {
    const { volumes } = call.host.pools.activePool(pool.uuid, pool.name)
    const volume = volumes.get(name)
    if (volume === undefined) throw fail.noVolume(`no storage vol with matching name '${name}'`)
    return { vol: volumeHandle(volume) }
  },
  STORAGE_VOL_LOOKUP_BY_KEY: (call, { key }) => {
    const volume = call.host.pools.byPath(key)
    if (volume === undefined) throw fail.noVolume(`no storage vol with matching key ${key}`)
    return { vol: volumeHandle(volume) }
  },
  STORAGE_VOL_LOOKUP_BY_PATH: (call, { path }) => {
    const volume = call.host.pools.byPath(path)
    if (volume === undefined) throw fail.noVolume(`no storage vol with matching path '${path}'`)
    return { vol: volumeHandle(volume) }
  },
  STORAGE_VOL_CREATE_XML: (call, { pool, xml }) => ({
    vol: volumeHandle(call.host.pools.createVolume(poolOf(call, pool), xml)),
  }),
  STORAGE_VOL_DELETE: (call, { vol }) => {
    call.host.pools.deleteVolume(volumeOf(call, vol))
    return null
  },
  STORAGE_VOL_RESIZE: (call, { vol, capacity, flags }) => {
    call.host.pools.resize(volumeOf(call, vol), Number(capacity), (flags & shrinkFlag) !== 0)
    return null
  },
  STORAGE_VOL_GET_INFO: (call, { vol }) => {
    const volume = volumeOf(call, vol)
    return { type: fileVolume, capacity: BigInt(volumeCapacity(volume)), allocation: BigInt(allocation(volume)) }
  },
  STORAGE_VOL_GET_INFO_FLAGS: (call, { vol, flags }) => {
    const volume = volumeOf(call, vol)
    const allocated = (flags & physicalFlag) !== 0 ? volume.content.length : allocation(volume)
    return { type: fileVolume, capacity: BigInt(volumeCapacity(volume)), allocation: BigInt(allocated) }
  },
  STORAGE_VOL_GET_PATH: (call, { vol }) => ({ name: volumeOf(call, vol).path }),
  STORAGE_VOL_GET_XML_DESC: (call, { vol }) => ({ xml: volumeDocument(volumeOf(call, vol)) }),
  STORAGE_VOL_UPLOAD: (call, { vol, offset, length, flags }) => {
    refuseFlags(flags, 0, 'storageVolUpload')
    const volume = volumeOf(call, vol)
    const range = { offset: Number(offset), length: Number(length) }
    call.openStream((identity) => new UploadStream(call.host, volume, identity, range))
    return null
  },
  STORAGE_VOL_DOWNLOAD: (call, { vol, offset, length, flags }) => {
    refuseFlags(flags, 0, 'storageVolDownload')
    const volume = volumeOf(call, vol)
    const range = { offset: Number(offset), length: Number(length) }
    call.openStream((identity) => new DownloadStream(volume, identity, range))
    return null
  },
}

/** Backing file of a volume, for assertions. */
export function backingPathOf(volume: StubVolume): string | undefined {
  return volume.format === 'qcow2' ? readQcow2(volume.content)?.backingPath : undefined
}

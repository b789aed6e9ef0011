// Storage pools and their volumes as a libvirtd with directory pools keeps them; no wire, no time but the clock it is given.
import { randomUUID } from 'node:crypto'
import type { Clock } from '../../../../src/lib/clock.ts'
import { ErrorDomain } from '../../../../src/wire/libvirt/error-codes.ts'
import { errno, fail, xmlDomain } from './errors.ts'
import { probeFormat, qcow2Header, readQcow2, type VolumeFormat } from './formats.ts'
import { VolumeContent } from './volume-content.ts'
import { element, isProblem, parseXmlTree, textOf, type XmlNode } from './xml.ts'

export interface StubVolume {
  readonly pool: string
  readonly name: string
  readonly path: string
  /** As declared at creation, or as the last refresh found. */
  format: VolumeFormat
  readonly content: VolumeContent
  /** Blocks reserved at creation, bytes. */
  reserved: number
  /** Last change, milliseconds since the epoch. */
  modifiedAt: number
}

export interface StubPool {
  readonly name: string
  readonly uuid: string
  readonly targetPath: string
  active: boolean
  autostart: boolean
  /** Bytes; a test may shrink it while volumes are there. */
  capacity: number
  readonly volumes: Map<string, StubVolume>
}

export interface PoolOptions {
  readonly name: string
  readonly targetPath: string
  readonly capacity: number
}

/** A new qcow2 file's own tables. */
const qcow2FileBytes = 196_616
const qcow2Allocation = 200_704

export class PoolModel {
  readonly #pools = new Map<string, StubPool>()
  readonly #clock: Clock
  readonly #keepBytes: number

  constructor(clock: Clock, keepBytes: number) {
    this.#clock = clock
    this.#keepBytes = keepBytes
  }

  all(): StubPool[] {
    return [...this.#pools.values()]
  }

  add(options: PoolOptions, active: boolean): StubPool {
    const pool: StubPool = {
      name: options.name,
      uuid: randomUUID(),
      targetPath: options.targetPath,
      active,
      autostart: active,
      capacity: options.capacity,
      volumes: new Map(),
    }
    this.#pools.set(pool.name, pool)
    return pool
  }

  byName(name: string): StubPool {
    const pool = this.#pools.get(name)
    if (pool === undefined) throw fail.noPool(`no storage pool with matching name '${name}'`)
    return pool
  }

  /** @param name only for the error's text, where the caller sent one */
  byUuid(uuid: string, name?: string): StubPool {
    const pool = this.all().find((candidate) => candidate.uuid === uuid)
    const suffix = name === undefined ? '' : ` (${name})`
    if (pool === undefined) throw fail.noPool(`no storage pool with matching uuid '${uuid}'${suffix}`)
    return pool
  }

  activePool(uuid: string, name: string): StubPool {
    return requireActive(this.byUuid(uuid, name))
  }

  /** A volume is looked up by the pool's name and its own; its key is not looked at. */
  volume(poolName: string, name: string): StubVolume {
    const pool = requireActive(this.byName(poolName))
    const volume = pool.volumes.get(name)
    if (volume === undefined) throw fail.noVolume(`no storage vol with matching name '${name}'`)
    return volume
  }

  byPath(path: string): StubVolume | undefined {
    return this.all()
      .filter((pool) => pool.active)
      .flatMap((pool) => [...pool.volumes.values()])
      .find((volume) => volume.path === path)
  }

  define(xml: string): StubPool {
    const root = parseXmlTree(xml)
    if (isProblem(root)) throw fail.storageXml(root.message)
    if (root.name !== 'pool') throw fail.storageXml(`expecting root element of 'pool', not '${root.name}'`, xmlDomain)
    if (!root.attributes.has('type')) {
      throw fail.storageXml("Missing required attribute 'type' in element 'pool'", xmlDomain)
    }
    const name = textOf(element(root, 'name')) ?? ''
    const targetPath = textOf(element(root, 'target', 'path')) ?? ''
    const existing = this.#pools.get(name)
    if (existing !== undefined) throw fail.storageFailed(`pool '${name}' already exists with uuid ${existing.uuid}`)
    const conflict = this.all().find((pool) => pool.targetPath === targetPath)
    if (conflict !== undefined) throw fail.storageFailed(`Storage source conflict with pool: '${conflict.name}'`)
    return this.add({ name, targetPath, capacity: 100 * 2 ** 30 }, false)
  }

  start(pool: StubPool): void {
    if (pool.active) throw fail.storageInvalid(`storage pool '${pool.name}' is already active`)
    pool.active = true
    refresh(pool)
  }

  stop(pool: StubPool): void {
    requireActive(pool).active = false
  }

  undefine(pool: StubPool): void {
    if (pool.active) throw fail.storageInvalid(`storage pool '${pool.name}' is still active`)
    this.#pools.delete(pool.name)
  }

  refresh(pool: StubPool): void {
    refresh(requireActive(pool))
  }

  createVolume(pool: StubPool, xml: string): StubVolume {
    requireActive(pool)
    const request = parseVolume(xml)
    if (pool.volumes.has(request.name)) throw fail.volumeExists(request.name)
    const path = `${pool.targetPath}/${request.name}`
    if (request.backingPath !== undefined && this.byPath(request.backingPath) === undefined) {
      throw fail.system(
        `inaccessible backing store volume ${request.backingPath}: No such file or directory`,
        errno.ENOENT,
        ErrorDomain.STORAGE,
      )
    }
    const isQcow2 = request.format === 'qcow2'
    const reserved = isQcow2 ? qcow2Allocation : request.allocation
    if (!isQcow2 && reserved > available(pool)) {
      throw fail.system(
        `cannot allocate ${reserved} bytes in file '${path}': No space left on device`,
        errno.ENOSPC,
        ErrorDomain.STORAGE,
      )
    }
    const content = new VolumeContent(isQcow2 ? qcow2FileBytes : request.capacity, this.#keepBytes)
    if (isQcow2) content.write(0, qcow2Header(request))
    const volume: StubVolume = {
      pool: pool.name,
      name: request.name,
      path,
      format: request.format,
      content,
      reserved,
      modifiedAt: this.#clock.now(),
    }
    pool.volumes.set(volume.name, volume)
    return volume
  }

  deleteVolume(volume: StubVolume): void {
    this.byName(volume.pool).volumes.delete(volume.name)
  }

  /** Writes as an upload does. Returns how much found room before the pool was full. */
  write(volume: StubVolume, offset: number, data: Uint8Array): number {
    const pool = this.byName(volume.pool)
    const room = Math.max(0, available(pool) + Math.max(0, volume.reserved - volume.content.allocation))
    const fits = data.subarray(0, Math.min(data.length, room))
    volume.content.write(offset, fits)
    volume.modifiedAt = this.#clock.now()
    return fits.length
  }

  resize(volume: StubVolume, capacity: number, mayShrink: boolean): void {
    const before = volumeCapacity(volume)
    if (capacity < before && !mayShrink) {
      throw fail.invalidStorageArg(
        "Can't shrink capacity below current capacity unless shrink flag explicitly specified",
      )
    }
    const header = volume.format === 'qcow2' ? readQcow2(volume.content) : undefined
    if (header === undefined) volume.content.length = capacity
    else volume.content.write(0, qcow2Header({ ...header, capacity }))
    volume.modifiedAt = this.#clock.now()
  }
}

export function allocation(volume: StubVolume): number {
  return Math.max(volume.reserved, volume.content.allocation)
}

/** Bytes a guest would see. A raw volume with qcow2 content counts as raw until the pool was refreshed. */
export function volumeCapacity(volume: StubVolume): number {
  const header = volume.format === 'qcow2' ? readQcow2(volume.content) : undefined
  return header?.capacity ?? volume.content.length
}

export function poolAllocation(pool: StubPool): number {
  let bytes = 0
  for (const volume of pool.volumes.values()) bytes += allocation(volume)
  return bytes
}

export function available(pool: StubPool): number {
  return Math.max(0, pool.capacity - poolAllocation(pool))
}

function refresh(pool: StubPool): void {
  for (const volume of pool.volumes.values()) volume.format = probeFormat(volume.content)
}

function requireActive(pool: StubPool): StubPool {
  if (!pool.active) throw fail.storageInvalid(`storage pool '${pool.name}' is not active`)
  return pool
}

interface VolumeRequest {
  readonly name: string
  readonly capacity: number
  readonly allocation: number
  readonly format: 'raw' | 'qcow2'
  readonly backingPath?: string
  readonly backingFormat?: string
}

function parseVolume(xml: string): VolumeRequest {
  const root = parseXmlTree(xml)
  if (isProblem(root)) throw fail.storageXml(root.message)
  if (root.name !== 'volume') throw fail.storageXml('unknown root element for storage vol')
  const name = textOf(element(root, 'name')) ?? ''
  if (name === '') throw fail.storageXml('missing volume name element')
  if (name.includes('/')) throw fail.storageInvalid(`volume name '${name}' cannot contain '/'`)
  const format = element(root, 'target', 'format')?.attributes.get('type') ?? 'raw'
  if (format !== 'raw' && format !== 'qcow2') {
    throw fail.unsupportedConfig(`unknown volume format type ${format}`, ErrorDomain.STORAGE)
  }
  const backing = element(root, 'backingStore')
  const backingPath = textOf(element(backing, 'path'))
  const backingFormat = element(backing, 'format')?.attributes.get('type') ?? 'raw'
  const capacityElement = element(root, 'capacity')
  if (capacityElement === undefined && backingPath === undefined) throw fail.storageXml('missing capacity element')
  const capacity = sizeOf(capacityElement) ?? 0
  const base = { name, capacity, format, allocation: sizeOf(element(root, 'allocation')) ?? capacity } as const
  return backingPath === undefined ? base : { ...base, backingPath, backingFormat }
}

const units: Readonly<Record<string, number>> = {
  B: 1,
  bytes: 1,
  KB: 1e3,
  K: 2 ** 10,
  KiB: 2 ** 10,
  MB: 1e6,
  M: 2 ** 20,
  MiB: 2 ** 20,
  GB: 1e9,
  G: 2 ** 30,
  GiB: 2 ** 30,
}

/** Bytes of a size element; bytes are the default unit of volumes. */
function sizeOf(size: XmlNode | undefined): number | undefined {
  const text = textOf(size)
  if (size === undefined || text === undefined) return undefined
  const unit = units[size.attributes.get('unit') ?? 'bytes']
  const value = Number(text)
  if (unit === undefined || !Number.isFinite(value) || text === '') throw fail.storageXml('malformed capacity element')
  return value * unit
}

// The two volumes of an instance: the seed, which comes first and says whose they are, and the overlay on the base image.
import type { Owner } from '../contract.ts'
import { ProviderError } from '../errors.ts'
import { descriptorOffset, sectorBytes } from '../nocloud/iso9660.ts'
import { decodeSeedOwner, type SeedOwner } from '../nocloud/owner.ts'
import type { HostApi, MutationGuard, StoragePool, StorageVol } from './host-api.ts'
import type { BaseImage } from './image-cache.ts'
import { backingPath, overlayName, overlayVolumeXml, rawVolumeXml, seedName } from './volume-xml.ts'

export interface VolumeScope {
  readonly api: HostApi
  readonly pool: StoragePool
  /** Name of the host in the config. */
  readonly host: string
  readonly instanceName: string
  readonly guard: MutationGuard
  /** A domain of ours uses them: a seed that does not say whose it is is ours then. */
  readonly domainIsOurs?: true
  /** What stands in the pool, by name, as far as this instance's volumes go; absent: every volume is looked up. */
  readonly volumes?: Map<string, StorageVol>
  /** Whether a volume's key is its path, as in every pool of files; absent: paths are asked for. */
  readonly keysArePaths?: boolean
}

/** Whose a seed is; undefined for one that does not say: cut off while it was written, or made by something else. */
export async function readSeedOwner(
  api: HostApi,
  seed: StorageVol,
  signal: AbortSignal,
): Promise<SeedOwner | undefined> {
  return decodeSeedOwner(await api.readVolume(seed, descriptorOffset, sectorBytes, { signal }))
}

/**
 * Writes the seed, in place where one of ours is already, so that an overlay never stands without its seed. Only while no
 * domain uses the volumes. What no seed of ours vouches for is removed first, overlay before seed: it may be anybody's.
 * @returns absolute path on the host
 * @throws ProviderError permanent (environment) when the volumes belong to somebody who lives
 */
export async function writeSeed(
  scope: VolumeScope,
  content: Buffer,
  owner: Owner,
  isLive: (uid: string) => Promise<boolean>,
): Promise<string> {
  const { api, pool, guard, instanceName } = scope
  const existing = await find(scope, seedName(instanceName))
  if (existing !== undefined && (await isOurs(scope, existing, owner, isLive))) {
    await rewrite(scope, existing, content)
    return await pathOf(scope, existing)
  }
  await removeVolumes(scope)
  const xml = rawVolumeXml({ name: seedName(instanceName), capacityBytes: content.byteLength })
  const seed = await api.createVolume(pool, xml, guard)
  await api.writeVolume(seed, content, guard)
  return await pathOf(scope, seed)
}

/** A volume can be made larger and not smaller than what is allocated, so that the rest of a larger one becomes zeros. */
async function rewrite(scope: VolumeScope, seed: StorageVol, content: Buffer): Promise<void> {
  const { api, guard } = scope
  const capacity = Number(await api.volumeCapacity(seed, { signal: guard.signal }))
  if (capacity < content.byteLength) await api.growVolume(seed, content.byteLength, guard)
  const rest = Buffer.alloc(Math.max(0, capacity - content.byteLength))
  await api.writeVolume(seed, Buffer.concat([content, rest]), guard)
}

async function isOurs(
  scope: VolumeScope,
  seed: StorageVol,
  owner: Owner,
  isLive: (uid: string) => Promise<boolean>,
): Promise<boolean> {
  const found = await readSeedOwner(scope.api, seed, scope.guard.signal)
  if (found === undefined) return scope.domainIsOurs === true
  if (found.installation === owner.installation && found.uid === owner.uid) return true
  // A Proxy that is gone left it under the name that is now ours.
  if (found.installation === owner.installation && !(await isLive(found.uid))) return false
  throw ProviderError.permanent(
    'environment',
    `host ${scope.host}: volume ${seed.name} belongs to UID ${found.uid} of installation ${found.installation}, not to UID ` +
      `${owner.uid}; remove it on the host if nobody needs it (virsh vol-delete --pool ${scope.pool.name} ${seed.name})`,
    { code: 'OwnedByAnother', target: scope.host },
  )
}

/**
 * The overlay on that base, made when it is missing or on another one. Only while no domain uses it.
 * @param capacityBytes at least; a base with a larger disk has its own size, for a smaller overlay would cut it off
 * @returns absolute path on the host
 */
export async function ensureOverlay(scope: VolumeScope, base: BaseImage, capacityBytes: number): Promise<string> {
  const { api, pool, guard, instanceName } = scope
  const options = { signal: guard.signal }
  const name = overlayName(instanceName)
  const existing = await find(scope, name)
  if (existing !== undefined) {
    if (backingPath(await api.volumeXml(existing, options)) === base.path) return await pathOf(scope, existing)
    await api.deleteVolume(existing, guard)
  }
  const xml = overlayVolumeXml({
    name,
    capacityBytes: Math.max(capacityBytes, base.virtualBytes),
    backingPath: base.path,
    backingFormat: base.format,
  })
  return await pathOf(scope, await api.createVolume(pool, xml, guard))
}

async function removeVolume(scope: VolumeScope, name: string): Promise<void> {
  const volume = await find(scope, name)
  if (volume === undefined) return
  await scope.api.deleteVolume(volume, scope.guard)
  scope.volumes?.delete(name)
}

async function find(scope: VolumeScope, name: string): Promise<StorageVol | undefined> {
  const { api, pool, guard, volumes } = scope
  return volumes === undefined ? await api.findVolume(pool, name, { signal: guard.signal }) : volumes.get(name)
}

async function pathOf({ api, guard, keysArePaths }: VolumeScope, volume: StorageVol): Promise<string> {
  return keysArePaths === true ? volume.key : await api.volumePath(volume, { signal: guard.signal })
}

/** Overlay before seed: the seed vouches for the overlay to the last. Idempotent. */
export async function removeVolumes(scope: VolumeScope): Promise<void> {
  await removeVolume(scope, overlayName(scope.instanceName))
  await removeVolume(scope, seedName(scope.instanceName))
}

// Volumes that an instance left behind: under our names, vouched for by a seed of ours, and no domain. What is not vouched for is nobody's to take.
import type { CallContext, Leftover, MutationContext } from '../contract.ts'
import { ProviderError } from '../errors.ts'
import type { SeedOwner } from '../nocloud/owner.ts'
import type { LibvirtHost } from './config.ts'
import { domainUuid, parseDomainXml } from './domain-xml.ts'
import { nameKey, requireHost, sharedLine, type Engine } from './engine.ts'
import { classify, hasCode } from './errors.ts'
import type { Domain, HostApi, StoragePool, StorageVol } from './host-api.ts'
import { runningPool } from './pool-space.ts'
import { modifiedMs, seedName } from './volume-xml.ts'
import { readSeedOwner, removeVolumes } from './volumes.ts'
import { ErrorCode } from '../../wire/libvirt/errors.ts'

/** `proxy-` and 20 hex digits (names.ts), and what stands behind it. */
const volumePattern = /^(proxy-[0-9a-f]{20})(?:\.qcow2|-seed\.iso)$/

/** One host that cannot be asked makes the whole answer an error, as that of a listing. */
export async function findLeftovers(engine: Engine, context: CallContext): Promise<readonly Leftover[]> {
  const perHost = await Promise.all(
    engine.config.hosts.map(async (host) => {
      try {
        return await leftoversOn(engine, host, context.signal)
      } catch (thrown) {
        throw classify(thrown, { target: host.name, signal: context.signal })
      }
    }),
  )
  return perHost.flat()
}

/**
 * Judged anew under the lock of its name, so that a create that began meanwhile keeps what it made.
 * @throws ProviderError transient when it is in use (again) or its Proxy lives
 */
export async function removeLeftover(engine: Engine, leftover: Leftover, context: MutationContext): Promise<void> {
  const host = requireHost(engine, leftover.target)
  const { instanceName } = leftover
  try {
    await engine.names.run(
      nameKey(host, instanceName),
      () => removeLocked(engine, host, leftover, context),
      context.signal,
    )
  } catch (thrown) {
    throw classify(thrown, { target: host.name, signal: context.signal })
  }
}

async function removeLocked(
  engine: Engine,
  host: LibvirtHost,
  { instanceName, uid, volumes }: Leftover,
  context: MutationContext,
): Promise<void> {
  const api = await sharedLine(engine, host, context.signal)
  const pool = await openPool(api, host, context.signal)
  const inUse = (why: string) =>
    ProviderError.transient(`host ${host.name}: the volumes of ${instanceName} are no leftover: ${why}`, {
      code: 'LeftoverInUse',
      target: host.name,
    })
  const present = (await namedVolumes(api, pool, context.signal)).get(instanceName)
  if (present === undefined) return
  const unused = await withoutDomain(api, new Map([[instanceName, present]]), context.signal)
  if (unused.size === 0) throw inUse('a domain uses them')
  const owner = await vouchedBy(engine, api, present, instanceName, context.signal)
  if (owner?.uid !== uid) throw inUse(`their seed does not name UID ${uid} any more`)
  if (await context.isLive(uid)) throw inUse(`the Proxy with UID ${uid} exists`)
  await removeVolumes({ api, pool, host: host.name, instanceName, guard: context })
  engine.log.info('leftover removed', { host: host.name, name: instanceName, uid, volumes })
}

async function leftoversOn(engine: Engine, host: LibvirtHost, signal: AbortSignal): Promise<readonly Leftover[]> {
  const api = await sharedLine(engine, host, signal)
  const pool = await openPool(api, host, signal)
  const candidates = await withoutDomain(api, await namedVolumes(api, pool, signal), signal)
  const found = await Promise.all(
    [...candidates].map(async ([instanceName, volumes]): Promise<readonly Leftover[]> => {
      try {
        const owner = await vouchedBy(engine, api, volumes, instanceName, signal)
        if (owner === undefined) return []
        const ageMs = await ageOf(engine, api, volumes, signal)
        return [{ target: host.name, instanceName, volumes: volumes.map(({ name }) => name), uid: owner.uid, ageMs }]
      } catch (thrown) {
        // Somebody took it away meanwhile: then it is none.
        if (hasCode(thrown, ErrorCode.NO_STORAGE_VOL)) return []
        throw thrown
      }
    }),
  )
  return found.flat()
}

async function openPool(api: HostApi, host: LibvirtHost, signal: AbortSignal): Promise<StoragePool> {
  const pool = await api.findPool(host.pool, { signal })
  await runningPool({ api, pool, host: host.name, signal })
  return pool
}

type VolumesByInstance = ReadonlyMap<string, readonly StorageVol[]>

async function namedVolumes(api: HostApi, pool: StoragePool, signal: AbortSignal): Promise<VolumesByInstance> {
  const named = new Map<string, StorageVol[]>()
  for (const volume of await api.listVolumes(pool, { signal })) {
    const [, name] = volumePattern.exec(volume.name) ?? []
    if (name !== undefined) named.set(name, [...(named.get(name) ?? []), volume])
  }
  return named
}

/** Those that no domain has: neither one of that name, nor one that was renamed, nor any other with a disk on them. */
async function withoutDomain(api: HostApi, named: VolumesByInstance, signal: AbortSignal): Promise<VolumesByInstance> {
  if (named.size === 0) return named
  const domains = await api.listDomains({ signal })
  const isMissing = (name: string) => {
    const uuid = domainUuid(name)
    return !domains.some((domain) => domain.name === name || domain.uuid === uuid)
  }
  const missing = [...named].filter(([name]) => isMissing(name))
  if (missing.length === 0) return new Map()
  const files = new Set((await Promise.all(domains.map((domain) => filesOf(api, domain, signal)))).flat())
  const paths = await Promise.all(
    missing.map(async ([name, volumes]) => ({
      name,
      volumes,
      paths: await Promise.all(volumes.map((volume) => api.volumePath(volume, { signal }))),
    })),
  )
  return new Map(
    paths.filter((group) => !group.paths.some((path) => files.has(path))).map(({ name, volumes }) => [name, volumes]),
  )
}

async function filesOf(api: HostApi, domain: Domain, signal: AbortSignal): Promise<readonly string[]> {
  try {
    const description = parseDomainXml(await api.domainXml(domain, { signal }))
    if (description === undefined) throw new Error(`the document of domain ${domain.name} cannot be read`)
    return description.files
  } catch (thrown) {
    if (hasCode(thrown, ErrorCode.NO_DOMAIN)) return []
    throw thrown
  }
}

/** Undefined without a seed, and with one that names nobody or another installation. */
async function vouchedBy(
  engine: Engine,
  api: HostApi,
  volumes: readonly StorageVol[],
  instanceName: string,
  signal: AbortSignal,
): Promise<SeedOwner | undefined> {
  const seed = volumes.find(({ name }) => name === seedName(instanceName))
  const owner = seed === undefined ? undefined : await readSeedOwner(api, seed, signal)
  return owner?.installation === engine.installation ? owner : undefined
}

/** Since the last of them was written. Clocks may differ: a file of the future has no age. */
async function ageOf(
  engine: Engine,
  api: HostApi,
  volumes: readonly StorageVol[],
  signal: AbortSignal,
): Promise<number> {
  const written = await Promise.all(
    volumes.map(async (volume) => modifiedMs(await api.volumeXml(volume, { signal })) ?? engine.clock.now()),
  )
  return Math.max(0, engine.clock.now() - Math.max(...written))
}

// Removes what is left of an instance on every target that was ever recorded for it, and nothing that is not its own.
import type { DeleteRequest, DeleteResult, MutationContext } from '../contract.ts'
import { ProviderError } from '../errors.ts'
import { formatProviderID, parseProviderID } from '../names.ts'
import type { LibvirtHost } from './config.ts'
import { domainUuid } from './domain-xml.ts'
import { findHost, nameKey, sharedLine, type Engine } from './engine.ts'
import { classify } from './errors.ts'
import type { HostApi, StoragePool } from './host-api.ts'
import { findInstance, lostMarkError, type FoundInstance } from './instance.ts'
import { ownership } from './mark.ts'
import { runningPool } from './pool-space.ts'
import { removeDomain } from './remove.ts'
import { seedName } from './volume-xml.ts'
import { readSeedOwner, removeVolumes } from './volumes.ts'

/** All targets are tried, whatever becomes of the others; then the first failure is thrown. */
export async function deleteInstance(
  engine: Engine,
  request: DeleteRequest,
  context: MutationContext,
): Promise<DeleteResult> {
  const abandoned: { target: string; instanceName: string }[] = []
  const work: Promise<void>[] = []
  for (const [target, names] of targetsOf(engine, request)) {
    const host = findHost(engine, target)
    for (const name of names) {
      if (host === undefined) {
        engine.log.warn('host is not configured any more: what is left on it stays there', { host: target, name })
        engine.known.unstrand(target, formatProviderID({ host: target, domain: name }))
        abandoned.push({ target, instanceName: name })
      } else work.push(deleteOn(engine, request, context, host, name))
    }
  }
  const results = await Promise.allSettled(work)
  const failed = results.find((result) => result.status === 'rejected')
  if (failed !== undefined) throw failed.reason
  return { abandoned }
}

/** Names to look for, by target: the name it was created under, and on its own target the name it has now. */
function targetsOf(engine: Engine, request: DeleteRequest): ReadonlyMap<string, ReadonlySet<string>> {
  const targets = new Map<string, Set<string>>()
  const add = (target: string, name: string) => {
    const names = targets.get(target) ?? new Set()
    targets.set(target, names.add(name))
  }
  for (const intent of request.intents) add(intent.target, request.instanceName)
  if (request.providerID === undefined) return targets
  const location = parseProviderID(request.providerID)
  if (location === undefined) {
    throw ProviderError.permanent(
      'environment',
      `providerID ${JSON.stringify(request.providerID)} is not hosts/<host>/domains/<domain>, so the ${engine.flavour.name} ` +
        `provider cannot tell what to delete; correct status.providerID`,
      { code: 'ProviderIDInvalid' },
    )
  }
  add(location.host, location.domain)
  if (findHost(engine, location.host) !== undefined) add(location.host, request.instanceName)
  return targets
}

async function deleteOn(
  engine: Engine,
  request: DeleteRequest,
  context: MutationContext,
  host: LibvirtHost,
  name: string,
): Promise<void> {
  try {
    await engine.names.run(
      nameKey(host, name),
      () => deleteLocked(engine, request, context, host, name),
      context.signal,
    )
  } catch (thrown) {
    throw classify(thrown, { target: host.name, signal: context.signal })
  }
}

async function deleteLocked(
  engine: Engine,
  request: DeleteRequest,
  context: MutationContext,
  host: LibvirtHost,
  name: string,
): Promise<void> {
  const { signal } = context
  const api = await sharedLine(engine, host, signal)
  const found = await findInstance(engine, api, name, signal)
  if (found !== undefined) {
    if (!isOurs(engine, request, host, name, found)) return
    await removeDomain(api, found.domain, host.name, context)
    engine.known.forget(host.name, found.domain.uuid)
  }
  const pool = await api.findPool(host.pool, { signal })
  await runningPool({ api, pool, host: host.name, signal })
  const scope = { api, pool, host: host.name, instanceName: name, guard: context }
  // With a domain of ours gone its volumes are ours too; without one the seed says whose they are.
  if (found !== undefined || (await mayRemoveVolumes(api, pool, request, name, signal))) await removeVolumes(scope)
  engine.log.debug(`${engine.flavour.subject} domain deleted`, { host: host.name, name, found: found !== undefined })
}

/**
 * Somebody else's domain is left alone together with its volumes. One that was ours for certain, because it has the UUID
 * that only this engine gives or the providerID names it, and lost its mark, is an error: the Proxy would leave it behind.
 */
function isOurs(
  engine: Engine,
  request: DeleteRequest,
  host: LibvirtHost,
  name: string,
  found: FoundInstance,
): boolean {
  const { domain, reading } = found
  const owned = ownership(reading, request.owner)
  if (owned.kind === 'ours') return true
  const recorded = request.providerID !== undefined && parseProviderID(request.providerID)?.domain === name
  const lost = owned.kind === 'unmarked' || owned.kind === 'unreadable'
  if (lost && (recorded || domain.uuid === domainUuid(name))) {
    throw lostMarkError(domain, host.name, reading, engine.flavour.name)
  }
  engine.log.info('domain left alone, because it is not ours', { host: host.name, name: domain.name, why: owned.kind })
  return false
}

/**
 * Volumes under our name without a domain: ours when the seed says so. Without a seed, or with one that says nothing, too:
 * the name is a hash over this installation and this Proxy, and a crash between two steps leaves just that.
 */
async function mayRemoveVolumes(
  api: HostApi,
  pool: StoragePool,
  request: DeleteRequest,
  name: string,
  signal: AbortSignal,
): Promise<boolean> {
  const seed = await api.findVolume(pool, seedName(name), { signal })
  const owner = seed === undefined ? undefined : await readSeedOwner(api, seed, signal)
  if (owner === undefined) return name === request.instanceName
  return owner.installation === request.owner.installation && owner.uid === request.owner.uid
}

// What is there: one instance, the states of all of a host, every instance with our mark. Changes nothing.
import type { CallContext, Instance, InstanceState, ListedInstance, Mark } from '../contract.ts'
import { ProviderError } from '../errors.ts'
import { formatProviderID, parseProviderID } from '../names.ts'
import type { LibvirtHost } from './config.ts'
import { parseDomainXml } from './domain-xml.ts'
import { findHost, requireHost, sharedLine, type Engine } from './engine.ts'
import { classify } from './errors.ts'
import { findAddress } from './find-address.ts'
import type { Domain, HostApi } from './host-api.ts'
import { findInstance, instanceState, lostMarkError, readInstance } from './instance.ts'

export async function getInstance(engine: Engine, providerID: string, context: CallContext): Promise<Instance> {
  const location = parseProviderID(providerID)
  if (location === undefined) {
    throw ProviderError.permanent(
      'environment',
      `providerID ${JSON.stringify(providerID)} is not hosts/<host>/domains/<domain>`,
      {
        code: 'ProviderIDInvalid',
      },
    )
  }
  if (findHost(engine, location.host) === undefined) engine.known.strand(location.host, providerID)
  const host = requireHost(engine, location.host)
  try {
    return await read(engine, host, location.domain, providerID, context.signal)
  } catch (thrown) {
    throw classify(thrown, { target: host.name, signal: context.signal })
  }
}

async function read(
  engine: Engine,
  host: LibvirtHost,
  name: string,
  providerID: string,
  signal: AbortSignal,
): Promise<Instance> {
  const api = await sharedLine(engine, host, signal)
  const found = await findInstance(engine, api, name, signal)
  if (found === undefined) {
    engine.log.debug(`${engine.flavour.subject} domain not found`, { host: host.name, name })
    throw ProviderError.notFound(`host ${host.name}: there is no domain ${name}`, {
      code: 'DomainNotFound',
      target: host.name,
    })
  }
  const { domain, reading } = found
  if (reading.kind !== 'marked') throw lostMarkError(domain, host.name, reading, engine.flavour.name)
  const { mark } = reading
  if (mark.installation !== undefined && mark.installation !== engine.installation) {
    throw ProviderError.permanent(
      'environment',
      `host ${host.name}: domain ${domain.name} belongs to installation ${mark.installation}, not to ${engine.installation}`,
      { code: 'OwnedByAnother', target: host.name },
    )
  }
  const state = instanceState(await api.domainStatus(domain, { signal }))
  const macs = await knownMacs(engine, host, api, domain, mark, providerID, signal)
  const ip = state === 'running' ? await findAddress(engine, host, api, domain, macs, signal) : undefined
  if (ip !== undefined || state !== 'running') engine.known.addressed(host.name, domain.uuid, ip)
  engine.log.debug(`${engine.flavour.subject} domain fetched`, {
    host: host.name,
    name: domain.name,
    state,
    ip,
    uid: mark.uid,
  })
  const outdated = engine.imageStatus.outdated(host, mark)
  return {
    state,
    ...(ip === undefined ? {} : { ip }),
    ...(mark.uid === undefined ? {} : { uid: mark.uid }),
    ...(mark.specHash === undefined ? {} : { specHash: mark.specHash }),
    ...(outdated === undefined ? {} : { outdated }),
    ...(found.markedAs === engine.flavour ? {} : { unadopted: true }),
  }
}

/** MACs of the domain's NICs, asked for once in its life. */
async function knownMacs(
  engine: Engine,
  host: LibvirtHost,
  api: HostApi,
  domain: Domain,
  mark: Mark,
  providerID: string,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const known = engine.known.get(host.name, domain.uuid)
  if (known?.createdAt === mark.createdAt && known?.providerID === providerID) return known.macs
  const macs = parseDomainXml(await api.domainXml(domain, { signal }))?.macs ?? []
  engine.known.set(host.name, domain.uuid, { providerID, createdAt: mark.createdAt, macs })
  return macs
}

/** One call. Only instances that a get has met are in it: the others' marks are not known, so it cannot tell. */
export async function observeHost(
  engine: Engine,
  target: string,
  context: CallContext,
): Promise<ReadonlyMap<string, InstanceState>> {
  const host = requireHost(engine, target)
  try {
    const api = await sharedLine(engine, host, context.signal)
    const states = new Map<string, InstanceState>()
    for (const { domain, status } of await api.allStates({ signal: context.signal })) {
      const known = engine.known.get(host.name, domain.uuid)
      if (known !== undefined) states.set(known.providerID, instanceState(status))
    }
    return states
  } catch (thrown) {
    throw classify(thrown, { target: host.name, signal: context.signal })
  }
}

/** One host that cannot be asked makes the whole list an error: a shorter one would look like instances that are gone. */
export async function listInstances(engine: Engine, context: CallContext): Promise<readonly ListedInstance[]> {
  const perHost = await Promise.all(
    engine.config.hosts.map(async (host) => {
      try {
        return await listHost(engine, host, context.signal)
      } catch (thrown) {
        throw classify(thrown, { target: host.name, signal: context.signal })
      }
    }),
  )
  const all = perHost.flat()
  engine.log.debug(`${engine.flavour.subject} domains listed`, { hosts: perHost.length, managed: all.length })
  return all
}

async function listHost(engine: Engine, host: LibvirtHost, signal: AbortSignal): Promise<readonly ListedInstance[]> {
  const api = await sharedLine(engine, host, signal)
  const states = await api.allStates({ signal })
  const listed = await Promise.all(
    states.map(async ({ domain, status }): Promise<readonly ListedInstance[]> => {
      const found = await readInstance(engine, api, domain, signal)
      if (found === undefined || found.reading.kind === 'unmarked') {
        engine.log.debug('domain skipped', {
          host: host.name,
          name: domain.name,
          why: found === undefined ? 'vanished' : 'unmarked',
        })
        return []
      }
      const instance = {
        providerID: formatProviderID({ host: host.name, domain: domain.name }),
        instanceName: domain.name,
        target: host.name,
        state: instanceState(status),
        ...(found.reading.kind === 'marked' ? { mark: found.reading.mark } : {}),
      }
      engine.log.trace(`${engine.flavour.subject} listed instance`, { host: host.name, name: domain.name, ...instance })
      return [instance]
    }),
  )
  return listed.flat()
}

// What is there: one instance, the states of all of a host, every instance with our mark. Changes nothing.
import { errorMessage } from '../../lib/errors.ts'
import { ErrorCode, LibvirtError } from '../../wire/libvirt/errors.ts'
import type { CallContext, Instance, InstanceState, ListedInstance, Mark } from '../contract.ts'
import { ProviderError } from '../errors.ts'
import { formatProviderID, parseProviderID } from '../names.ts'
import { ownAddress } from './addresses.ts'
import type { LibvirtHost } from './config.ts'
import { parseDomainXml } from './domain-xml.ts'
import { requireHost, sharedLine, type Engine } from './engine.ts'
import { classify, hasCode } from './errors.ts'
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
  const found = await findInstance(api, name, signal)
  if (found === undefined) {
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
  const ip = state === 'running' ? await address(engine, host, api, domain, macs, signal) : undefined
  engine.log.debug(`${engine.flavour.subject} domain fetched`, {
    host: host.name,
    name: domain.name,
    state,
    ip,
    uid: mark.uid,
  })
  return {
    state,
    ...(ip === undefined ? {} : { ip }),
    ...(mark.uid === undefined ? {} : { uid: mark.uid }),
    ...(mark.specHash === undefined ? {} : { specHash: mark.specHash }),
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

/**
 * The agent's word, then the host's ARP table. An agent that is not there yet is what every boot looks like, so it is no
 * error; only when nothing else could be asked either is the call one. Undefined: no address is known yet.
 */
async function address(
  engine: Engine,
  host: LibvirtHost,
  shared: HostApi,
  domain: Domain,
  macs: readonly string[],
  signal: AbortSignal,
): Promise<string | undefined> {
  const agent = await engine.connections.line(host.name, 'agent', signal)
  const fromAgent = await engine.agents.run(
    `${host.name}/${domain.uuid}`,
    () => ask(engine, host, agent, domain, 'agent', macs, signal),
    signal,
  )
  if (fromAgent.kind === 'address') return fromAgent.ip
  const fromArp = await ask(engine, host, shared, domain, 'arp', macs, signal)
  if (fromArp.kind === 'address') return fromArp.ip
  if (fromAgent.kind === 'failed' && fromArp.kind === 'failed') {
    throw ProviderError.transient(
      `host ${host.name}: no source could be asked for the address of ${domain.name}: agent: ` +
        `${errorMessage(fromAgent.error)}; arp: ${errorMessage(fromArp.error)}`,
      { code: 'AddressSourcesFailed', target: host.name, cause: fromAgent.error },
    )
  }
  return undefined
}

type SourceAnswer =
  | { readonly kind: 'address'; readonly ip: string }
  /** It answered, or is not there yet. */
  | { readonly kind: 'none' }
  | { readonly kind: 'failed'; readonly error: unknown }

/** Only the daemon's own refusals are this source's affair; a connection that broke is everybody's. */
async function ask(
  engine: Engine,
  host: LibvirtHost,
  api: HostApi,
  domain: Domain,
  source: 'agent' | 'arp',
  macs: readonly string[],
  signal: AbortSignal,
): Promise<SourceAnswer> {
  try {
    const interfaces = await api.interfaceAddresses(domain, source, { signal })
    const ip = ownAddress(interfaces, macs, source, engine.addresses)
    return ip === undefined ? { kind: 'none' } : { kind: 'address', ip }
  } catch (thrown) {
    if (hasCode(thrown, ErrorCode.NO_DOMAIN) || !(thrown instanceof LibvirtError)) throw thrown
    engine.log.trace('no addresses from source', {
      host: host.name,
      name: domain.name,
      source,
      error: errorMessage(thrown),
    })
    return hasCode(thrown, ...agentAbsent) ? { kind: 'none' } : { kind: 'failed', error: thrown }
  }
}

/** Not connected, frozen, or no agent channel in the domain at all. */
const agentAbsent = [
  ErrorCode.AGENT_UNRESPONSIVE,
  ErrorCode.AGENT_COMMAND_TIMEOUT,
  ErrorCode.AGENT_UNSYNCED,
  ErrorCode.ARGUMENT_UNSUPPORTED,
]

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
      const found = await readInstance(api, domain, signal)
      if (found === undefined || found.reading.kind === 'unmarked') {
        engine.log.debug('domain skipped', {
          host: host.name,
          name: domain.name,
          why: found === undefined ? 'vanished' : 'unmarked',
        })
        return []
      }
      return [
        {
          providerID: formatProviderID({ host: host.name, domain: domain.name }),
          instanceName: domain.name,
          target: host.name,
          state: instanceState(status),
          ...(found.reading.kind === 'marked' ? { mark: found.reading.mark } : {}),
        },
      ]
    }),
  )
  return listed.flat()
}

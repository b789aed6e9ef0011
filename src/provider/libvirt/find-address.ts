// Asks the sources that may know an instance's address, one after the other; which of their answers count is in addresses.ts.
import { errorMessage } from '../../lib/errors.ts'
import { ErrorCode, LibvirtError } from '../../wire/libvirt/errors.ts'
import { ProviderError } from '../errors.ts'
import { ownAddress, type AddressSource } from './addresses.ts'
import type { LibvirtHost } from './config.ts'
import type { Engine } from './engine.ts'
import { hasCode } from './errors.ts'
import type { Domain, HostApi } from './host-api.ts'

interface Question {
  readonly engine: Engine
  readonly host: LibvirtHost
  readonly domain: Domain
  /** Of its NICs, lower case. */
  readonly macs: readonly string[]
  readonly signal: AbortSignal
}

/**
 * The agent's word, then the leases where libvirt itself gives them, then the host's ARP table. An agent that is not there yet
 * is what every boot looks like, so it is no error; only when nothing else could be asked either is the call one. Undefined: no
 * address is known yet.
 */
export async function findAddress(
  engine: Engine,
  host: LibvirtHost,
  shared: HostApi,
  domain: Domain,
  macs: readonly string[],
  signal: AbortSignal,
): Promise<string | undefined> {
  const question = { engine, host, domain, macs, signal }
  const failures: { readonly source: AddressSource; readonly error: unknown }[] = []
  const sources: readonly AddressSource[] = host.nic.kind === 'network' ? ['agent', 'lease', 'arp'] : ['agent', 'arp']
  for (const source of sources) {
    const answer = source === 'agent' ? await askAgent(question) : await ask(question, shared, source)
    if (answer.kind === 'address') return answer.ip
    if (answer.kind === 'failed') failures.push({ source, error: answer.error })
  }
  if (failures.length < sources.length) return undefined
  const told = failures.map(({ source, error }) => `${source}: ${errorMessage(error)}`)
  throw ProviderError.transient(
    `host ${host.name}: no source could be asked for the address of ${domain.name}: ${told.join('; ')}`,
    { code: 'AddressSourcesFailed', target: host.name, cause: failures[0]?.error },
  )
}

type SourceAnswer =
  | { readonly kind: 'address'; readonly ip: string }
  /** It answered, or is not there yet. */
  | { readonly kind: 'none' }
  | { readonly kind: 'failed'; readonly error: unknown }

/** One call at a time per domain, on a connection that nothing else waits on: a frozen agent holds one for seconds. */
async function askAgent(question: Question): Promise<SourceAnswer> {
  const { engine, host, domain, signal } = question
  const line = await engine.connections.line(host.name, 'agent', signal)
  return await engine.agents.run(`${host.name}/${domain.uuid}`, () => ask(question, line, 'agent'), signal)
}

/** Only the daemon's own refusals are this source's affair; a connection that broke is everybody's. */
async function ask(question: Question, api: HostApi, source: AddressSource): Promise<SourceAnswer> {
  const { engine, host, domain, macs, signal } = question
  const about = { host: host.name, name: domain.name, source }
  try {
    const ip = ownAddress(await api.interfaceAddresses(domain, source, { signal }), macs, source, engine.addresses)
    if (ip === undefined) return { kind: 'none' }
    // A row of the past may be another instance's address by now.
    if (source !== 'arp' || !engine.known.isTaken(host.name, domain.uuid, ip)) return { kind: 'address', ip }
    engine.log.debug('address refused, because another instance has it', { ...about, ip })
    return { kind: 'none' }
  } catch (thrown) {
    if (hasCode(thrown, ErrorCode.NO_DOMAIN) || !(thrown instanceof LibvirtError)) throw thrown
    engine.log.trace('no addresses from source', { ...about, error: errorMessage(thrown) })
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

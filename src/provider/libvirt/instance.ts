// Finds an instance's domain on a host, says whose it is and what state it is in. Reads only.
import { ErrorCode } from '../../wire/libvirt/errors.ts'
import type { InstanceState } from '../contract.ts'
import { ProviderError } from '../errors.ts'
import { domainUuid } from './domain-xml.ts'
import { hasCode } from './errors.ts'
import type { Flavour } from './flavour.ts'
import { domainState, type Domain, type DomainStatus, type HostApi } from './host-api.ts'
import { readMark, type MarkReading } from './mark.ts'

/** Whose marks count: those of our own type, and without one those of types that we take over from. */
export interface MarkScope {
  readonly flavour: Flavour
  readonly adoptFrom: readonly Flavour[]
}

export interface FoundInstance {
  readonly domain: Domain
  readonly reading: MarkReading
  /** Type whose mark was read; our own when there is none. */
  readonly markedAs: Flavour
}

/**
 * By the UUID that a domain of that name is made with, so that a renamed one is found, then by the name itself.
 * @param name as it stands in the providerID, or the name to create under
 */
export async function findInstance(
  scope: MarkScope,
  api: HostApi,
  name: string,
  signal: AbortSignal,
): Promise<FoundInstance | undefined> {
  const domain =
    (await api.findDomain({ uuid: domainUuid(name) }, { signal })) ?? (await api.findDomain({ name }, { signal }))
  return domain === undefined ? undefined : await readInstance(scope, api, domain, signal)
}

/** The same by one listing: for a name that most likely is not there, which costs two look-ups otherwise. */
export async function findNewInstance(
  scope: MarkScope,
  api: HostApi,
  name: string,
  signal: AbortSignal,
): Promise<FoundInstance | undefined> {
  const domains = await api.listDomains({ signal })
  const uuid = domainUuid(name)
  const domain =
    domains.find((candidate) => candidate.uuid === uuid) ?? domains.find((candidate) => candidate.name === name)
  return domain === undefined ? undefined : await readInstance(scope, api, domain, signal)
}

/** Undefined when the domain vanished meanwhile. */
export async function readInstance(
  scope: MarkScope,
  api: HostApi,
  domain: Domain,
  signal: AbortSignal,
): Promise<FoundInstance | undefined> {
  try {
    for (const markedAs of [scope.flavour, ...scope.adoptFrom]) {
      const reading = readMark(await api.metadata(domain, markedAs.markNamespace, { signal }))
      if (reading.kind !== 'unmarked') return { domain, reading, markedAs }
    }
    return { domain, reading: { kind: 'unmarked' }, markedAs: scope.flavour }
  } catch (thrown) {
    if (hasCode(thrown, ErrorCode.NO_DOMAIN)) return undefined
    throw thrown
  }
}

/** libvirt-domain.h: VIR_DOMAIN_PAUSED_STARTING_UP. */
const pausedStartingUp = 11

export function instanceState(status: DomainStatus): InstanceState {
  switch (status.state) {
    case domainState.running:
    case domainState.blocked:
    case domainState.shutdown:
      // On its way off, too: until it is off there is nothing to repair.
      return 'running'
    case domainState.paused:
      return status.reason === pausedStartingUp ? 'provisioning' : 'paused'
    case domainState.pmSuspended:
      return 'paused'
    case domainState.shutoff:
    case domainState.crashed:
      return 'stopped'
    default:
      return 'provisioning'
  }
}

/** libvirt-domain.h: virDomainPausedReason. */
const pausedReasons = [
  'unknown reason',
  'by a user',
  'migration',
  'save',
  'dump',
  'I/O error',
  'watchdog',
  'from a snapshot',
  'shutting down',
  'snapshot',
  'crashed',
  'starting up',
  'post-copy migration',
  'post-copy migration failed',
  'API error',
] as const

/** `DomainPaused (I/O error)`, `DomainPMSuspended` */
export function pausedWords(status: DomainStatus): string {
  if (status.state === domainState.pmSuspended) return 'DomainPMSuspended'
  return `DomainPaused (${pausedReasons[status.reason] ?? `reason ${status.reason}`})`
}

export function pausedError(domain: Domain, host: string, status: DomainStatus): ProviderError {
  return ProviderError.permanent(
    'environment',
    `host ${host}: domain ${domain.name} is ${pausedWords(status)} and cannot be started by the operator; ` +
      `resume or destroy it on the host (virsh resume ${domain.name})`,
    { code: 'InstancePaused', target: host },
  )
}

export function lostMarkError(domain: Domain, host: string, reading: MarkReading, flavour: string): ProviderError {
  const what =
    reading.kind === 'unreadable'
      ? `carries a ${flavour} mark that cannot be read`
      : `carries no ${flavour} mark; it was not created by this provider, or lost its mark`
  return ProviderError.permanent(
    'environment',
    `host ${host}: domain ${domain.name} ${what}. Nothing is done to it: restore its <metadata>, or rename or remove the domain on the host`,
    { code: reading.kind === 'unreadable' ? 'MarkUnreadable' : 'MarkMissing', target: host },
  )
}

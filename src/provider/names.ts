// Names an instance is created under and found by; no hypervisor is asked here.
import { createHash } from 'node:crypto'

export interface NameParts {
  /** Id of this installation, a DNS label. */
  readonly installation: string
  readonly namespace: string
  /** metadata.name of the Proxy. */
  readonly name: string
  /** Value of the `release` annotation: the instance under the plain name was let go of, so another name is needed. */
  readonly release?: string
}

const digits = 20

/** `proxy-` and 20 hex digits, 26 characters: a DNS label that is the same on every attempt for the same Proxy. */
export function instanceName(parts: NameParts): string {
  const path = [parts.installation, parts.namespace, parts.name]
  if (parts.release !== undefined) path.push(parts.release)
  return `proxy-${createHash('sha256').update(path.join('/')).digest('hex').slice(0, digits)}`
}

/** Where an instance on a libvirt host is: the host's name in the config and the domain's actual name. */
export interface DomainLocation {
  readonly host: string
  readonly domain: string
}

const providerIDPattern = /^hosts\/([A-Za-z0-9._-]+)\/domains\/([^/\s]+)$/

/** `hosts/<host>/domains/<domain>` */
export function formatProviderID(location: DomainLocation): string {
  return `hosts/${location.host}/domains/${location.domain}`
}

/** Inverse of {@link formatProviderID}; undefined for anything else. */
export function parseProviderID(providerID: string): DomainLocation | undefined {
  const [, host, domain] = providerIDPattern.exec(providerID) ?? []
  return host === undefined || domain === undefined ? undefined : { host, domain }
}

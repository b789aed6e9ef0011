// Decides what a create does about a domain that is there already: keep it, replace it, or stay away; and makes a mark taken over the only one.
import { exhaustive } from '../../lib/exhaustive.ts'
import type { CreateRequest, Mark } from '../contract.ts'
import { ProviderError } from '../errors.ts'
import type { Flavour } from './flavour.ts'
import type { Domain, HostApi, MutationGuard } from './host-api.ts'
import { lostMarkError, type FoundInstance, type MarkScope } from './instance.ts'
import { ownership } from './mark.ts'

export type Adoption =
  /** `mark` is what it must carry from now on, where that differs. */
  | { readonly kind: 'keep'; readonly mark?: Mark }
  /** Ours, made from another spec. */
  | { readonly kind: 'replace' }

export interface AdoptionScope {
  /** Name of the host in the config. */
  readonly host: string
  readonly flavour: Flavour
  readonly request: CreateRequest
  isLive(uid: string): Promise<boolean>
}

/** @throws ProviderError when the domain is not ours to touch: permanent, or transient while an orphan waits to be collected */
export async function judgeExisting(scope: AdoptionScope, found: FoundInstance): Promise<Adoption> {
  const { request, host, flavour } = scope
  const { domain } = found
  const owned = ownership(found.reading, request.owner)
  const refuse = (code: string, message: string) =>
    ProviderError.permanent('environment', `host ${host}: domain ${domain.name} ${message}`, { code, target: host })
  switch (owned.kind) {
    case 'ours': {
      const mark = found.reading.kind === 'marked' ? found.reading.mark : {}
      if (mark.specHash !== undefined && mark.specHash !== request.specHash) return { kind: 'replace' }
      if (mark.specHash === undefined || found.markedAs !== flavour)
        return { kind: 'keep', mark: completed(mark, request) }
      return { kind: 'keep' }
    }
    case 'unowned': {
      const { mark } = owned
      if (mark.specHash !== undefined && mark.specHash !== request.specHash) {
        throw refuse(
          'RetainedInstance',
          'is retained and was made from another spec; give the Proxy the spec it was made from, rename the Proxy, or remove the domain on the host',
        )
      }
      return { kind: 'keep', mark: completed(mark, request) }
    }
    case 'otherProxy': {
      const whose = `belongs to the Proxy with UID ${owned.uid}, not to UID ${request.owner.uid}`
      if (await scope.isLive(owned.uid)) throw refuse('OwnedByAnother', `${whose}; rename one of the two Proxies`)
      throw ProviderError.transient(
        `host ${host}: domain ${domain.name} ${whose}; that Proxy is gone, and its domain will be collected`,
        { code: 'OrphanInTheWay', target: host },
      )
    }
    case 'unknownOwner':
      throw refuse(
        'OwnedByAnother',
        `belongs to UID ${owned.uid} of an unknown installation, not to UID ${request.owner.uid}; remove or rename it on the host`,
      )
    case 'otherInstallation':
      throw refuse('OwnedByAnother', `belongs to installation ${owned.installation}; remove or rename it on the host`)
    case 'unmarked':
    case 'unreadable':
      throw lostMarkError(domain, host, found.reading, flavour.name)
    default:
      return exhaustive(owned)
  }
}

function completed(mark: Mark, request: CreateRequest): Mark {
  return { ...mark, ...request.owner, specHash: request.specHash }
}

/** The marks of types that were taken over from, once ours is there; also those that a crash left after it. */
export async function removeOldMarks(
  scope: MarkScope,
  api: HostApi,
  domain: Domain,
  live: boolean,
  guard: MutationGuard,
): Promise<void> {
  for (const { markNamespace } of scope.adoptFrom) {
    if ((await api.metadata(domain, markNamespace, { signal: guard.signal })) === undefined) continue
    await api.removeMetadata(domain, markNamespace, live, guard)
  }
}

// From entries of the providers config to decorated providers: the one place that knows every type there is.
import type { ProviderEntry, ProvidersConfig } from './config/providers-config.ts'
import type { Random } from './lib/backoff.ts'
import type { Clock } from './lib/clock.ts'
import { exhaustive } from './lib/exhaustive.ts'
import type { Logger } from './observe/logger.ts'
import type { Metrics } from './observe/metrics.ts'
import type { ConfiguredProvider, Provider, ProviderSet } from './provider/contract.ts'
import { decorateProvider } from './provider/decorate.ts'
import type { AddressPolicy } from './provider/libvirt/addresses.ts'
import { createImageSharing } from './provider/libvirt/image-sharing.ts'
import { createKvm2Provider, createKvmProvider, type LibvirtDeps } from './provider/libvirt/provider.ts'

export interface ProviderParts {
  readonly clock: Clock
  readonly random: Random
  readonly log: Logger
  readonly metrics: Metrics
  /** Id of this installation, a DNS label. */
  readonly installation: string
  /** Which of a guest's addresses count; the default takes no loopback and no link-local ones. */
  readonly addressPolicy?: AddressPolicy
}

export function buildProviders(config: ProvidersConfig, parts: ProviderParts): ProviderSet {
  // two entries may name one host: what one of them fetches there, the other waits for
  const imageSharing = createImageSharing(parts.clock)
  const configured = new Map<string, ConfiguredProvider>(
    config.providers.map((entry) => {
      const provider = decorateProvider(createProvider(entry, { ...parts, imageSharing }), parts)
      return [entry.name, { provider, configHash: entry.configHash }]
    }),
  )
  return { get: (name) => configured.get(name), list: () => [...configured.values()] }
}

function createProvider(entry: ProviderEntry, deps: LibvirtDeps): Provider {
  switch (entry.type) {
    case 'kvm2':
      return createKvm2Provider(entry, deps)
    case 'kvm':
      return createKvmProvider(entry, deps)
    default:
      return exhaustive(entry)
  }
}

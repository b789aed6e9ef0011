// Builds the NoCloud seed of an instance: the small CD that cloud-init reads. How it gets to a hypervisor is the provider's.
import { buildIso } from './iso9660.ts'
import { encodeSeedOwner, type SeedOwner } from './owner.ts'
import { buildVendorData, type VendorDataOptions } from './vendor-data.ts'

export interface SeedOptions extends VendorDataOptions {
  readonly owner: SeedOwner
  readonly instanceName: string
  /** The Proxy's cloud-init, byte for byte; empty for none. */
  readonly userData: Uint8Array
  readonly createdAt: Date
}

const volumeLabel = 'cidata'

/**
 * A whole ISO 9660 image labelled `cidata` with `user-data`, `meta-data` and `vendor-data`. The instance-id is the instance's
 * name, so that a reboot is never taken for a new instance.
 */
export function buildSeed(options: SeedOptions): Buffer {
  const { instanceName } = options
  return buildIso({
    volumeLabel,
    createdAt: options.createdAt,
    applicationUse: encodeSeedOwner(options.owner),
    files: [
      { name: 'meta-data', data: Buffer.from(`instance-id: ${instanceName}\nlocal-hostname: ${instanceName}\n`) },
      { name: 'user-data', data: options.userData },
      { name: 'vendor-data', data: buildVendorData(options) },
    ],
  })
}

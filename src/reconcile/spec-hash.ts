// The hash of what an instance is made from, which decides when one is replaced; pure, and it reads no Secret itself.
import { createHash } from 'node:crypto'
import type { Placement } from '../provider/contract.ts'

/** Version of what goes into the hash. Hashes of two versions cannot be compared, so a new one never replaces by itself. */
const version = 'v1'

export interface HashedSpec {
  /** Entry in the providers config. */
  readonly provider: string
  readonly placement: Placement
  /** Raw user-data bytes, wherever they come from; absent counts as empty. */
  readonly userData?: Uint8Array
}

/** `v1:` and 64 hex digits: SHA-256 over provider, zone, machineType, image, region and user-data, each after its length. */
export function specHash(spec: HashedSpec): string {
  const { zone = '', machineType = '', image = '', region = '' } = spec.placement
  const hash = createHash('sha256')
  for (const text of [spec.provider, zone, machineType, image, region]) addField(hash, Buffer.from(text, 'utf8'))
  addField(hash, spec.userData ?? new Uint8Array())
  return `${version}:${hash.digest('hex')}`
}

/** Whether two hashes prove that the specs differ. Hashes of different versions prove nothing. */
export function hashesDiffer(a: string, b: string): boolean {
  return a !== b && versionOf(a) === versionOf(b)
}

/** The length is 8 bytes, big endian, so that no two lists of fields run together into the same bytes. */
function addField(hash: ReturnType<typeof createHash>, bytes: Uint8Array): void {
  const length = Buffer.alloc(8)
  length.writeBigUInt64BE(BigInt(bytes.length))
  hash.update(length).update(bytes)
}

function versionOf(hash: string): string {
  return hash.slice(0, Math.max(hash.indexOf(':'), 0))
}

// What a pool holds of an image: the base volume, the marker that says it is whole, and the facts beside it. Reads only.
import { errorMessage } from '../../lib/errors.ts'
import type { HostApi, StoragePool, StorageVol } from './host-api.ts'
import type { ImageChoice } from './placement.ts'

/** A base image that is whole. */
export interface BaseImage {
  readonly volume: StorageVol
  /** Absolute path on the host. */
  readonly path: string
  readonly format: 'qcow2' | 'raw'
  /** SHA-256 of its bytes as they were downloaded, lower-case hex. */
  readonly digest: string
}

/** What stands in the volume beside the marker; absent for images of the earlier implementation. */
export interface ImageFacts {
  /** Without credentials. */
  readonly url: string
  readonly sizeBytes: number
  readonly format: 'qcow2' | 'raw'
  readonly installation: string
  /** ISO 8601. */
  readonly fetchedAt: string
}

export type CacheState =
  | { readonly kind: 'absent' }
  /** A download was cut off, or its marker is of no use. */
  | { readonly kind: 'incomplete'; readonly why: string }
  | { readonly kind: 'complete'; readonly volume: StorageVol; readonly digest: string; readonly url?: string }

/** Raw volume with the 64 hex digits of the digest; written last. */
export function markerName(base: string): string {
  return `${base}.sha256`
}

export function factsName(base: string): string {
  return `${base}.info`
}

const digestLength = 64
const maxFactsBytes = 64 * 1024

export async function inspectBase(
  api: HostApi,
  pool: StoragePool,
  name: string,
  signal: AbortSignal,
): Promise<CacheState> {
  const options = { signal }
  const volume = await api.findVolume(pool, name, options)
  if (volume === undefined) return { kind: 'absent' }
  const marker = await api.findVolume(pool, markerName(name), options)
  if (marker === undefined) return { kind: 'incomplete', why: 'it has no marker' }
  const digest = (await api.readVolume(marker, 0, digestLength, options)).toString('latin1').toLowerCase()
  if (!/^[0-9a-f]{64}$/.test(digest)) return { kind: 'incomplete', why: 'its marker holds no digest' }
  const url = await readFactsUrl(api, pool, name, signal)
  return { kind: 'complete', volume, digest, ...(url === undefined ? {} : { url }) }
}

/** Whether a whole base is the image that is wanted. Without a configured digest the first download of a URL stays. */
export function isWanted(state: CacheState & { kind: 'complete' }, choice: ImageChoice): boolean {
  if (choice.sha256 !== undefined) return state.digest === choice.sha256
  return state.url === undefined || state.url === withoutCredentials(choice.url)
}

export function withoutCredentials(url: string): string {
  const parsed = new URL(url)
  parsed.username = ''
  parsed.password = ''
  return parsed.href
}

export function factsContent(facts: ImageFacts): Buffer {
  return Buffer.from(`${JSON.stringify(facts)}\n`)
}

async function readFactsUrl(
  api: HostApi,
  pool: StoragePool,
  base: string,
  signal: AbortSignal,
): Promise<string | undefined> {
  const facts = await api.findVolume(pool, factsName(base), { signal })
  if (facts === undefined) return undefined
  // Asked for by its exact size: the daemon takes its time over the end of a shorter volume.
  const bytes = Math.min(Number(await api.volumeCapacity(facts, { signal })), maxFactsBytes)
  return readUrl(await api.readVolume(facts, 0, bytes, { signal }))
}

/** Facts that cannot be read are as good as none: the marker alone decides then. */
function readUrl(content: Buffer): string | undefined {
  try {
    const facts: unknown = JSON.parse(content.toString('utf8'))
    const url = typeof facts === 'object' && facts !== null && 'url' in facts ? facts.url : undefined
    return typeof url === 'string' ? url : undefined
  } catch (error) {
    if (error instanceof SyntaxError) return undefined
    throw new Error(`reading the facts of an image: ${errorMessage(error)}`, { cause: error })
  }
}

/** Names of the volumes that are overlays of `base` by path. */
export async function overlaysOf(
  api: HostApi,
  pool: StoragePool,
  basePath: string,
  backingPathOf: (xml: string) => string | undefined,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const names: string[] = []
  for (const volume of await api.listVolumes(pool, { signal })) {
    const backing = backingPathOf(await api.volumeXml(volume, { signal }))
    if (backing === basePath) names.push(volume.name)
  }
  return names
}

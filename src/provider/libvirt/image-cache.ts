// What a pool holds of an image: the base volume, the marker that says it is whole, and the facts beside it. Reads only.
import { z } from 'zod'
import type { HostApi, StoragePool, StorageVol } from './host-api.ts'
import { listPool, type PoolListing } from './image-claim.ts'
import type { ImageChoice } from './placement.ts'

/** A base image that is whole. */
export interface BaseImage {
  readonly volume: StorageVol
  /** Absolute path on the host. */
  readonly path: string
  readonly format: 'qcow2' | 'raw'
  /** SHA-256 of its bytes as they were downloaded, lower-case hex. */
  readonly digest: string
  /** Size of the disk in it. */
  readonly virtualBytes: number
  /** ISO 8601; absent for images of the earlier implementation. */
  readonly fetchedAt?: string
}

/** What stands in the volume beside the marker; absent for images of the earlier implementation. */
export interface ImageFacts {
  /** Without credentials. */
  readonly url: string
  readonly sizeBytes: number
  /** Size of the disk in it; absent where its header does not tell. */
  readonly virtualBytes?: number
  readonly format: 'qcow2' | 'raw'
  readonly installation: string
  /** ISO 8601. */
  readonly fetchedAt: string
}

/** What is decided by. */
const knownFactsSchema = z.object({
  url: z.string(),
  virtualBytes: z.number().int().nonnegative().optional(),
  fetchedAt: z.string().optional(),
})
type KnownFacts = z.output<typeof knownFactsSchema>

export type CacheState =
  | { readonly kind: 'absent' }
  /** A download was cut off, or its marker is of no use. */
  | { readonly kind: 'incomplete'; readonly why: string }
  | {
      readonly kind: 'complete'
      readonly volume: StorageVol
      readonly digest: string
      readonly facts: KnownFacts | undefined
    }

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
  listing: PoolListing,
  name: string,
  signal: AbortSignal,
): Promise<CacheState> {
  const volume = listing.get(name)
  if (volume === undefined) return { kind: 'absent' }
  const marker = listing.get(markerName(name))
  if (marker === undefined) return { kind: 'incomplete', why: 'it has no marker' }
  const [digest, facts] = await Promise.all([
    readDigest(api, marker, signal),
    readFacts(api, listing.get(factsName(name)), signal),
  ])
  if (digest === undefined) return { kind: 'incomplete', why: 'its marker holds no digest' }
  return { kind: 'complete', volume, digest, facts }
}

/** Digest in a marker, lower-case hex; undefined when none is in it. */
export async function readDigest(api: HostApi, marker: StorageVol, signal: AbortSignal): Promise<string | undefined> {
  const text = (await api.readVolume(marker, 0, digestLength, { signal })).toString('latin1').toLowerCase()
  return /^[0-9a-f]{64}$/.test(text) ? text : undefined
}

/**
 * The wanted image under its plain or its alternate name.
 * @returns `state` is of the volume under the plain name, whatever was found
 */
export async function findWanted(
  api: HostApi,
  listing: PoolListing,
  choice: ImageChoice,
  signal: AbortSignal,
): Promise<{ readonly found?: BaseImage; readonly state: CacheState }> {
  const state = await inspectBase(api, listing, choice.volume, signal)
  for (const name of [choice.volume, choice.alternateVolume]) {
    const candidate = name === choice.volume ? state : await inspectBase(api, listing, name, signal)
    if (candidate.kind !== 'complete' || !isWanted(candidate, choice)) continue
    const { volume, digest, facts } = candidate
    const [path, virtualBytes] = await Promise.all([
      api.volumePath(volume, { signal }),
      facts?.virtualBytes ?? api.volumeCapacity(volume, { signal }).then(Number),
    ])
    const fetchedAt = facts?.fetchedAt
    const found = { volume, path, format: choice.format, digest, virtualBytes }
    return { state, found: fetchedAt === undefined ? found : { ...found, fetchedAt } }
  }
  return { state }
}

/** Whether a whole base is the image that is wanted. Without a configured digest the first download of a URL stays. */
export function isWanted(state: CacheState & { kind: 'complete' }, choice: ImageChoice): boolean {
  if (choice.sha256 !== undefined) return state.digest === choice.sha256
  return state.facts === undefined || state.facts.url === withoutCredentials(choice.url)
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

/** Facts that cannot be read are as good as none: the marker alone decides then. */
async function readFacts(
  api: HostApi,
  volume: StorageVol | undefined,
  signal: AbortSignal,
): Promise<KnownFacts | undefined> {
  if (volume === undefined) return undefined
  const content = (await api.readVolume(volume, 0, maxFactsBytes, { signal })).toString('utf8')
  try {
    return knownFactsSchema.safeParse(JSON.parse(content)).data
  } catch (error) {
    if (error instanceof SyntaxError) return undefined
    throw error
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
  for (const volume of (await listPool(api, pool, signal)).values()) {
    const backing = backingPathOf(await api.volumeXml(volume, { signal }))
    if (backing === basePath) names.push(volume.name)
  }
  return names
}

// What is known of the catalogue's images on each host: for people, in the health check, and for telling which instances are outdated.
import type { Clock } from '../../lib/clock.ts'
import { ErrorCode } from '../../wire/libvirt/errors.ts'
import type { Mark } from '../contract.ts'
import type { LibvirtConfig, LibvirtHost } from './config.ts'
import type { HostApi, StoragePool } from './host-api.ts'
import { hasCode } from './errors.ts'
import { findWanted } from './image-cache.ts'
import { listPool, type PoolListing } from './image-claim.ts'
import { catalogueImage, displayUrl, type ImageChoice } from './placement.ts'

interface CachedImage {
  readonly digest: string
  /** ISO 8601; absent for images of the earlier implementation. */
  readonly fetchedAt?: string
}

interface HostImages {
  readonly readMs: number
  /** The same by the wall clock, as marks have times. */
  readonly readAt: string
  /** By key. What is not in it is not cached. */
  readonly images: ReadonlyMap<string, CachedImage>
}

/** Images change seldom, and every look costs calls per image. */
const lookEveryMs = 10 * 60_000

export class ImageStatus {
  readonly #config: LibvirtConfig
  readonly #clock: Clock
  readonly #hosts = new Map<string, HostImages>()

  constructor(config: LibvirtConfig, clock: Clock) {
    this.#config = config
    this.#clock = clock
  }

  /** Details for the health check: one per image of the catalogue. */
  async details(
    host: LibvirtHost,
    api: HostApi,
    pool: StoragePool,
    signal: AbortSignal,
  ): Promise<Readonly<Record<string, string>>> {
    if (this.#config.images.size === 0) return {}
    const known = this.#hosts.get(host.name)
    const isFresh = known !== undefined && this.#clock.monotonic() - known.readMs < lookEveryMs
    const { images } = isFresh ? known : await this.#look(host, api, pool, signal)
    const entries = [...this.#config.images].map(([key, { url }]): [string, string] => {
      const cached = images.get(key)
      const source = displayUrl(new URL(url))
      if (cached === undefined) return [`image.${key}`, `not cached yet; from ${source}`]
      const when = cached.fetchedAt === undefined ? '' : ` fetched ${cached.fetchedAt}`
      return [`image.${key}`, `sha256 ${cached.digest.slice(0, 12)}${when}, from ${source}`]
    })
    return Object.fromEntries(entries)
  }

  /** What differs between the image that an instance was made from and the configured one; undefined when nothing is known to. */
  outdated(host: LibvirtHost, mark: Mark): string | undefined {
    const { image, imageDigest } = mark
    if (image === undefined || imageDigest === undefined) return undefined
    const entry = this.#config.images.get(image)
    if (entry === undefined) return `image ${image}, which it was made from, is not in the config any more`
    const current = entry.sha256 ?? this.#digestSince(host, image, mark.createdAt)
    if (current === undefined || current === imageDigest) return undefined
    const what = entry.sha256 === undefined ? 'the one on the host now' : 'the configured one'
    return `it was made from image ${image} with sha256 ${imageDigest.slice(0, 12)}; ${what} has ${current.slice(0, 12)}`
  }

  /** Of a look that is older than the instance nothing follows for it. */
  #digestSince(host: LibvirtHost, image: string, createdAt: string | undefined): string | undefined {
    const looked = this.#hosts.get(host.name)
    if (looked === undefined || createdAt === undefined || createdAt >= looked.readAt) return undefined
    return looked.images.get(image)?.digest
  }

  async #find(api: HostApi, listing: PoolListing, choice: ImageChoice, signal: AbortSignal) {
    try {
      return (await findWanted(api, listing, choice, signal)).found
    } catch (thrown) {
      // Somebody is just taking it away.
      if (hasCode(thrown, ErrorCode.NO_STORAGE_VOL)) return undefined
      throw thrown
    }
  }

  async #look(host: LibvirtHost, api: HostApi, pool: StoragePool, signal: AbortSignal): Promise<HostImages> {
    const listing = await listPool(api, pool, signal)
    const images = new Map<string, CachedImage>()
    for (const [key, entry] of this.#config.images) {
      const found = await this.#find(api, listing, catalogueImage('', key, entry), signal)
      if (found === undefined) continue
      const { digest, fetchedAt } = found
      images.set(key, { digest, ...(fetchedAt === undefined ? {} : { fetchedAt }) })
    }
    const looked = { readMs: this.#clock.monotonic(), readAt: new Date(this.#clock.now()).toISOString(), images }
    this.#hosts.set(host.name, looked)
    return looked
  }
}

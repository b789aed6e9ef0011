// A download with the claim on its image held: how much room it needs, under which name it goes, and what has to go before it.
import { withSpan } from '../../observe/tracing.ts'
import { ifThere } from './errors.ts'
import type { HostApi, MutationGuard, StoragePool } from './host-api.ts'
import { isTimeProbe } from './host-time.ts'
import { factsName, markerName, overlaysOf, type BaseImage, type CacheState } from './image-cache.ts'
import type { PoolListing } from './image-claim.ts'
import { fetchImage, type FetchDeps } from './image-fetch.ts'
import { announcedBytes } from './image-source.ts'
import type { ImageChoice } from './placement.ts'
import { requireSpace } from './pool-space.ts'
import type { Company } from './shared-work.ts'
import { backingPath } from './volume-xml.ts'

export interface DownloadDeps extends FetchDeps {
  /** Prefix of span names. */
  readonly flavour: string
}

export interface DownloadJob {
  readonly choice: ImageChoice
  /** Name of the host in the config. */
  readonly host: string
  readonly api: HostApi
  readonly pool: StoragePool
  /** Listed with the claim held. */
  readonly volumes: PoolListing
  /** Of the volume under the image's plain name. */
  readonly state: CacheState
  /** It was asked for just before. */
  readonly hasRoom: boolean
  /** Bytes that the pool must have room for besides the image, by what for. */
  readonly besides: Readonly<Record<string, number>>
  /** Runs the transfer on a connection of its own. */
  readonly withTransfer: <T>(work: (api: HostApi) => Promise<T>) => Promise<T>
  /** @throws ProviderError transient when the claim is not ours any more */
  readonly checkClaim: (guard: MutationGuard) => Promise<void>
  readonly company: Company
}

/**
 * Whether there is room for the image as its server announces it, and for what is to come besides.
 * @throws ProviderError quotaExceeded, or what is wrong with the server's answer
 */
export async function requireRoomFor(
  deps: DownloadDeps,
  job: Pick<DownloadJob, 'choice' | 'host' | 'api' | 'pool' | 'besides' | 'company'>,
): Promise<void> {
  const { choice, host, api, pool, besides, company } = job
  const { signal } = company
  const announced = await announcedBytes({ server: deps.server, choice, host }, deps, signal)
  await requireSpace({ api, pool, host, signal }, { image: announced ?? 0, ...besides })
}

export async function downloadImage(deps: DownloadDeps, job: DownloadJob): Promise<BaseImage> {
  const { choice, host, api, pool, company, besides } = job
  const { flavour, log } = deps
  const { signal } = company
  const attributes = {
    [`${flavour}.host`]: host,
    [`${flavour}.volume`]: choice.volume,
    [`${flavour}.url_host`]: new URL(choice.url).host,
    [`${flavour}.sha256_configured`]: choice.sha256 !== undefined,
  }
  return await withSpan(`${flavour}.download`, { kind: 'client', attributes }, async (span) => {
    // Before anything is taken away: a pool that is too small keeps what it has.
    if (!job.hasRoom) await requireRoomFor(deps, job)
    const scope = { api, pool, host, signal }
    const volume = await placeFor(job)
    if (volume !== choice.volume) log.info('another image keeps its overlays', { host, volume })
    await clear(job, volume)
    const requireRoom = async (sizeBytes: number | undefined) => {
      if (sizeBytes !== undefined) span.setAttribute(`${flavour}.bytes`, sizeBytes)
      return (await requireSpace(scope, { image: sizeBytes ?? 0, ...besides })) + BigInt(sizeBytes ?? 0)
    }
    const { withTransfer, checkClaim } = job
    return await fetchImage(deps, { choice, volume, pool, host, api, company, withTransfer, checkClaim, requireRoom })
  })
}

/** The plain name, unless a whole image stands there that overlays need: deleting it would corrupt every one of them. */
async function placeFor({ choice, api, pool, state, company }: DownloadJob): Promise<string> {
  if (state.kind !== 'complete') return choice.volume
  const { signal } = company
  const path = await api.volumePath(state.volume, { signal })
  const overlays = await overlaysOf(api, pool, path, backingPath, signal)
  return overlays.length === 0 ? choice.volume : choice.alternateVolume
}

/** The marker goes first: what is left after a crash between them is a base that nobody takes for whole. */
async function clear({ choice, api, volumes, company }: DownloadJob, volume: string): Promise<void> {
  const probes = [...volumes.keys()].filter((name) => isTimeProbe(name, choice.volume))
  for (const name of [markerName(volume), factsName(volume), volume, ...probes]) {
    const found = volumes.get(name)
    if (found !== undefined) await ifThere(api.deleteVolume(found, company))
  }
}

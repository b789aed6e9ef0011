// Brings one image from its server into a pool, digest and marker included, under a claim; whether that is needed is decided in images.ts.
import { createHash } from 'node:crypto'
import type { Clock } from '../../lib/clock.ts'
import { deadline } from '../../lib/deadline.ts'
import { errorMessage, toError } from '../../lib/errors.ts'
import type { Logger } from '../../observe/logger.ts'
import { ErrorCode } from '../../wire/libvirt/errors.ts'
import { ProviderError } from '../errors.ts'
import type { Budgets } from './budgets.ts'
import { hasCode } from './errors.ts'
import type { HostApi, MutationGuard, StoragePool, StorageVol } from './host-api.ts'
import { factsContent, factsName, markerName, withoutCredentials, type BaseImage } from './image-cache.ts'
import { VirtualSize } from './image-format.ts'
import type { ImageResponse, ImageServer } from './image-http.ts'
import { downloadFailed, openImage, requireDigest, type SourceScope } from './image-source.ts'
import type { ImageChoice } from './placement.ts'
import { formatBytes, notEnoughSpace } from './pool-space.ts'
import type { Company } from './shared-work.ts'
import { rawVolumeXml } from './volume-xml.ts'

export interface FetchDeps {
  readonly server: ImageServer
  readonly clock: Clock
  readonly log: Logger
  readonly budgets: Budgets
  readonly installation: string
  /** Told how many bytes came. */
  readonly countBytes: (bytes: number) => void
}

export interface FetchJob {
  readonly choice: ImageChoice
  /** Volume to write; it must not exist. */
  readonly volume: string
  readonly pool: StoragePool
  /** Name of the host in the config. */
  readonly host: string
  /** The host's shared connection. */
  readonly api: HostApi
  /** Runs the transfer on a connection of its own: a cancelled poll of another Proxy must not cut it off. */
  readonly withTransfer: <T>(work: (api: HostApi) => Promise<T>) => Promise<T>
  /** @throws ProviderError transient when the claim is not ours any more */
  readonly checkClaim: (guard: MutationGuard) => Promise<void>
  /**
   * Bytes that the pool can give the image.
   * @param sizeBytes as its server announces it now @throws ProviderError quotaExceeded
   */
  readonly requireRoom: (sizeBytes: number | undefined) => Promise<bigint>
  readonly company: Company
}

const progressEveryMs = 1000

/** Leaves the volume without a marker, or not at all, when it fails. */
export async function fetchImage(deps: FetchDeps, job: FetchJob): Promise<BaseImage> {
  const { choice, company } = job
  const { clock, budgets } = deps
  const what = `download of image ${choice.label}`
  using budget = deadline(clock, what, budgets.imageMs, company.signal)
  using download = deadline(clock, what, budgets.imageMs - budgets.imageReserveMs, budget.signal)
  const guard: MutationGuard = { signal: budget.signal, mayMutate: () => company.mayMutate() }
  const source: SourceScope = { server: deps.server, choice, host: job.host }
  const { response, sizeBytes } = await openImage(source, download.signal)
  try {
    const roomBytes = await job.requireRoom(sizeBytes)
    deps.log.info('fetching base image into host pool', {
      host: job.host,
      volume: job.volume,
      url: choice.label,
      ...(sizeBytes !== undefined && { sizeBytes }),
    })
    return await store(deps, job, { source, response, sizeBytes, roomBytes, guard })
  } finally {
    response.discard()
  }
}

interface Transfer {
  readonly source: SourceScope
  readonly response: ImageResponse
  /** Undefined while only the body will tell. */
  readonly sizeBytes: number | undefined
  readonly roomBytes: bigint
  readonly guard: MutationGuard
}

interface Received {
  /** SHA-256, lower-case hex. */
  readonly digest: string
  readonly bytes: number
  /** Size of the disk in it, where its header tells. */
  readonly virtualBytes: number | undefined
}

/** The marker comes last, and only while nobody else may have begun anew under it. */
async function store(deps: FetchDeps, job: FetchJob, parts: Transfer): Promise<BaseImage> {
  const { choice, api, pool } = job
  const { guard } = parts
  const began = deps.clock.monotonic()
  // A volume whose size is not known begins empty: the file grows with what is uploaded.
  const xml = rawVolumeXml({ name: job.volume, capacityBytes: parts.sizeBytes ?? 0 })
  const volume = await api.createVolume(pool, xml, guard)
  try {
    const received = await transfer(deps, job, volume, parts)
    requireDigest(parts.source, received.digest, parts.sizeBytes !== undefined || parts.response.isChunked)
    await refresh(deps, job, guard)
    const path = await api.volumePath(volume, { signal: guard.signal })
    const { digest, bytes: sizeBytes } = received
    const virtualBytes = received.virtualBytes ?? Number(await api.volumeCapacity(volume, { signal: guard.signal }))
    // Beside a base that is somebody else's by now they would be in the way.
    await job.checkClaim(guard)
    await writeFacts(deps, job, { sizeBytes, ...(received.virtualBytes !== undefined && { virtualBytes }) }, guard)
    await job.checkClaim(guard)
    await writeSmall(api, pool, markerName(job.volume), Buffer.from(digest, 'latin1'), guard)
    const durationMs = Math.round(deps.clock.monotonic() - began)
    deps.log.info('base image cached', { host: job.host, volume: job.volume, sizeBytes, durationMs, digest })
    return { volume, path, format: choice.format, digest, virtualBytes }
  } catch (thrown) {
    await removeHalf(deps, job, volume)
    throw thrown
  }
}

/** Streams the body into the volume. The digest is of what was sent; a short body is noticed here, for libvirt takes it. */
async function transfer(deps: FetchDeps, job: FetchJob, volume: StorageVol, parts: Transfer): Promise<Received> {
  const { choice } = job
  const { sizeBytes } = parts
  const hash = createHash('sha256')
  const header = new VirtualSize(choice.format)
  const report = reporter(deps, job, sizeBytes)
  let received = 0
  let bodyError: ProviderError | undefined
  async function* body(): AsyncIterable<Uint8Array> {
    report(0)
    try {
      for await (const chunk of parts.response.body) {
        if (chunk.byteLength === 0) continue
        received += chunk.byteLength
        deps.countBytes(chunk.byteLength)
        if (sizeBytes !== undefined && received > sizeBytes) {
          throw new Error(`the server sent more than the ${sizeBytes} bytes it announced`)
        }
        if (received > parts.roomBytes) throw notEnoughSpace(job.host, job.pool.name, received, parts.roomBytes)
        hash.update(chunk)
        header.update(chunk)
        report(received)
        yield chunk
      }
      if (received === 0) throw new Error('the body is empty')
      if (received < (sizeBytes ?? 0)) throw new Error(`the body ended after ${received} of ${sizeBytes} bytes`)
    } catch (thrown) {
      bodyError = thrown instanceof ProviderError ? thrown : downloadFailed(parts.source, toError(thrown))
      throw bodyError
    }
  }
  try {
    const upload = { data: body(), ...(sizeBytes !== undefined && { lengthBytes: sizeBytes }) }
    await job.withTransfer((api) => api.uploadVolume(volume, upload, deps.budgets.imageMs, parts.guard))
  } catch (thrown) {
    // What the source died of, and not how the upload put it.
    throw bodyError ?? thrown
  }
  return { digest: hash.digest('hex'), bytes: received, virtualBytes: header.bytes(received) }
}

function reporter(deps: FetchDeps, job: FetchJob, sizeBytes: number | undefined): (received: number) => void {
  const what = `downloading image ${job.choice.label} to host ${job.host}`
  let reportedAt = Number.NEGATIVE_INFINITY
  return (received) => {
    if (deps.clock.monotonic() - reportedAt < progressEveryMs) return
    reportedAt = deps.clock.monotonic()
    const share =
      sizeBytes === undefined ? '' : ` of ${formatBytes(sizeBytes)} (${Math.floor((100 * received) / sizeBytes)} %)`
    job.company.progress(`${what}: ${formatBytes(received)}${share}`)
  }
}

/** libvirt reads the file's real format then. It refuses while any upload into the pool runs, and refreshes itself afterwards. */
async function refresh(deps: FetchDeps, job: FetchJob, guard: MutationGuard): Promise<void> {
  try {
    await job.api.refreshPool(job.pool, guard)
  } catch (thrown) {
    if (!hasCode(thrown, ErrorCode.INTERNAL_ERROR)) throw thrown
    deps.log.debug('storage pool not refreshed', { host: job.host, pool: job.pool.name, error: errorMessage(thrown) })
  }
}

async function writeFacts(
  deps: FetchDeps,
  job: FetchJob,
  sizes: { readonly sizeBytes: number; readonly virtualBytes?: number },
  guard: MutationGuard,
): Promise<void> {
  const content = factsContent({
    url: withoutCredentials(job.choice.url),
    ...sizes,
    format: job.choice.format,
    installation: deps.installation,
    fetchedAt: new Date(deps.clock.now()).toISOString(),
  })
  await writeSmall(job.api, job.pool, factsName(job.volume), content, guard)
}

async function writeSmall(
  api: HostApi,
  pool: StoragePool,
  name: string,
  content: Buffer,
  guard: MutationGuard,
): Promise<void> {
  const volume = await api.createVolume(pool, rawVolumeXml({ name, capacityBytes: content.byteLength }), guard)
  await api.writeVolume(volume, content, guard)
}

/**
 * Only while somebody still waits and may, and the claim is ours: otherwise it may be another's by now, and whoever fetches next
 * clears it, for it has no marker.
 */
async function removeHalf(deps: FetchDeps, job: FetchJob, volume: StorageVol): Promise<void> {
  using budget = deadline(deps.clock, 'removing a half-written image', deps.budgets.rpcMs)
  const guard: MutationGuard = { signal: budget.signal, mayMutate: () => job.company.mayMutate() }
  try {
    await job.checkClaim(guard)
    await job.api.deleteVolume(volume, guard)
  } catch (error) {
    deps.log.warn('half-written base image left in host pool; the next fetch removes it', {
      host: job.host,
      volume: volume.name,
      error: errorMessage(error),
    })
  }
}

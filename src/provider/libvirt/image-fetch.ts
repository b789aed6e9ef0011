// Brings one image from its server into a pool, digest and marker included; whether that is needed is decided in images.ts.
import { createHash } from 'node:crypto'
import type { Clock } from '../../lib/clock.ts'
import { deadline } from '../../lib/deadline.ts'
import { errorMessage, toError } from '../../lib/errors.ts'
import type { Logger } from '../../observe/logger.ts'
import { ProviderError } from '../errors.ts'
import type { Budgets } from './budgets.ts'
import { hasCode } from './errors.ts'
import type { HostApi, MutationGuard, StoragePool, StorageVol } from './host-api.ts'
import { factsContent, factsName, markerName, withoutCredentials, type BaseImage } from './image-cache.ts'
import type { ImageResponse, ImageServer } from './image-http.ts'
import type { ImageChoice } from './placement.ts'
import { formatBytes } from './pool-space.ts'
import type { Company } from './shared-work.ts'
import { ErrorCode } from '../../wire/libvirt/errors.ts'
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
  readonly company: Company
}

const progressEveryMs = 1000

/** Asks for the size, for the check of the pool's space. */
export async function imageSize(
  deps: Pick<FetchDeps, 'server' | 'clock' | 'budgets'>,
  choice: ImageChoice,
  host: string,
  signal: AbortSignal,
): Promise<number> {
  using budget = deadline(deps.clock, `asking for the size of image ${choice.label}`, deps.budgets.headMs, signal)
  const head = await ask(deps.server, 'HEAD', choice, host, budget.signal)
  head.discard()
  if (isSuccess(head.status) && head.lengthBytes !== undefined) return requireLength(head, choice, host)
  // Mirrors refuse HEAD with 403, 405 or 501 alike; what the GET says counts.
  const got = await ask(deps.server, 'GET', choice, host, budget.signal)
  got.discard()
  requireSuccess(got, choice, host)
  return requireLength(got, choice, host)
}

/** Leaves the volume without a marker, or not at all, when it fails. */
export async function fetchImage(deps: FetchDeps, job: FetchJob): Promise<BaseImage> {
  const { choice, company, api, pool } = job
  const { clock, budgets, log } = deps
  const what = `download of image ${choice.label}`
  using budget = deadline(clock, what, budgets.imageMs, company.signal)
  using download = deadline(clock, what, budgets.imageMs - budgets.imageReserveMs, budget.signal)
  const guard: MutationGuard = { signal: budget.signal, mayMutate: () => company.mayMutate() }
  const began = clock.monotonic()

  const response = await ask(deps.server, 'GET', choice, job.host, download.signal)
  try {
    requireSuccess(response, choice, job.host)
    const sizeBytes = requireLength(response, choice, job.host)
    log.info('fetching base image into host pool', { host: job.host, volume: job.volume, url: choice.label, sizeBytes })
    const volume = await api.createVolume(pool, rawVolumeXml({ name: job.volume, capacityBytes: sizeBytes }), guard)
    try {
      const digest = await transfer(deps, job, { response, sizeBytes, volume, guard })
      requireDigest(digest, choice, job.host)
      await refresh(deps, job, guard)
      await writeFacts(deps, job, sizeBytes, guard)
      const path = await api.volumePath(volume, { signal: budget.signal })
      await writeSmall(api, pool, markerName(job.volume), Buffer.from(digest, 'latin1'), guard)
      const durationMs = Math.round(clock.monotonic() - began)
      log.info('base image cached', { host: job.host, volume: job.volume, sizeBytes, durationMs, digest })
      return { volume, path, format: choice.format, digest }
    } catch (thrown) {
      await removeHalf(deps, job, volume)
      throw thrown
    }
  } finally {
    response.discard()
  }
}

interface Transfer {
  readonly response: ImageResponse
  readonly sizeBytes: number
  readonly volume: StorageVol
  readonly guard: MutationGuard
}

/** Streams the body into the volume. The digest is of what was sent; a short body is noticed here, for libvirt takes it. */
async function transfer(deps: FetchDeps, job: FetchJob, parts: Transfer): Promise<string> {
  const { choice, company } = job
  const { sizeBytes } = parts
  const hash = createHash('sha256')
  let received = 0
  let reportedAt = Number.NEGATIVE_INFINITY
  let bodyError: ProviderError | undefined
  const report = () => {
    if (deps.clock.monotonic() - reportedAt < progressEveryMs) return
    reportedAt = deps.clock.monotonic()
    const percent = Math.floor((100 * received) / sizeBytes)
    company.progress(
      `downloading image ${choice.label} to host ${job.host}: ${formatBytes(received)} of ${formatBytes(sizeBytes)} (${percent} %)`,
    )
  }
  async function* body(): AsyncIterable<Uint8Array> {
    report()
    try {
      for await (const chunk of parts.response.body) {
        if (chunk.byteLength === 0) continue
        received += chunk.byteLength
        deps.countBytes(chunk.byteLength)
        if (received > sizeBytes) throw new Error(`the server sent more than the ${sizeBytes} bytes it announced`)
        hash.update(chunk)
        report()
        yield chunk
      }
      if (received < sizeBytes) throw new Error(`the body ended after ${received} of ${sizeBytes} bytes`)
    } catch (thrown) {
      bodyError = downloadFailed(choice, job.host, toError(thrown))
      throw bodyError
    }
  }
  try {
    await job.withTransfer((api) =>
      api.uploadVolume(parts.volume, { data: body(), lengthBytes: sizeBytes }, deps.budgets.imageMs, parts.guard),
    )
  } catch (thrown) {
    // What the source died of, and not how the upload put it.
    throw bodyError ?? thrown
  }
  return hash.digest('hex')
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

async function writeFacts(deps: FetchDeps, job: FetchJob, sizeBytes: number, guard: MutationGuard): Promise<void> {
  const content = factsContent({
    url: withoutCredentials(job.choice.url),
    sizeBytes,
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

/** Only while somebody still waits and may: otherwise whoever fetches next clears it, for it has no marker. */
async function removeHalf(deps: FetchDeps, job: FetchJob, volume: StorageVol): Promise<void> {
  using budget = deadline(deps.clock, 'removing a half-written image', deps.budgets.rpcMs)
  const guard: MutationGuard = { signal: budget.signal, mayMutate: () => job.company.mayMutate() }
  try {
    await job.api.deleteVolume(volume, guard)
  } catch (error) {
    deps.log.warn('half-written base image left in host pool; the next fetch removes it', {
      host: job.host,
      volume: volume.name,
      error: errorMessage(error),
    })
  }
}

async function ask(
  server: ImageServer,
  method: 'HEAD' | 'GET',
  choice: ImageChoice,
  host: string,
  signal: AbortSignal,
): Promise<ImageResponse> {
  try {
    return await server.ask(method, choice.url, signal)
  } catch (thrown) {
    throw downloadFailed(choice, host, toError(thrown))
  }
}

function downloadFailed(choice: ImageChoice, host: string, cause: Error): ProviderError {
  return ProviderError.transient(`image ${choice.label} for host ${host}: ${cause.message}`, {
    code: 'ImageDownloadFailed',
    target: host,
    cause,
  })
}

function isSuccess(status: number): boolean {
  return status >= 200 && status < 300
}

function requireSuccess(response: ImageResponse, choice: ImageChoice, host: string): void {
  const { status } = response
  if (isSuccess(status)) return
  const message = `image ${choice.label} for host ${host}: its server answered ${status}`
  if (status === 429 || status >= 500) {
    throw ProviderError.transient(message, { code: 'ImageServerError', target: host })
  }
  throw refusal(choice, host, 'ImageNotAvailable', `${message}; correct ${whereUrl(choice)}`)
}

function requireLength(response: ImageResponse, choice: ImageChoice, host: string): number {
  if (response.lengthBytes !== undefined && response.lengthBytes > 0) return response.lengthBytes
  throw refusal(
    choice,
    host,
    'ImageLengthUnknown',
    `image ${choice.label} for host ${host}: its server sent ${response.lengthBytes === 0 ? 'Content-Length 0' : 'no Content-Length'}; ` +
      `point ${whereUrl(choice)} at a server that sends the length`,
  )
}

function requireDigest(digest: string, choice: ImageChoice, host: string): void {
  if (choice.sha256 === undefined || choice.sha256 === digest) return
  throw refusal(
    choice,
    host,
    'ImageDigestMismatch',
    `image ${choice.label} for host ${host}: the download has sha256 ${digest}, and ${whereDigest(choice)} is ${choice.sha256}; ` +
      `correct it, or the URL`,
  )
}

function whereUrl(choice: ImageChoice): string {
  return choice.source.kind === 'catalogue' ? `${choice.source.field}.url` : 'placement.image'
}

function whereDigest(choice: ImageChoice): string {
  return choice.source.kind === 'catalogue' ? `${choice.source.field}.sha256` : 'the expected one'
}

function refusal(choice: ImageChoice, target: string, code: string, message: string): ProviderError {
  return ProviderError.permanent(choice.source.kind === 'catalogue' ? 'environment' : 'spec', message, { code, target })
}

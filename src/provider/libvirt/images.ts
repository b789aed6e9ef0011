// Sees to it that a host's pool holds the wanted image, once per host, pool and volume in this process. The download itself is in image-fetch.ts.
import { withSpan } from '../../observe/tracing.ts'
import type { LibvirtHost } from './config.ts'
import type { HostApi, MutationGuard, StoragePool } from './host-api.ts'
import type { HostConnections } from './hosts.ts'
import { fetchImage, imageSize, type FetchDeps } from './image-fetch.ts'
import {
  factsName,
  inspectBase,
  isWanted,
  markerName,
  overlaysOf,
  type BaseImage,
  type CacheState,
} from './image-cache.ts'
import { classifyInCreate } from './errors.ts'
import type { ImageChoice } from './placement.ts'
import { requireSpace, runningPool } from './pool-space.ts'
import type { Company, Participant, SharedWork } from './shared-work.ts'
import { backingPath } from './volume-xml.ts'

export interface ImagesDeps extends FetchDeps {
  readonly connections: HostConnections
  /** Shared by all providers of the process: two entries may name one host. */
  readonly fetches: SharedWork
  /** Prefix of span names. */
  readonly flavour: string
}

export class Images {
  readonly #deps: ImagesDeps

  constructor(deps: ImagesDeps) {
    this.#deps = deps
  }

  /**
   * The image if it is there, whole and the wanted one.
   * @throws ProviderError permanent (environment) when the pool does not run: volumes cannot even be looked up then
   */
  async find(host: LibvirtHost, choice: ImageChoice, signal: AbortSignal): Promise<BaseImage | undefined> {
    const api = await this.#deps.connections.line(host.name, 'shared', signal)
    const pool = await api.findPool(host.pool, { signal })
    await runningPool({ api, pool, host: host.name, signal })
    return (await this.#look(api, pool, choice, signal)).found
  }

  /**
   * The image, fetched when need be. Callers for one host address, pool and volume share one fetch, which goes on until the
   * last of them left.
   * @param besides bytes that the pool must have room for besides the image, by what for
   */
  async ensure(
    host: LibvirtHost,
    choice: ImageChoice,
    besides: Readonly<Record<string, number>>,
    participant: Participant,
  ): Promise<BaseImage> {
    const found = await this.find(host, choice, participant.signal)
    if (found !== undefined) return found
    const key = [host.ssh.host, host.ssh.port, host.pool, choice.volume].join(' ')
    return await this.#deps.fetches.run(key, participant, (company) => this.#fetch(host, choice, besides, company))
  }

  async #fetch(
    host: LibvirtHost,
    choice: ImageChoice,
    besides: Readonly<Record<string, number>>,
    company: Company,
  ): Promise<BaseImage> {
    const { connections, flavour, log } = this.#deps
    const { signal } = company
    try {
      const api = await connections.line(host.name, 'shared', signal)
      const pool = await api.findPool(host.pool, { signal })
      // The fetch that this one waited for, or another operator's, may have brought it.
      const looked = await this.#look(api, pool, choice, signal)
      if (looked.found !== undefined) return looked.found
      const attributes = {
        [`${flavour}.host`]: host.name,
        [`${flavour}.volume`]: choice.volume,
        [`${flavour}.url_host`]: new URL(choice.url).host,
        [`${flavour}.sha256_configured`]: choice.sha256 !== undefined,
      }
      return await withSpan(`${flavour}.download`, { kind: 'client', attributes }, async (span) => {
        const sizeBytes = await imageSize(this.#deps, choice, host.name, signal)
        span.setAttribute(`${flavour}.bytes`, sizeBytes)
        await requireSpace({ api, pool, host: host.name, signal }, { image: sizeBytes, ...besides })
        const volume = await this.#placeFor(api, pool, choice, looked.state, signal)
        if (volume !== choice.volume) log.info('another image keeps its overlays', { host: host.name, volume })
        await this.#clear(api, pool, volume, company)
        return await fetchImage(this.#deps, {
          choice,
          volume,
          pool,
          host: host.name,
          api,
          company,
          withTransfer: (work) => connections.fresh(host.name, signal, work),
        })
      })
    } catch (thrown) {
      throw classifyInCreate(thrown, { target: host.name, signal })
    }
  }

  async #look(
    api: HostApi,
    pool: StoragePool,
    choice: ImageChoice,
    signal: AbortSignal,
  ): Promise<{ readonly found?: BaseImage; readonly state: CacheState }> {
    const { log } = this.#deps
    const state = await inspectBase(api, pool, choice.volume, signal)
    for (const name of [choice.volume, choice.alternateVolume]) {
      const candidate = name === choice.volume ? state : await inspectBase(api, pool, name, signal)
      if (candidate.kind === 'complete' && isWanted(candidate, choice)) {
        const path = await api.volumePath(candidate.volume, { signal })
        const { volume, digest } = candidate
        return { state, found: { volume, path, format: choice.format, digest } }
      }
      if (candidate.kind === 'incomplete') log.debug('base image is not whole', { volume: name, why: candidate.why })
    }
    return { state }
  }

  /** The plain name, unless a whole image stands there that overlays need: deleting it would corrupt every one of them. */
  async #placeFor(
    api: HostApi,
    pool: StoragePool,
    choice: ImageChoice,
    state: CacheState,
    signal: AbortSignal,
  ): Promise<string> {
    if (state.kind !== 'complete') return choice.volume
    const path = await api.volumePath(state.volume, { signal })
    const overlays = await overlaysOf(api, pool, path, backingPath, signal)
    return overlays.length === 0 ? choice.volume : choice.alternateVolume
  }

  /** The marker goes first: what is left after a crash between them is a base that nobody takes for whole. */
  async #clear(api: HostApi, pool: StoragePool, volume: string, company: Company): Promise<void> {
    const guard: MutationGuard = { signal: company.signal, mayMutate: () => company.mayMutate() }
    for (const name of [markerName(volume), factsName(volume), volume]) {
      const found = await api.findVolume(pool, name, { signal: company.signal })
      if (found !== undefined) await api.deleteVolume(found, guard)
    }
  }
}

// Sees to it that a host's pool holds the wanted image, and goes on holding it while it is used, across operators. Downloads are in
// image-download.ts, the claims that keep others away in image-claim.ts.
import { backoffDelayMs, type Random } from '../../lib/backoff.ts'
import { sleep } from '../../lib/clock.ts'
import { deadline } from '../../lib/deadline.ts'
import { errorMessage } from '../../lib/errors.ts'
import type { LibvirtHost } from './config.ts'
import { keepClaimed } from './claim-upkeep.ts'
import { classifyInCreate } from './errors.ts'
import type { HostApi, MutationGuard, StoragePool } from './host-api.ts'
import { HostTime } from './host-time.ts'
import type { HostConnections } from './hosts.ts'
import { findWanted, markerName, readDigest, type BaseImage, type CacheState } from './image-cache.ts'
import {
  claimHolder,
  isClaimed,
  listPool,
  tryClaim,
  type Claim,
  type ClaimDeps,
  type ClaimScope,
  type Holder,
  type PoolListing,
} from './image-claim.ts'
import { downloadImage, requireRoomFor, type DownloadDeps } from './image-download.ts'
import type { ImageSharing } from './image-sharing.ts'
import type { ImageChoice } from './placement.ts'
import type { Company, Participant } from './shared-work.ts'

export interface ImagesDeps extends DownloadDeps {
  readonly random: Random
  readonly connections: HostConnections
  readonly sharing: ImageSharing
}

/** Which image, and where. */
export interface ImageWish {
  readonly host: LibvirtHost
  readonly choice: ImageChoice
}

export interface Place {
  readonly api: HostApi
  readonly pool: StoragePool
}

/** An image that is there for as long as its use lasts, and what else stood in the pool when its use began. */
export interface ImageInUse {
  readonly base: BaseImage
  /** Asked right before the overlay is made: a process that stood still for minutes has lost it. @throws ProviderError transient */
  readonly requireHeld: () => void
  readonly volumes: PoolListing
}

/** How a use of an image went. Without a result nothing was done. */
export type Use<T> =
  | { readonly kind: 'used'; readonly value: T }
  /** It has to be fetched first: {@link Images.ensure}. */
  | { readonly kind: 'absent' }
  /** Somebody else is at it: {@link Images.waitForTurn}. */
  | { readonly kind: 'busy' }

/** First pause between two looks at a claim of another operator, milliseconds. */
const firstPollMs = 100

export class Images {
  readonly #deps: ImagesDeps
  readonly #claimDeps: ClaimDeps
  /** Images that were whole when this process last looked. */
  readonly #known = new Map<string, BaseImage>()

  constructor(deps: ImagesDeps) {
    this.#deps = deps
    const { clock, random, log, budgets, installation } = deps
    const { tokens } = deps.sharing.claims
    this.#claimDeps = { clock, random, log, budgets, installation, tokens, hostTime: new HostTime(clock, random) }
  }

  /** Whether it was there when this process last looked. */
  isKnown(wish: ImageWish): boolean {
    return this.#known.has(knownKey(wish))
  }

  /** Whether it is there, whole and the wanted one. Without a claim it may be gone the moment after. */
  async isThere(wish: ImageWish, place: Place, signal: AbortSignal): Promise<boolean> {
    const volumes = await listPool(place.api, place.pool, signal)
    return (await this.#look(wish, place, volumes, signal)).found !== undefined
  }

  /** Runs `work` while the image is there and nobody may take it away. Waits for nobody outside this process. */
  async use<T>(
    wish: ImageWish,
    place: Place,
    guard: MutationGuard,
    work: (image: ImageInUse) => Promise<T>,
  ): Promise<Use<T>> {
    const { fetches, claims } = this.#deps.sharing
    const key = shareKey(wish)
    if (fetches.isRunning(key)) return { kind: 'absent' }
    const actions = {
      acquire: () => tryClaim(this.#claimDeps, scopeOf(wish, place, guard), 'create', 'blind'),
      release: (claim: Claim) => this.#release(wish, place, claim, guard),
    }
    const shared = await claims.share(key, actions, async (held): Promise<Use<T>> => {
      const volumes = held.volumes ?? (await listPool(place.api, place.pool, guard.signal))
      const { found } = await this.#look(wish, place, volumes, guard.signal)
      if (found === undefined) return { kind: 'absent' }
      const requireHeld = () => held.claim.requireFresh(scopeOf(wish, place, guard))
      return { kind: 'used', value: await work({ base: found, requireHeld, volumes }) }
    })
    return shared.kind === 'done' ? shared.value : shared
  }

  /**
   * Fetches the image unless it is there. Callers for one host address, pool and volume share one fetch, which goes on until
   * the last of them left; another operator's is waited for.
   * @param besides bytes that the pool must have room for besides the image, by what for
   */
  async ensure(wish: ImageWish, besides: Readonly<Record<string, number>>, participant: Participant): Promise<void> {
    const { fetches, claims } = this.#deps.sharing
    const key = shareKey(wish)
    await fetches.run(key, participant, (company) =>
      inCreate(wish, company, () =>
        claims.alone(key, company.signal, () => this.#fetchClaimed(wish, besides, company)),
      ),
    )
  }

  /** Resolves when nobody seems to be at the image any more, in this process or elsewhere. Those who wait share their looks. */
  async waitForTurn(wish: ImageWish, participant: Participant): Promise<void> {
    const { fetches, claims } = this.#deps.sharing
    const key = shareKey(wish)
    await fetches.run(`turn ${key}`, participant, (company) =>
      inCreate(wish, company, async () => {
        await claims.free(key, company.signal)
        await this.#poll(wish, company, async (place) => {
          const holder = await claimHolder(this.#claimDeps, scopeOf(wish, place, company))
          return holder === undefined ? { kind: 'done', value: undefined } : { kind: 'busy', holder }
        })
      }),
    )
  }

  async #fetchClaimed(wish: ImageWish, besides: Readonly<Record<string, number>>, company: Company): Promise<void> {
    const { clock, log, budgets, connections } = this.#deps
    const { host, choice } = wish
    const hasRoom = await this.#hasRoom(wish, besides, company)
    const { claim, volumes, place } = await this.#poll(wish, company, async (at) => {
      const attempt = await tryClaim(this.#claimDeps, scopeOf(wish, at, company), 'download', 'look')
      return attempt.kind === 'held' ? { kind: 'done', value: { ...attempt, place: at } } : attempt
    })
    const here = async () => scopeOf(wish, await this.#place(wish, company.signal), company)
    const upkeep = keepClaimed(claim, here, { clock, log, everyMs: budgets.claimTouchMs })
    try {
      const signal = AbortSignal.any([company.signal, upkeep.lost])
      // The fetch that this one waited for may have brought it.
      const { found, state } = await this.#look(wish, place, volumes, signal)
      if (found !== undefined) return
      const base = await downloadImage(this.#deps, {
        ...{ ...place, host: host.name, choice, volumes, state, besides, hasRoom },
        company: { signal, mayMutate: () => company.mayMutate(), progress: (message) => company.progress(message) },
        withTransfer: (work) => connections.fresh(host.name, signal, work),
        checkClaim: (guard) => claim.check(scopeOf(wish, place, guard)),
      })
      this.#known.set(knownKey(wish), base)
    } finally {
      await upkeep.stop()
      await this.#release(wish, place, claim, company)
    }
  }

  /**
   * Asked before anything is made in the pool. While somebody is at the image it is not asked: what has come so far would count
   * twice.
   */
  async #hasRoom(wish: ImageWish, besides: Readonly<Record<string, number>>, company: Company): Promise<boolean> {
    const { host, choice } = wish
    const place = await this.#place(wish, company.signal)
    const volumes = await listPool(place.api, place.pool, company.signal)
    if (isClaimed(volumes, choice.volume)) return false
    if ((await this.#look(wish, place, volumes, company.signal)).found !== undefined) return false
    await requireRoomFor(this.#deps, { ...place, host: host.name, choice, besides, company })
    return true
  }

  /** Looks until it is nobody else's turn, and tells those who wait whose it is. */
  async #poll<T>(wish: ImageWish, company: Company, look: (place: Place) => Promise<Look<T>>): Promise<T> {
    const { clock, random, budgets } = this.#deps
    const pause = { baseMs: Math.min(firstPollMs, budgets.claimPollMs), maxMs: budgets.claimPollMs, jitter: 0.2 }
    for (let looks = 0; ; looks++) {
      const result = await look(await this.#place(wish, company.signal))
      if (result.kind === 'done') return result.value
      company.progress(waitingFor(wish, result.holder))
      await sleep(clock, backoffDelayMs(pause, looks, random), company.signal)
    }
  }

  /** With what is known of it the marker alone has to be read again: the same digest is the same bytes. */
  async #look(
    wish: ImageWish,
    place: Place,
    volumes: PoolListing,
    signal: AbortSignal,
  ): Promise<{ readonly found?: BaseImage; readonly state: CacheState }> {
    const key = knownKey(wish)
    const known = this.#known.get(key)
    const marker = known && volumes.get(markerName(known.volume.name))
    if (known !== undefined && marker !== undefined && volumes.has(known.volume.name)) {
      const digest = await readDigest(place.api, marker, signal)
      if (digest === known.digest) return { found: known, state: { kind: 'absent' } }
    }
    const looked = await findWanted(place.api, volumes, wish.choice, signal)
    if (looked.found === undefined) this.#known.delete(key)
    else this.#known.set(key, looked.found)
    const { state } = looked
    if (state.kind === 'incomplete') {
      const about = { host: wish.host.name, volume: wish.choice.volume }
      this.#deps.log.debug('base image is not whole', { ...about, why: state.why })
    }
    return looked
  }

  async #place({ host }: ImageWish, signal: AbortSignal): Promise<Place> {
    const api = await this.#deps.connections.line(host.name, 'shared', signal)
    return { api, pool: await api.findPool(host.pool, { signal }) }
  }

  /** Never throws: what is left behind is taken over. */
  async #release(wish: ImageWish, place: Place, claim: Claim, guard: MutationGuard): Promise<void> {
    const { clock, budgets, log } = this.#deps
    try {
      await claim.release(scopeOf(wish, place, guard))
    } catch (lost) {
      // The connection may have ended with whoever used it; another one costs little, and others wait.
      using budget = deadline(clock, 'giving back the claim on an image', budgets.dialMs)
      try {
        await claim.release(scopeOf(wish, await this.#place(wish, budget.signal), guard))
      } catch (thrown) {
        claim.abandon()
        const errors = { error: errorMessage(thrown), first: errorMessage(lost) }
        log.warn('claim on an image left in host pool; it is taken over when it is needed', {
          ...{ host: wish.host.name, volume: wish.choice.volume, ...errors },
        })
      }
    }
  }
}

type Look<T> = { readonly kind: 'done'; readonly value: T } | { readonly kind: 'busy'; readonly holder: Holder }

/** The host by its address: two names for one host would not know of each other. */
function shareKey({ host, choice }: ImageWish): string {
  return [host.ssh.host, host.ssh.port, host.pool, choice.volume].join(' ')
}

/** The alternate name tells the wanted digest or URL. */
function knownKey(wish: ImageWish): string {
  return `${shareKey(wish)} ${wish.choice.alternateVolume}`
}

function scopeOf({ host, choice }: ImageWish, { api, pool }: Place, guard: MutationGuard): ClaimScope {
  return { api, pool, host: host.name, base: choice.volume, guard }
}

function waitingFor({ host, choice }: ImageWish, { purpose }: Holder): string {
  const what = purpose === 'download' ? 'download of' : purpose === 'create' ? 'create from' : 'work on'
  return `waiting for another operator's ${what} image ${choice.label} on host ${host.name}`
}

async function inCreate<T>({ host }: ImageWish, { signal }: Company, work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (thrown) {
    throw classifyInCreate(thrown, { target: host.name, signal })
  }
}

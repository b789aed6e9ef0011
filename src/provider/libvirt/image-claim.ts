// The claim on an image in a host's pool: a small volume that tells all operators who works with the base. Who shares one within this
// process is in image-claims.ts, and what is done under it in images.ts.
import { z } from 'zod'
import type { Random } from '../../lib/backoff.ts'
import type { Clock } from '../../lib/clock.ts'
import { deadline } from '../../lib/deadline.ts'
import { errorMessage } from '../../lib/errors.ts'
import type { Logger } from '../../observe/logger.ts'
import { ErrorCode } from '../../wire/libvirt/errors.ts'
import { ProviderError } from '../errors.ts'
import type { Budgets } from './budgets.ts'
import { hasCode, ifThere } from './errors.ts'
import type { HostTime } from './host-time.ts'
import type { HostApi, MutationGuard, StoragePool, StorageVol } from './host-api.ts'
import { modifiedMs, rawVolumeXml } from './volume-xml.ts'

/** Why a claim is held: to bring the base, or to make an overlay on one that is there. */
export type ClaimPurpose = 'download' | 'create'

/** Volumes of a pool by name, as one listing found them. */
export type PoolListing = ReadonlyMap<string, StorageVol>

export interface ClaimDeps {
  readonly clock: Clock
  readonly random: Random
  readonly log: Logger
  readonly budgets: Budgets
  readonly installation: string
  /** Tokens of the claims that this process holds; shared by everything in it that may claim. */
  readonly tokens: Set<string>
  readonly hostTime: HostTime
}

export interface ClaimScope {
  readonly api: HostApi
  readonly pool: StoragePool
  /** Name of the host in the config. */
  readonly host: string
  /** The base volume that the claim is about, under its plain name. */
  readonly base: string
  readonly guard: MutationGuard
}

export type Attempt =
  /** `volumes` were listed with the claim held. */
  | { readonly kind: 'held'; readonly claim: Claim; readonly volumes: PoolListing }
  | { readonly kind: 'busy'; readonly holder: Holder }

/** Who is in the way; without a purpose when that could not be read. */
export interface Holder {
  readonly purpose?: ClaimPurpose
}

const signatureSchema = z.object({
  installation: z.string(),
  token: z.string(),
  purpose: z.enum(['download', 'create']),
})
type Signature = z.output<typeof signatureSchema>

const maxSignatureBytes = 4096
/** Claims that come and go while one is tried for. */
const maxTries = 5

export function claimName(base: string, number: number): string {
  return `${base}.claim.${number}`
}

export async function listPool(api: HostApi, pool: StoragePool, signal: AbortSignal): Promise<PoolListing> {
  return new Map((await api.listVolumes(pool, { signal })).map((volume) => [volume.name, volume]))
}

/**
 * Takes the claim if it is free, or its holder is gone: past its time, or another process of this installation, of which only
 * one acts at a time. The next number above the abandoned one makes sure that only one takes over.
 * @param how `blind` creates the first number before it looks, for the usual case that nobody holds any
 */
export async function tryClaim(
  deps: ClaimDeps,
  scope: ClaimScope,
  purpose: ClaimPurpose,
  how: 'blind' | 'look',
): Promise<Attempt> {
  if (how === 'blind') {
    const claim = await claimNumber(deps, scope, purpose, { number: 1, abandoned: [] })
    if (claim !== undefined) return claim
  }
  for (let tried = 0; tried < maxTries; tried++) {
    const volumes = await listPool(scope.api, scope.pool, scope.guard.signal)
    const claims = claimsIn(volumes, scope.base)
    const highest = claims.at(-1)
    const abandoned = claims.map((claim) => claim.volume)
    let unsigned: StorageVol | undefined
    if (highest !== undefined) {
      const verdict = await judge(deps, scope, highest.volume)
      if (verdict.kind === 'live') return { kind: 'busy', holder: verdict.holder }
      if (verdict.kind === 'vanished') continue
      deps.log.info('taking over an image', { host: scope.host, volume: scope.base, why: verdict.why })
      if (!verdict.isSigned) unsigned = highest.volume
    }
    const number = (highest?.number ?? 0) + 1
    const claim = await claimNumber(deps, scope, purpose, { number, abandoned, ...(unsigned && { unsigned }) })
    if (claim !== undefined) return claim
  }
  return { kind: 'busy', holder: {} }
}

/** Whether anybody ever claimed the image and did not give it back. */
export function isClaimed(volumes: PoolListing, base: string): boolean {
  return claimsIn(volumes, base).length > 0
}

/** Whether somebody who lives holds the claim; changes nothing but the probe of the host's time. */
export async function claimHolder(deps: ClaimDeps, scope: ClaimScope): Promise<Holder | undefined> {
  const highest = claimsIn(await listPool(scope.api, scope.pool, scope.guard.signal), scope.base).at(-1)
  if (highest === undefined) return undefined
  const verdict = await judge(deps, scope, highest.volume)
  return verdict.kind === 'live' ? verdict.holder : undefined
}

interface Turn {
  readonly number: number
  /** Claims of holders that are gone; removed with this one. */
  readonly abandoned: readonly StorageVol[]
  /** The highest of them when nobody had signed it: its holder may be about to. */
  readonly unsigned?: StorageVol
}

/** Undefined when somebody else has that number, or a better right. */
async function claimNumber(
  deps: ClaimDeps,
  scope: ClaimScope,
  purpose: ClaimPurpose,
  turn: Turn,
): Promise<Attempt | undefined> {
  const { api, pool, base, guard } = scope
  const { number, abandoned } = turn
  const began = deps.clock.monotonic()
  let volume: StorageVol
  try {
    volume = await api.createVolume(pool, rawVolumeXml({ name: claimName(base, number), capacityBytes: 0 }), guard)
  } catch (thrown) {
    if (hasCode(thrown, ErrorCode.STORAGE_VOL_EXIST)) return undefined
    throw thrown
  }
  const claim = new Claim(deps, { number, volume, purpose, abandoned, validFromMs: began })
  try {
    await claim.sign(scope)
    const volumes = await listPool(api, pool, guard.signal)
    // A slow one may have taken a low number again that the present holder has cleared away.
    const isHighest = claimsIn(volumes, base).at(-1)?.number === number
    if (isHighest && !(await isSignedBy(turn.unsigned, scope))) return { kind: 'held', claim, volumes }
    await claim.release(scope, 'own')
    return undefined
  } catch (thrown) {
    await claim.release(scope, 'own').catch((left: unknown) => {
      claim.abandon()
      deps.log.debug('claim on an image left in host pool', { host: scope.host, error: errorMessage(left) })
    })
    throw thrown
  }
}

/** Who signs looks for a higher number next, and who takes the higher number looks for a signature: never do both go on. */
async function isSignedBy(unsigned: StorageVol | undefined, { api, guard }: ClaimScope): Promise<boolean> {
  return unsigned !== undefined && (await ifThere(readSignature(api, unsigned, guard.signal))) !== undefined
}

interface ClaimFacts {
  readonly number: number
  readonly volume: StorageVol
  readonly purpose: ClaimPurpose
  /** Claims of holders that are gone; removed with this one. */
  readonly abandoned: readonly StorageVol[]
  /** Monotonic time at which the volume was not there yet. */
  readonly validFromMs: number
}

/** A claim that this process holds. Its token is known to the process from before it stands on the host until it is released. */
export class Claim {
  readonly #deps: ClaimDeps
  readonly #facts: ClaimFacts
  readonly #token: string
  #touchedMs: number

  constructor(deps: ClaimDeps, facts: ClaimFacts) {
    this.#deps = deps
    this.#facts = facts
    this.#token = Array.from({ length: 4 }, () => hex(deps.random)).join('')
    this.#touchedMs = facts.validFromMs
    deps.tokens.add(this.#token)
  }

  /** Writes who holds it, which also begins its time anew. */
  async sign(scope: ClaimScope): Promise<void> {
    const began = this.#deps.clock.monotonic()
    const { installation } = this.#deps
    const signature: Signature = { installation, token: this.#token, purpose: this.#facts.purpose }
    await scope.api.writeVolume(this.#facts.volume, Buffer.from(JSON.stringify(signature)), scope.guard)
    this.#touchedMs = began
  }

  /** @throws ProviderError transient, code `ClaimLost`, when somebody took over */
  async check(scope: ClaimScope): Promise<void> {
    const { api, pool, base, guard } = scope
    const highest = claimsIn(await listPool(api, pool, guard.signal), base).at(-1)
    if (highest?.number === this.#facts.number && (this.#isFresh() || (await this.#standsAsOurs(scope)))) return
    throw lost(scope)
  }

  /** Without a call, for a claim that is held for moments only. @throws ProviderError as {@link check} */
  requireFresh(scope: ClaimScope): void {
    if (!this.#isFresh()) throw lost(scope)
  }

  /**
   * On time of its own. One that may change nothing any more leaves it: a successor of this installation takes over at once. Only
   * one that was told to let go gives it back all the same, after a look that it is ours: others would wait for nobody.
   * When it throws the claim is still this process's.
   * @param what with `all` the abandoned claims that it was built on go, too
   */
  async release(scope: ClaimScope, what: 'own' | 'all' = 'all'): Promise<void> {
    const { guard } = scope
    const mayMutate = guard.mayMutate()
    if (!mayMutate && !guard.signal.aborted) {
      this.abandon()
      return
    }
    const { clock, budgets } = this.#deps
    using budget = deadline(clock, `giving back the claim on ${scope.base}`, budgets.rpcMs)
    const own: MutationGuard = { signal: budget.signal, mayMutate: () => true }
    if ((mayMutate && this.#isFresh()) || (await this.#standsAsOurs({ ...scope, guard: own }))) {
      // Ours first: with an abandoned one gone before it, somebody could begin to count anew below us.
      for (const volume of [this.#facts.volume, ...(what === 'all' ? this.#facts.abandoned : [])]) {
        await ifThere(scope.api.deleteVolume(volume, own))
      }
    }
    this.abandon()
  }

  /** Leaves it on the host: whoever needs the image takes it over. */
  abandon(): void {
    this.#deps.tokens.delete(this.#token)
  }

  /** Far from its end, so that nobody can have taken over and released again under the same number. */
  #isFresh(): boolean {
    return this.#deps.clock.monotonic() - this.#touchedMs < this.#deps.budgets.claimMs / 2
  }

  async #standsAsOurs({ api, guard }: ClaimScope): Promise<boolean> {
    const signature = await ifThere(readSignature(api, this.#facts.volume, guard.signal))
    return signature?.token === this.#token
  }
}

function lost({ host, base }: ClaimScope): ProviderError {
  return ProviderError.transient(
    `host ${host}: another operator may have taken over ${base}, because this one did not get on with it`,
    { code: 'ClaimLost', target: host },
  )
}

type Verdict =
  | { readonly kind: 'live'; readonly holder: Holder }
  | { readonly kind: 'gone'; readonly isSigned: boolean; readonly why: string }
  | { readonly kind: 'vanished' }

async function judge(deps: ClaimDeps, scope: ClaimScope, volume: StorageVol): Promise<Verdict> {
  const { api, guard } = scope
  const { signal } = guard
  const found = await ifThere(Promise.all([api.volumeXml(volume, { signal }), readSignature(api, volume, signal)]))
  if (found === undefined) return { kind: 'vanished' }
  const [xml, signature] = found
  const live: Verdict = { kind: 'live', holder: signature === undefined ? {} : { purpose: signature.purpose } }
  if (signature !== undefined) {
    if (deps.tokens.has(signature.token)) return live
    if (signature.installation === deps.installation) {
      return { kind: 'gone', isSigned: true, why: 'it was claimed by a process of this installation that is gone' }
    }
  }
  const modified = modifiedMs(xml)
  // A pool that keeps no times: nobody can be told to be late there.
  if (modified === undefined) return live
  const limitMs = signature === undefined ? deps.budgets.claimUnsignedMs : deps.budgets.claimMs
  for (const reading of ['known', 'now'] as const) {
    const ageMs = (await deps.hostTime.nowMs(scope, reading)) - modified
    if (ageMs <= limitMs) return live
  }
  const whose = signature === undefined ? 'nobody signed its claim' : `installation ${signature.installation} holds it`
  const why = `${whose}, and it was not touched for ${limitMs / 1000} s`
  return { kind: 'gone', isSigned: signature !== undefined, why }
}

/** Undefined for one that is not signed, or not yet. */
async function readSignature(api: HostApi, volume: StorageVol, signal: AbortSignal): Promise<Signature | undefined> {
  const content = (await api.readVolume(volume, 0, maxSignatureBytes, { signal })).toString('utf8')
  try {
    return signatureSchema.safeParse(JSON.parse(content)).data
  } catch (error) {
    if (error instanceof SyntaxError) return undefined
    throw error
  }
}

interface NumberedClaim {
  readonly number: number
  readonly volume: StorageVol
}

/** Ascending. */
function claimsIn(volumes: PoolListing, base: string): readonly NumberedClaim[] {
  const prefix = `${base}.claim.`
  return [...volumes.values()]
    .filter(({ name }) => name.startsWith(prefix) && /^[1-9][0-9]{0,14}$/.test(name.slice(prefix.length)))
    .map((volume) => ({ number: Number(volume.name.slice(prefix.length)), volume }))
    .sort((a, b) => a.number - b.number)
}

function hex(random: Random): string {
  return Math.floor(random() * 2 ** 32)
    .toString(16)
    .padStart(8, '0')
}

// What a Proxy's spec points to in Secrets: user-data and credentials, read when needed and again every five minutes.
import type { ProbeCredentials } from '../api/probe.ts'
import type { ManagedSpec, Proxy } from '../api/proxy.ts'
import { isNotFound, KubeError } from '../kube/errors.ts'
import { keyOf } from '../kube/object.ts'
import type { Clock } from '../lib/clock.ts'
import { Secret } from '../lib/secret.ts'
import type { ReadSecret, SecretValues } from './ports.ts'
import { specHash } from './spec-hash.ts'

/** A Secret is read again after this time, milliseconds. */
export const secretMaxAgeMs = 300_000

/** The Secret is not there or has not what it must have: something for a person, not for a retry. */
export interface SecretProblem {
  readonly kind: 'unavailable'
  readonly reason: string
  readonly message: string
}

export type DesiredHash = { readonly kind: 'known'; readonly specHash: string } | SecretProblem
export type UserData =
  { readonly kind: 'known'; readonly specHash: string; readonly bytes?: Secret<Buffer> } | SecretProblem
export type Credentials = { readonly kind: 'known'; readonly credentials: ProbeCredentials } | SecretProblem

type ManagedProxy = Proxy & { readonly spec: ManagedSpec }

interface Cached<T> {
  /** Another object under the same name is read anew. */
  readonly uid: string
  readonly generation: number | undefined
  readonly readMs: number
  readonly value: T
}

/** Of user-data only the hash is kept in memory. Everything rejects with a KubeError when the API server cannot be asked. */
export class SecretSources {
  readonly #read: ReadSecret
  readonly #clock: Clock
  readonly #hashes = new Map<string, Cached<DesiredHash>>()
  readonly #credentials = new Map<string, Cached<Credentials>>()

  constructor(options: { readonly read: ReadSecret; readonly clock: Clock }) {
    this.#read = options.read
    this.#clock = options.clock
  }

  /** The hash of what the instance should be made from, at most five minutes old. */
  async desiredHash(proxy: ManagedProxy, signal: AbortSignal): Promise<DesiredHash> {
    const cached = this.#hashes.get(keyOf(proxy.metadata))
    if (cached !== undefined && this.#isFresh(cached, proxy)) return cached.value
    const data = await this.userData(proxy, signal)
    return data.kind === 'known' ? { kind: 'known', specHash: data.specHash } : data
  }

  /** The user-data itself with the hash of just these bytes, read now. */
  async userData(proxy: ManagedProxy, signal: AbortSignal): Promise<UserData> {
    const data = await this.#readUserData(proxy, signal)
    const value: DesiredHash = data.kind === 'known' ? { kind: 'known', specHash: data.specHash } : data
    this.#hashes.set(keyOf(proxy.metadata), this.#cached(proxy, value))
    return data
  }

  /** Credentials of the proxy, at most five minutes old. A Secret that went away leaves the last ones in force. */
  async credentials(proxy: Proxy, name: string, signal: AbortSignal): Promise<Credentials> {
    const cached = this.#credentials.get(keyOf(proxy.metadata))
    if (cached !== undefined && this.#isFresh(cached, proxy)) return cached.value
    const read = await this.#readCredentials(proxy, name, signal)
    const lost = read.kind === 'unavailable' && cached?.value.kind === 'known' && isOf(cached, proxy)
    const value = lost ? cached.value : read
    this.#credentials.set(keyOf(proxy.metadata), this.#cached(proxy, value))
    return value
  }

  /** Milliseconds until something that this Proxy names is read again; undefined when it names nothing. */
  rereadInMs(proxy: Proxy): number | undefined {
    const key = keyOf(proxy.metadata)
    const named = [
      proxy.spec.cloudInitFrom === undefined ? undefined : this.#hashes.get(key),
      proxy.spec.credentialsSecretRef === undefined ? undefined : this.#credentials.get(key),
    ].filter((cached) => cached !== undefined)
    if (named.length === 0) return undefined
    const now = this.#clock.monotonic()
    return Math.max(Math.min(...named.map((cached) => cached.readMs + maxAgeMs(cached.value) - now)), 0)
  }

  forget(key: string): void {
    this.#hashes.delete(key)
    this.#credentials.delete(key)
  }

  async #readUserData(proxy: ManagedProxy, signal: AbortSignal): Promise<UserData> {
    const { provider, placement, cloudInit, cloudInitFrom } = proxy.spec
    if (cloudInitFrom === undefined) {
      if (cloudInit === undefined) return { kind: 'known', specHash: specHash({ provider, placement }) }
      const bytes = Buffer.from(cloudInit, 'utf8')
      return { kind: 'known', specHash: specHash({ provider, placement, userData: bytes }), bytes: new Secret(bytes) }
    }
    const { name, key } = cloudInitFrom.secretKeyRef
    const values = await this.#values(proxy, name, 'spec.cloudInitFrom', signal)
    if ('kind' in values) return values
    const bytes = values.get(key)
    if (bytes === undefined) return missingKey(proxy, name, key)
    return { kind: 'known', specHash: specHash({ provider, placement, userData: bytes }), bytes: new Secret(bytes) }
  }

  async #readCredentials(proxy: Proxy, name: string, signal: AbortSignal): Promise<Credentials> {
    const values = await this.#values(proxy, name, 'spec.credentialsSecretRef', signal)
    if ('kind' in values) return values
    const username = values.get('username')
    if (username === undefined) return missingKey(proxy, name, 'username')
    const password = values.get('password')
    if (password === undefined) return missingKey(proxy, name, 'password')
    const credentials = { username: username.toString('utf8'), password: new Secret(password.toString('utf8')) }
    return { kind: 'known', credentials }
  }

  async #values(proxy: Proxy, name: string, field: string, signal: AbortSignal): Promise<SecretValues | SecretProblem> {
    try {
      return await this.#read({ namespace: proxy.metadata.namespace, name }, signal)
    } catch (error) {
      if (isNotFound(error)) return missingSecret(proxy, name, field)
      if (error instanceof KubeError && error.code === 'KUBE_FORBIDDEN') return forbiddenSecret(proxy, name)
      throw error
    }
  }

  #cached<T>(proxy: Proxy, value: T): Cached<T> {
    const { uid, generation } = proxy.metadata
    return { uid, generation, readMs: this.#clock.monotonic(), value }
  }

  #isFresh(cached: Cached<DesiredHash | Credentials>, proxy: Proxy): boolean {
    const age = this.#clock.monotonic() - cached.readMs
    return isOf(cached, proxy) && age < maxAgeMs(cached.value)
  }
}

function isOf(cached: Cached<unknown>, { metadata }: Proxy): boolean {
  return cached.uid === metadata.uid && cached.generation === metadata.generation
}

/** A Secret that is not there is usually about to be: it is looked for every 15 s. */
function maxAgeMs(value: DesiredHash | Credentials): number {
  return value.kind === 'unavailable' ? 15_000 : secretMaxAgeMs
}

function missingSecret(proxy: Proxy, name: string, field: string): SecretProblem {
  const secret = keyOf({ namespace: proxy.metadata.namespace, name })
  return {
    kind: 'unavailable',
    reason: 'SecretNotFound',
    message: `Secret ${secret}, named in ${field}, does not exist: create it, or change the spec`,
  }
}

function missingKey(proxy: Proxy, name: string, key: string): SecretProblem {
  const secret = keyOf({ namespace: proxy.metadata.namespace, name })
  return {
    kind: 'unavailable',
    reason: 'SecretKeyNotFound',
    message: `Secret ${secret} has no key ${key}: add it, or change the spec`,
  }
}

function forbiddenSecret(proxy: Proxy, name: string): SecretProblem {
  const secret = keyOf({ namespace: proxy.metadata.namespace, name })
  return {
    kind: 'unavailable',
    reason: 'SecretForbidden',
    message: `the operator may not read Secret ${secret}: allow its service account to get Secrets in that namespace`,
  }
}

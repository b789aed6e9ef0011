// What a provider offers and how it fails; nothing outside a provider knows more than this. No provider is imported here.
import type { Secret } from '../lib/secret.ts'

/** Where a Proxy wants its instance; what the values mean is the provider's catalogue. */
export interface Placement {
  readonly zone?: string
  readonly machineType?: string
  readonly image?: string
  readonly region?: string
}

/** What is written down before a mutation, so that a crash right after it hides nothing. Kept in `status.intents`. */
export interface Intent {
  /** Host or node that is about to be changed. */
  readonly target: string
  /** Proxmox only: the VMID about to be taken. */
  readonly vmid?: number
}

/** Who owns an instance. Every instance carries it in its mark. */
export interface Owner {
  /** metadata.uid of the Proxy. */
  readonly uid: string
  /** Id of this installation, a DNS label. */
  readonly installation: string
  readonly namespace: string
  /** metadata.name of the Proxy. */
  readonly name: string
}

export interface CreateRequest {
  readonly owner: Owner
  /** Name to create under: `proxy-` and 20 hex digits. */
  readonly instanceName: string
  readonly specHash: string
  readonly placement: Placement
  /** cloud-init user-data, byte for byte; absent boots the image without any. */
  readonly userData?: Secret<Buffer>
  /** Intents of earlier attempts, oldest first. */
  readonly intents: readonly Intent[]
}

export interface DeleteRequest {
  readonly owner: Owner
  readonly instanceName: string
  /** Absent when no create ever returned. */
  readonly providerID?: string
  readonly intents: readonly Intent[]
}

export interface CallContext {
  /** Ends the call early with a transient error. Mutating calls already on the wire are waited for. */
  readonly signal: AbortSignal
}

export interface MutationContext extends CallContext {
  /** Lease held and not aborted. Asked right before every mutating call on the wire. */
  mayMutate(): boolean
  /** Whether a Proxy with this UID exists, read from the API server itself. */
  isLive(uid: string): Promise<boolean>
}

export interface CreateContext extends MutationContext {
  /** Writes the intent to the object's status; rejects when the object is no longer ours to act for. */
  record(intent: Intent): Promise<void>
  /** Reports where a long step is, for people: bytes and percent of a download, what is waited for. */
  progress(message: string): void
}

export type InstanceState = 'provisioning' | 'running' | 'paused' | 'stopped'

export interface Instance {
  readonly state: InstanceState
  /** It carries the mark of a type that its provider takes over from: a create gives it ours, and changes nothing else. */
  readonly unadopted?: boolean
  /** The instance's own address, when it is known. */
  readonly ip?: string
  /** UID in the mark. */
  readonly uid?: string
  /** Spec hash in the mark. */
  readonly specHash?: string
  /** Set when the image or template it was made from is no longer the configured one: what differs, for people. */
  readonly outdated?: string
}

/** An instance that carries our mark, as a listing shows it. */
export interface ListedInstance {
  readonly providerID: string
  readonly instanceName: string
  readonly target: string
  readonly state: InstanceState
  /** Absent when the mark cannot be parsed: reported as unidentified, never collected. */
  readonly mark?: Mark
}

export interface Mark {
  readonly uid?: string
  readonly installation?: string
  readonly namespace?: string
  readonly name?: string
  readonly specHash?: string
  /** Key of the image in the catalogue; absent for one that was named otherwise. */
  readonly image?: string
  readonly imageDigest?: string
  /** When the instance was made, ISO 8601. */
  readonly createdAt?: string
}

/** What an instance left behind, as nobody but its own installation may take it away. */
export interface Leftover {
  readonly target: string
  /** Of the instance that it was part of. */
  readonly instanceName: string
  /** Their names, for people. */
  readonly volumes: readonly string[]
  /** UID of the Proxy that it was made for. */
  readonly uid: string
  /** Milliseconds since the last of it was written, by the target's own times. */
  readonly ageMs: number
}

/** Result of one target's health check. */
export interface TargetHealth {
  readonly name: string
  readonly address: string
  readonly ready: boolean
  /** CamelCase; `Reachable` when ready. */
  readonly reason: string
  readonly message: string
  readonly latencyMs: number
  readonly details: Readonly<Record<string, string>>
}

/** States of all our instances on one target, by providerID. What the round could not tell is left out. */
export type ObservedStates = ReadonlyMap<string, InstanceState>

/** Told that an instance changed, so that nobody has to poll. */
export type InstanceListener = (change: { readonly providerID: string }) => void

/**
 * A kind of hypervisor under one entry of the providers config. Every call carries its own budgets, ends early with the
 * signal, and fails only with a ProviderError (errors.ts).
 */
export interface Provider {
  /** Name of the entry in the providers config. */
  readonly name: string
  /** Its type, for example `kvm2`. */
  readonly type: string
  /** Names of the configured hosts or nodes, in config order. */
  readonly targets: readonly string[]

  /**
   * Makes the instance exist and run, and returns its providerID. Idempotent: a repeat after any crash carries on where
   * the last attempt stopped and never makes a second instance. Does not wait for an address. Never fails with `notFound`.
   */
  create(request: CreateRequest, context: CreateContext): Promise<string>
  /** `notFound` only when the instance is certainly gone. */
  get(providerID: string, context: CallContext): Promise<Instance>
  /** When it returns nothing of the Proxy is left on any recorded target. Never touches an instance that is not ours. */
  delete(request: DeleteRequest, context: MutationContext): Promise<DeleteResult>
  /** One cheap round over a target. */
  observe(target: string, context: CallContext): Promise<ObservedStates>
  /** Every instance with our mark on every target; an incomplete answer is an error, never a shorter list. */
  list(context: CallContext): Promise<readonly ListedInstance[]>
  /** One result per target, in config order, checked concurrently; never throws for a target. */
  check(context: CallContext): Promise<readonly TargetHealth[]>
  /** What has our name but no instance, on every target; an incomplete answer is an error, never a shorter list. */
  leftovers(context: CallContext): Promise<readonly Leftover[]>
  /** Judges it anew: fails with `transient` when it is in use or its Proxy exists. Idempotent. */
  remove(leftover: Leftover, context: MutationContext): Promise<void>
  /** Optional: pushes changes until the returned function is called. */
  watch?(listener: InstanceListener): () => void
  /** Ends connections; calls in flight end with `transient`. */
  close(): Promise<void>
}

export interface DeleteResult {
  /** Instances that could not be deleted because their target is no longer configured, for a Warning Event. */
  readonly abandoned: readonly { readonly target: string; readonly instanceName: string }[]
}

/** The providers in force, by entry name. */
export interface ProviderSet {
  get(name: string): ConfiguredProvider | undefined
  list(): readonly ConfiguredProvider[]
}

export interface ConfiguredProvider {
  readonly provider: Provider
  /** Hash over the entry; a change ends a latch. */
  readonly configHash: string
}

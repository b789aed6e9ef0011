// What the reconcilers need from their neighbours, as interfaces that the composition root fills; no implementation.
import type { Proxy } from '../api/proxy.ts'
import type { ProviderHealth } from '../api/provider-health.ts'
import type { ProbeTarget, Verdict } from '../api/probe.ts'
import type { EventNote, EventSubject } from '../kube/events.ts'
import type { ObjectRef } from '../kube/object.ts'
import type { JsonObject } from './merge-patch.ts'

export type { ProbeCredentials, ProbeSettings, ProbeTarget, Verdict } from '../api/probe.ts'

/** The health engine as the reconciler sees it. Transitions reach the reconciler as a key in its queue. */
export interface ProbeControl {
  /** Begins or changes the probing of `key`; the first probe follows at once. Idempotent for an equal target. */
  watch(key: string, target: ProbeTarget): void
  forget(key: string): void
  verdict(key: string): Verdict
}

/** The queue of keys of Proxies. */
export interface KeyQueue {
  add(key: string): void
}

/** Proxies as a reflector last saw them. */
export interface ProxyReader {
  /** @param key `namespace/name` */
  get(key: string): Proxy | undefined
  list(): readonly Proxy[]
}

/** Requests about Proxies. Each fails with a KubeError. */
export interface ProxyApi {
  get(ref: ObjectRef, signal?: AbortSignal): Promise<Proxy>
  /** All Proxies that this installation may own, from the API server itself. */
  list(signal?: AbortSignal): Promise<readonly Proxy[]>
  /** Merge patch of the status; a conflict when the object is no longer at that version. */
  patchStatus(proxy: Proxy, patch: JsonObject, signal?: AbortSignal): Promise<Proxy>
  /** Replaces the finalizers; a conflict when the object is no longer at that version. */
  patchFinalizers(proxy: Proxy, finalizers: readonly string[], signal?: AbortSignal): Promise<Proxy>
}

/** Values of a Secret by key, decoded. */
export type SecretValues = ReadonlyMap<string, Buffer>

/** Reads a Secret from the API server. Fails with a KubeError. */
export type ReadSecret = (ref: ObjectRef, signal?: AbortSignal) => Promise<SecretValues>

/** Takes Events without waiting and without failing. */
export interface EventSink {
  record(subject: EventSubject, note: EventNote): void
}

/** What health checks said about targets. */
export interface TargetReadiness {
  /** When the last check of the target that found it ready ended, milliseconds since the epoch. */
  lastReadyMs(provider: string, target: string): number | undefined
}

/** Requests about ProviderHealth objects. Each fails with a KubeError. */
export interface ProviderHealthApi {
  get(name: string, signal?: AbortSignal): Promise<ProviderHealth>
  list(labels: Readonly<Record<string, string>>, signal?: AbortSignal): Promise<readonly ProviderHealth[]>
  create(name: string, labels: Readonly<Record<string, string>>, signal?: AbortSignal): Promise<ProviderHealth>
  /** Adds labels; a conflict when the object is no longer at that version. */
  setLabels(
    object: ProviderHealth,
    labels: Readonly<Record<string, string>>,
    signal?: AbortSignal,
  ): Promise<ProviderHealth>
  /** Merge patch of the status; a conflict when the object is no longer at that version. */
  patchStatus(object: ProviderHealth, patch: JsonObject, signal?: AbortSignal): Promise<ProviderHealth>
  /** Removes just this version of it; one that is gone already is fine. */
  remove(object: ProviderHealth, signal?: AbortSignal): Promise<void>
}

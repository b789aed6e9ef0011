// The shape of the corpus of good and bad objects, and helpers to write its entries; no judging here.
import { apiVersion, providerHealthKind, proxyKind } from '../../../src/api/group.ts'

/** A part of an object as JSON; `undefined` leaves a field out. */
export type Json = Record<string, unknown>

/** What both judges must say. */
export type Verdict =
  | { readonly kind: 'good' }
  | {
      readonly kind: 'bad'
      /** Path of a field that the answer must name. */
      readonly field: string
      /** Words that both judges use; only for rules of ours, since the rest is said in each judge's own words. */
      readonly says?: string
    }

export interface CorpusEntry {
  /** Unique; also the end of the object's name. */
  readonly name: string
  readonly kind: typeof proxyKind.kind | typeof providerHealthKind.kind
  /** Without it the object is created. With it, that one is created and then replaced by the object. */
  readonly old?: Json
  /** All but metadata. A `status` is written through the subresource. */
  readonly object: Json
  readonly verdict: Verdict
}

/** The least that a Managed proxy needs. */
export const managed = {
  provider: 'kvm-a',
  placement: { machineType: 'small', image: 'debian-13' },
} as const satisfies Json

export const good: Verdict = { kind: 'good' }

export function bad(field: string, says?: string): Verdict {
  return says === undefined ? { kind: 'bad', field } : { kind: 'bad', field, says }
}

export function proxyObject(spec: unknown, more: Json = {}): Json {
  return { apiVersion, kind: proxyKind.kind, spec, ...more }
}

/** A Managed proxy with these fields changed. */
export function proxy(name: string, spec: Json, verdict: Verdict): CorpusEntry {
  return { name, kind: proxyKind.kind, object: proxyObject({ ...managed, ...spec }), verdict }
}

/** A proxy with exactly this spec. */
export function proxyWith(name: string, spec: unknown, verdict: Verdict): CorpusEntry {
  return { name, kind: proxyKind.kind, object: proxyObject(spec), verdict }
}

/** A Managed proxy whose fields `before` become `after`. */
export function update(name: string, before: Json, after: Json, verdict: Verdict): CorpusEntry {
  return {
    name,
    kind: proxyKind.kind,
    old: proxyObject({ ...managed, ...before }),
    object: proxyObject({ ...managed, ...after }),
    verdict,
  }
}

/** A Managed proxy that gets this status. */
export function proxyStatus(name: string, status: Json, verdict: Verdict): CorpusEntry {
  return { name, kind: proxyKind.kind, object: proxyObject(managed, { status }), verdict }
}

/** A ProviderHealth that gets this status. */
export function providerHealth(name: string, status: Json, verdict: Verdict): CorpusEntry {
  return { name, kind: providerHealthKind.kind, object: { apiVersion, kind: providerHealthKind.kind, status }, verdict }
}

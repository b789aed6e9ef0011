// What the reconciler needs from its neighbours, as interfaces that the composition root fills; no implementation.
import type { ProbeTarget, Verdict } from '../api/probe.ts'

export type { ProbeCredentials, ProbeSettings, ProbeTarget, Verdict } from '../api/probe.ts'

/** The health engine as the reconciler sees it. Transitions reach the reconciler as a key in its queue. */
export interface ProbeControl {
  /** Begins or changes the probing of `key`; the first probe follows at once. Idempotent for an equal target. */
  watch(key: string, target: ProbeTarget): void
  forget(key: string): void
  verdict(key: string): Verdict
}

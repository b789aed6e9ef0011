// What a probe of a proxy needs to know and what it says, shared by who asks and who probes; no probing here.
import type { Secret } from '../lib/secret.ts'

/** What a probe needs to know about one proxy. A change of any field begins anew: the old verdict is dropped. */
export interface ProbeTarget {
  /** UID of the Proxy: another object under the same name is another target. */
  readonly uid: string
  readonly host: string
  readonly port: number
  readonly credentials?: ProbeCredentials
  readonly settings: ProbeSettings
}

export interface ProbeCredentials {
  readonly username: string
  readonly password: Secret<string>
}

export interface ProbeSettings {
  /** Absolute http(s) URL fetched through the proxy. */
  readonly url: string
  readonly intervalMs: number
  readonly timeoutMs: number
  /** Failures in a row that make a healthy proxy unhealthy. */
  readonly failureThreshold: number
  /** Successes in a row that make a proxy healthy. */
  readonly successThreshold: number
}

/** What the probes of one target say at the moment. */
export type Verdict =
  | { readonly kind: 'pending' }
  | { readonly kind: 'healthy'; readonly latencyMs: number; readonly egressIP?: string }
  | { readonly kind: 'unhealthy'; readonly reason: string; readonly message: string }
  /** The target of the check fails without the proxy too: nobody's fault, phase and discovery keep the last verdict. */
  | { readonly kind: 'unknown'; readonly reason: 'TargetUnreachable'; readonly message: string }

// What the discovery API says of a proxy, derived from the object in memory; no HTTP, no credentials.
import { findCondition } from '../api/conditions.ts'
import type { Verdict } from '../api/probe.ts'
import { proxyConditions, type Proxy } from '../api/proxy.ts'
import { matchesLabels, type Requirement } from './label-selector.ts'

/** One proxy as clients see it. */
export interface ProxyView {
  readonly name: string
  readonly namespace: string
  /** `http://host:port`, IPv6 in brackets. */
  readonly url: string
  readonly host: string
  readonly port: number
  readonly provider: string | null
  readonly zone: string | null
  readonly labels: Readonly<Record<string, string>>
  /** Whether the proxy is Ready. */
  readonly healthy: boolean
  /** The address the internet sees, when the check's target told it. */
  readonly egressIP: string | null
  /** Of the last successful probe by this replica, milliseconds. */
  readonly latencyMillis: number | null
  /** When it became Ready or stopped being so, RFC 3339. */
  readonly since: string | null
}

export interface Filter {
  readonly namespace?: string
  readonly provider?: string
  readonly zone?: string
  readonly labels: readonly Requirement[]
  readonly healthy: 'true' | 'any'
}

/** The view of a Proxy, or undefined when it has no endpoint yet or is on its way out. */
export function viewOf(proxy: Proxy, verdict: Verdict): ProxyView | undefined {
  const { status, spec, metadata } = proxy
  const host = status?.ip ?? spec.host
  if (status?.endpoint === undefined || host === undefined || metadata.deletionTimestamp !== undefined) return undefined
  return {
    name: metadata.name,
    namespace: metadata.namespace,
    url: status.endpoint,
    host,
    port: spec.port,
    provider: spec.provider ?? null,
    zone: spec.placement?.zone ?? null,
    labels: metadata.labels ?? {},
    healthy: status.phase === 'Ready',
    egressIP: status.egressIP ?? null,
    latencyMillis: verdict.kind === 'healthy' ? Math.round(verdict.latencyMs) : null,
    since: findCondition(status.conditions, proxyConditions.ready)?.lastTransitionTime ?? null,
  }
}

export function matches(view: ProxyView, filter: Filter): boolean {
  return (
    (filter.healthy === 'any' || view.healthy) &&
    (filter.namespace === undefined || view.namespace === filter.namespace) &&
    (filter.provider === undefined || view.provider === filter.provider) &&
    (filter.zone === undefined || view.zone === filter.zone) &&
    matchesLabels(filter.labels, view.labels)
  )
}

/** Stable order, so that equal lists have equal ETags. */
export function compareViews(a: ProxyView, b: ProxyView): number {
  return compareText(a.namespace, b.namespace) || compareText(a.name, b.name)
}

function compareText(a: string, b: string): number {
  if (a === b) return 0
  return a < b ? -1 : 1
}

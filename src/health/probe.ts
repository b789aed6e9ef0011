// One probe: a real request through the proxy, and whose fault a failure is. No schedule, no thresholds.
import { isIP } from 'node:net'
import type { ProbeTarget } from '../api/probe.ts'
import type { Clock } from '../lib/clock.ts'
import { deadline } from '../lib/deadline.ts'
import { fetchThroughProxy, type ProxyFetchResult } from '../wire/http-proxy/client.ts'
import { isSuccess, type DirectChecks } from './direct.ts'
import type { ProbeResult } from './hysteresis.ts'

/** Enough for an address in plain text or JSON. */
const maxBodyBytes = 4096

export interface ProbeDependencies {
  readonly clock: Clock
  readonly direct: DirectChecks
  readonly fetch?: typeof fetchThroughProxy
}

/** A failure before blame: whether the check's target may be the cause. */
interface Failure {
  readonly reason: string
  readonly message: string
  readonly targetMayBeAtFault: boolean
}

/** Probes once within the target's timeout. Rejects only when `signal` aborts. */
export async function probe(target: ProbeTarget, deps: ProbeDependencies, signal: AbortSignal): Promise<ProbeResult> {
  const url = new URL(target.settings.url)
  const { timeoutMs } = target.settings
  using budget = deadline(deps.clock, `request to ${url.host} through the proxy`, timeoutMs, signal)
  const result = await (deps.fetch ?? fetchThroughProxy)(target, {
    url,
    clock: deps.clock,
    signal: budget.signal,
    maxBodyBytes,
  })
  signal.throwIfAborted()
  if (result.kind === 'answered' && isSuccess(result.status)) {
    // asked now, while things work: what a later failure of the target means depends on whether it ever answered directly
    void deps.direct.check(target.settings.url, timeoutMs)
    const egressIP = parseAddress(result.body)
    return { kind: 'success', latencyMs: result.latencyMs, ...(egressIP === undefined ? {} : { egressIP }) }
  }
  const failure = describe(result, url)
  if (!failure.targetMayBeAtFault) return { kind: 'failure', reason: failure.reason, message: failure.message }
  const direct = await deps.direct.check(target.settings.url, timeoutMs)
  signal.throwIfAborted()
  if (direct.kind === 'unreachable') return { kind: 'targetDown', message: `${url.host}: ${direct.message}` }
  return { kind: 'failure', reason: failure.reason, message: failure.message }
}

/** The address in a body that is nothing but one, or JSON with it under `ip`. */
export function parseAddress(body: string): string | undefined {
  const text = body.trim()
  if (isIP(text) !== 0) return text
  if (!text.startsWith('{')) return undefined
  try {
    const value: unknown = JSON.parse(text)
    if (typeof value !== 'object' || value === null || !('ip' in value)) return undefined
    return typeof value.ip === 'string' && isIP(value.ip) !== 0 ? value.ip : undefined
  } catch {
    // a page that merely begins like JSON tells no address
    return undefined
  }
}

function describe(result: ProxyFetchResult, url: URL): Failure {
  switch (result.kind) {
    case 'unreachable':
      return { reason: 'ProxyUnreachable', message: result.message, targetMayBeAtFault: false }
    case 'tunnelRefused':
      return answerFailure(result.status, `the proxy answered ${result.status} to CONNECT ${url.host}`)
    case 'broken':
      return result.stage === 'tls'
        ? { reason: 'TLSFailed', message: `TLS through the proxy: ${result.message}`, targetMayBeAtFault: true }
        : { reason: 'RequestFailed', message: result.message, targetMayBeAtFault: true }
    case 'answered':
      return answerFailure(result.status, `the proxy answered ${result.status} for ${url.host}`)
  }
}

function answerFailure(status: number, message: string): Failure {
  if (status === 407) {
    const hint = `${message}: it wants credentials, name them in spec.credentialsSecretRef`
    return { reason: 'ProxyAuthenticationRequired', message: hint, targetMayBeAtFault: false }
  }
  return { reason: 'BadStatus', message, targetMayBeAtFault: true }
}

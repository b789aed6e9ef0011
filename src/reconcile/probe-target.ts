// What the health engine is to probe for a Proxy: a pure function of the spec and the address.
import { parseDurationMs } from '../api/duration.ts'
import type { ProbeCredentials, ProbeTarget } from '../api/probe.ts'
import type { Proxy } from '../api/proxy.ts'

/**
 * @param host address or name of the proxy
 * @param url page to fetch through it
 */
export function probeTarget(proxy: Proxy, host: string, url: string, credentials?: ProbeCredentials): ProbeTarget {
  const { interval, timeout, failureThreshold, successThreshold } = proxy.spec.healthCheck
  return {
    uid: proxy.metadata.uid,
    host,
    port: proxy.spec.port,
    settings: {
      url,
      intervalMs: durationMs(interval),
      timeoutMs: durationMs(timeout),
      failureThreshold,
      successThreshold,
    },
    ...(credentials === undefined ? {} : { credentials }),
  }
}

/** @throws when it is none, which the API server would have refused */
function durationMs(text: string): number {
  const ms = parseDurationMs(text)
  if (ms === undefined) throw new Error(`${text} is not a duration`)
  return ms
}

// When a failed Proxy stays failed and what ends that; pure functions over what status.latch holds.
import { retryAnnotation } from '../api/group.ts'
import type { ProxyLatch } from '../api/proxy.ts'
import type { ProviderError } from '../provider/errors.ts'
import { hashesDiffer } from './spec-hash.ts'
import type { World } from './world.ts'

/** How long a latch is kept that came back after it was ended, or that no health check can see, milliseconds. */
export const relatchMs = 10 * 60_000

/** The latch for a permanent error of a create. */
export function latchFrom(world: World, specHash: string, error: ProviderError): ProxyLatch {
  const { provider, proxy, status } = world
  const configHash = provider.kind === 'configured' ? provider.configHash : undefined
  const retry = proxy.metadata.annotations?.[retryAnnotation]
  const before = status.latch
  // ended by nothing but a ready target, or by time, and failed in the same way again
  const repeated =
    before?.code === error.code &&
    before.specHash === specHash &&
    before.configHash === configHash &&
    before.retry === retry
  return {
    code: error.code,
    specHash,
    origin: error.origin ?? 'spec',
    since: new Date(world.nowMs).toISOString(),
    message: error.message,
    ...(repeated ? { repeated } : {}),
    ...(error.target === undefined ? {} : { target: error.target }),
    ...(configHash === undefined ? {} : { configHash }),
    ...(retry === undefined ? {} : { retry }),
  }
}

/** Whether something ended the latch. Level-triggered: the answer stays true until the next attempt has ended. */
export function latchEnded(world: World, latch: ProxyLatch): boolean {
  const { desired, provider, proxy } = world
  if (desired.kind === 'known' && hashesDiffer(latch.specHash, desired.specHash)) return true
  if (provider.kind === 'configured' && provider.configHash !== latch.configHash) return true
  const retry = proxy.metadata.annotations?.[retryAnnotation]
  if (retry !== undefined && retry !== latch.retry) return true
  if (latch.origin !== 'environment' || provider.kind !== 'configured') return false
  const sinceMs = Date.parse(latch.since)
  if (!isChecked(world, latch)) return world.nowMs >= sinceMs + relatchMs
  const notBeforeMs = latch.repeated === true ? sinceMs + relatchMs : sinceMs
  return provider.latchTargetReadyMs !== undefined && provider.latchTargetReadyMs > notBeforeMs
}

/** Milliseconds until time alone ends the latch; undefined when it never does. */
export function latchRetryInMs(world: World, latch: ProxyLatch): number | undefined {
  if (latch.origin !== 'environment' || isChecked(world, latch)) return undefined
  return Math.max(Date.parse(latch.since) + relatchMs - world.nowMs, 0)
}

function isChecked(world: World, latch: ProxyLatch): boolean {
  const { provider } = world
  return provider.kind === 'configured' && latch.target !== undefined && provider.targets.includes(latch.target)
}

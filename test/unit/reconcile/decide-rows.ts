// What the tables of decisions share: worlds from what differs in them, and actions in few words. No decision is judged here.
import { describe, expect, it } from 'vitest'
import { apiVersion, proxyFinalizer } from '../../../src/api/group.ts'
import { proxySpecSchema, type Proxy, type ProxyLatch, type ProxyStatus } from '../../../src/api/proxy.ts'
import { ProviderError } from '../../../src/provider/errors.ts'
import { decide, type Action, type Hold } from '../../../src/reconcile/decide.ts'
import type { World } from '../../../src/reconcile/world.ts'
import { baseSpec } from '../../support/reconcile-harness.ts'

export const nowMs = Date.UTC(2026, 0, 1, 12)
export const minutesAgo = (minutes: number) => new Date(nowMs - minutes * 60_000).toISOString()
const intent = { target: 'host-a', at: minutesAgo(60) }
/** What a create of `v1:one` has left in the status. */
export const made: ProxyStatus = {
  phase: 'Running',
  specHash: 'v1:one',
  intents: [intent],
  providerID: 'id',
  observedGeneration: 1,
}
export const begun: ProxyStatus = { phase: 'Provisioning', specHash: 'v1:one', intents: [intent] }

export interface Change extends Partial<Omit<World, 'proxy'>> {
  readonly deleting?: boolean
  readonly unguarded?: boolean
  readonly retry?: string
  readonly spec?: object
}

export function world(change: Change): World {
  const { deleting = false, unguarded = false, retry, spec = {}, ...rest } = change
  const proxy: Proxy = {
    apiVersion,
    kind: 'Proxy',
    metadata: {
      name: 'a',
      namespace: 'default',
      uid: 'uid-1',
      resourceVersion: '1',
      generation: 1,
      ...(unguarded ? {} : { finalizers: [proxyFinalizer] }),
      ...(deleting ? { deletionTimestamp: minutesAgo(1) } : {}),
      ...(retry === undefined ? {} : { annotations: { 'egressproxies.dev/retry': retry } }),
    },
    spec: proxySpecSchema.parse(JSON.parse(JSON.stringify({ ...baseSpec, ...spec }))),
  }
  return {
    nowMs,
    proxy,
    status: {},
    instanceName: 'proxy-a',
    desired: deleting ? { kind: 'unread' } : { kind: 'known', specHash: 'v1:one' },
    provider: { kind: 'configured', configHash: 'config-1', targets: ['host-a'] },
    operation: { kind: 'idle' },
    predecessorBusy: false,
    observation: { kind: 'unread' },
    verdict: { kind: 'pending' },
    steadyForMs: Number.POSITIVE_INFINITY,
    repairInMs: 0,
    taken: {},
    ...rest,
  }
}

export const two = { kind: 'known', specHash: 'v1:two' } as const
export const otherVersion = { kind: 'known', specHash: 'v2:one' } as const
export const noSecret = { kind: 'unavailable', reason: 'SecretNotFound', message: 'no Secret' } as const
export const noProvider = { kind: 'missing' } as const
export const transient = ProviderError.transient('away', { code: 'Unreachable' })
export const quota = ProviderError.quotaExceeded('full', { code: 'PoolFull' })
export const wrong = ProviderError.permanent('spec', 'no image', { code: 'ImageNotFound' })
export const denied = ProviderError.permanent('environment', 'denied', { code: 'Unauthorized', target: 'host-a' })
export const failed = (error: ProviderError, retryInMs: number, specHash = 'v1:one') =>
  ({ kind: 'createFailed', specHash, failure: { error, failures: 1, retryInMs } }) as const
export const deleteFailed = (error: ProviderError, retryInMs: number) =>
  ({ kind: 'deleteFailed', failure: { error, failures: 1, retryInMs } }) as const
export const creating = { kind: 'creating', specHash: 'v1:one', lettingGo: false } as const
export const lettingGo = { kind: 'creating', specHash: 'v1:one', lettingGo: true } as const
export const deleting = { kind: 'deleting', lettingGo: false } as const
export const created = { kind: 'created', specHash: 'v1:one', providerID: 'id' } as const
export const deleted = { kind: 'deleted', abandoned: [] } as const
export const running = { kind: 'seen', instance: { state: 'running', ip: '192.0.2.1', specHash: 'v1:one' } } as const
export const stopped = { kind: 'seen', instance: { state: 'stopped', specHash: 'v1:one' } } as const
export const paused = { kind: 'seen', instance: { state: 'paused' } } as const
export const booting = { kind: 'seen', instance: { state: 'provisioning' } } as const
export const gone = { kind: 'gone' } as const

export const external = { mode: 'External', host: 'proxy.example.net', provider: undefined, placement: undefined }
export const suspend = { suspend: true }
export const replaceAfter = { healthCheck: { replaceAfter: '30m' } }
export const stoppingToDelete = { kind: 'deleting', lettingGo: true } as const
export const replaced: ProxyStatus = { replacement: { since: minutesAgo(1), deleted: true } }
export const halfGone: ProxyStatus = { ...made, replacement: { since: minutesAgo(1), deleted: false } }

/** Unhealthy for so many minutes, and to be replaced after thirty. */
export function unhealthyFor(minutes: number): Change & { readonly status: ProxyStatus } {
  const lastTransitionTime = minutesAgo(minutes)
  const healthy = { type: 'Healthy', status: 'False', reason: 'ProxyUnreachable', message: 'refused' } as const
  return {
    spec: replaceAfter,
    status: { ...made, conditions: [{ ...healthy, lastTransitionTime }] },
    observation: running,
    verdict: { kind: 'unhealthy', reason: 'ProxyUnreachable', message: 'refused' },
  }
}

export const latch = (change: Partial<ProxyLatch> = {}): ProxyLatch => ({
  code: 'Unauthorized',
  specHash: 'v1:one',
  origin: 'environment',
  target: 'host-a',
  configHash: 'config-1',
  since: minutesAgo(5),
  ...change,
})
export const latchedBy = (change: Partial<ProxyLatch> = {}): ProxyStatus => ({
  ...begun,
  phase: 'Failed',
  latch: latch(change),
})
export const ready = (minutes: number) =>
  ({
    kind: 'configured',
    configHash: 'config-1',
    targets: ['host-a'],
    latchTargetReadyMs: nowMs - minutes * 60_000,
  }) as const

/** An action in a word or three: kind, then what tells it from others of its kind. */
export function brief(action: Action): string {
  switch (action.kind) {
    case 'hold':
      return `hold ${briefHold(action.hold)}`
    case 'startCreate':
      return `startCreate ${action.why} ${action.specHash}`
    case 'startDelete':
    case 'letGo':
      return `${action.kind} ${action.why}`
    case 'adopt':
      return `adopt ${action.providerID}`
    case 'latch':
      return `latch ${action.latch.code}${action.latch.repeated === true ? ' repeated' : ''}`
    case 'watch':
      if (action.concern !== undefined) return `watch ${action.concern.reason}`
      return action.recheckInMs === undefined ? 'watch' : `watch in ${action.recheckInMs}`
    case 'forget':
    case 'addFinalizer':
    case 'clear':
    case 'probe':
    case 'release':
      return action.kind
  }
}

function briefHold(hold: Hold): string {
  if (hold.on === 'suspend') return `suspend ${hold.withheld}`
  return hold.on === 'repair' ? `repair ${hold.why}` : hold.on
}

type Row = readonly [what: string, seen: Change, action: string]

export function table(name: string, rows: readonly Row[]): void {
  describe(name, () => {
    it.each(rows)('%s', (_what, seen, action) => {
      expect(brief(decide(world(seen)))).toBe(action)
    })
  })
}

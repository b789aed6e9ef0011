// Corpus: statuses of both kinds, good and bad. Only the operator writes them, so they are judged by shape alone.
import { bad, good, providerHealth, proxyStatus, type CorpusEntry } from './entry.ts'

const at = '2026-01-02T03:04:05Z'
const condition = { type: 'Ready', status: 'True', lastTransitionTime: at, reason: 'Healthy', message: '' }
const latch = { code: 'ImageNotFound', specHash: 'v1:00', origin: 'spec', since: at }
const target = { name: 'a', address: 'kvm-1.example.net:22', ready: true, reason: 'Reachable', lastTransitionTime: at }

/** All statuses of Proxies. */
export const proxyStatusEntries: readonly CorpusEntry[] = [
  proxyStatus('status-empty', {}, good),
  proxyStatus(
    'status-all',
    {
      phase: 'Ready',
      providerID: 'hosts/a/domains/proxy-0123456789abcdef0123',
      instanceName: 'proxy-0123456789abcdef0123',
      ip: '192.0.2.7',
      endpoint: 'http://192.0.2.7:3128',
      egressIP: '203.0.113.7',
      specHash: `v1:${'0'.repeat(64)}`,
      observedGeneration: 3,
      intents: [
        { target: 'a', at },
        { target: 'a', at, vmid: 100 },
      ],
      latch: { ...latch, target: 'a', configHash: 'v1:11', retry: '2', message: 'no such image' },
      replacement: { since: at, deleted: false },
      conditions: [{ ...condition, observedGeneration: 3 }],
    },
    good,
  ),
  proxyStatus('status-replacement-no-time', { replacement: { deleted: true } }, bad('status.replacement.since')),
  proxyStatus(
    'status-fraction-and-offset',
    { conditions: [{ ...condition, lastTransitionTime: '2026-01-02T03:04:05.678+02:00' }] },
    good,
  ),
  proxyStatus('status-phase', { phase: 'Broken' }, bad('status.phase')),
  proxyStatus('status-generation', { observedGeneration: -1 }, bad('status.observedGeneration')),
  proxyStatus('status-intent-no-time', { intents: [{ target: 'a' }] }, bad('status.intents[0].at')),
  proxyStatus('status-intent-bad-time', { intents: [{ target: 'a', at: 'yesterday' }] }, bad('status.intents[0].at')),
  proxyStatus('status-latch-origin', { latch: { ...latch, origin: 'nobody' } }, bad('status.latch.origin')),
  proxyStatus('status-latch-no-since', { latch: { ...latch, since: undefined } }, bad('status.latch.since')),
  proxyStatus(
    'status-condition-status',
    { conditions: [{ ...condition, status: 'true' }] },
    bad('status.conditions[0].status'),
  ),
  proxyStatus(
    'status-condition-reason',
    { conditions: [{ ...condition, reason: 'not ready' }] },
    bad('status.conditions[0].reason'),
  ),
  proxyStatus(
    'status-condition-no-message',
    { conditions: [{ ...condition, message: undefined }] },
    bad('status.conditions[0].message'),
  ),
  proxyStatus('status-condition-twice', { conditions: [condition, condition] }, bad('status.conditions[1]')),
  proxyStatus('status-unknown', { hash: 'x' }, bad('status.hash')),
]

/** All ProviderHealths. */
export const providerHealthEntries: readonly CorpusEntry[] = [
  providerHealth('health-empty', {}, good),
  providerHealth(
    'health-all',
    {
      type: 'kvm2',
      ready: false,
      readyTargets: '1/2',
      checkedAt: at,
      targets: [
        { ...target, latencyMillis: 12, details: { pool: 'default', poolAvailableGiB: '93' } },
        { ...target, name: 'b', ready: false, reason: 'Unreachable', message: 'connection refused' },
      ],
      retained: [{ uid: '6f1c', instance: 'hosts/a/domains/proxy-0123456789abcdef0123', since: at }],
      conditions: [condition],
    },
    good,
  ),
  providerHealth('health-no-name', { targets: [{ ...target, name: undefined }] }, bad('status.targets[0].name')),
  providerHealth('health-twice', { targets: [target, target] }, bad('status.targets[1]')),
  providerHealth('health-ready-text', { ready: 'yes' }, bad('status.ready')),
  providerHealth(
    'health-latency',
    { targets: [{ ...target, latencyMillis: 1.5 }] },
    bad('status.targets[0].latencyMillis'),
  ),
  providerHealth(
    'health-details',
    { targets: [{ ...target, details: { pool: 1 } }] },
    bad('status.targets[0].details.pool'),
  ),
  providerHealth('health-checked', { checkedAt: '2026-01-02' }, bad('status.checkedAt')),
  providerHealth('health-unknown', { target: [] }, bad('status.target')),
]

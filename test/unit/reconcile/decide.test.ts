// Every decision as a row: what is seen, and the one action that follows.
import { describe, expect, it } from 'vitest'
import { decide } from '../../../src/reconcile/decide.ts'
import {
  nowMs,
  minutesAgo,
  made,
  begun,
  world,
  two,
  otherVersion,
  noSecret,
  noProvider,
  transient,
  quota,
  wrong,
  denied,
  failed,
  deleteFailed,
  creating,
  lettingGo,
  deleting,
  created,
  deleted,
  running,
  stopped,
  paused,
  booting,
  gone,
  latch,
  latchedBy,
  ready,
  brief,
  table,
} from './decide-rows.ts'

table('the beginning', [
  ['the finalizer comes first', { unguarded: true }, 'addFinalizer'],
  ['also where something is recorded', { unguarded: true, status: made }, 'addFinalizer'],
  ['then the instance', {}, 'startCreate new v1:one'],
  ['a recorded intent does not keep from trying again', { status: begun }, 'startCreate new v1:one'],
  ['nothing is begun while another object of the name is busy', { predecessorBusy: true }, 'letGo otherObject'],
  ['not even a deletion', { predecessorBusy: true, deleting: true, status: made }, 'letGo otherObject'],
  ['nothing is begun without the provider', { provider: noProvider }, 'hold providerMissing'],
  ['nothing is begun without the user-data', { desired: noSecret }, 'hold userData'],
  ['not where intents are recorded either', { desired: noSecret, status: begun }, 'hold userData'],
])

table('a create in flight', [
  ['is waited for', { status: begun, operation: creating }, 'hold creating'],
  ['is ended by another spec', { status: begun, operation: creating, desired: two }, 'letGo specChanged'],
  ['once', { status: begun, operation: lettingGo, desired: two }, 'hold lettingGo'],
  ['is not ended by a hash of another version', { operation: creating, desired: otherVersion }, 'hold creating'],
  ['is not ended by a missing Secret', { operation: creating, desired: noSecret }, 'hold creating'],
  ['is not ended by a missing provider', { operation: creating, provider: noProvider }, 'hold creating'],
  ['is ended by a deletion', { status: begun, operation: creating, deleting: true }, 'letGo deletion'],
  ['once', { status: begun, operation: lettingGo, deleting: true }, 'hold lettingGo'],
])

table('a create that returned', [
  ['is written down', { status: begun, operation: created }, 'adopt id'],
  ['although the spec is another by now', { status: begun, operation: created, desired: two }, 'adopt id'],
  ['although the object is being deleted', { status: begun, operation: created, deleting: true }, 'adopt id'],
  ['once', { status: made, operation: created, deleting: true }, 'startDelete deletion'],
])

table('a create that failed', [
  ['transiently, backs off', { status: begun, operation: failed(transient, 500) }, 'hold backoff'],
  ['and is tried again', { status: begun, operation: failed(transient, 0) }, 'startCreate new v1:one'],
  [
    'with another spec, is not waited for',
    { operation: failed(transient, 500), desired: two },
    'startCreate new v1:two',
  ],
  [
    'with another spec, after a mutation',
    { status: begun, operation: failed(transient, 500), desired: two },
    'startDelete specChanged',
  ],
  ['for want of space, waits', { status: begun, operation: failed(quota, 500) }, 'hold quota'],
  ['for want of space, is tried again', { status: begun, operation: failed(quota, 0) }, 'startCreate new v1:one'],
  ['permanently, latches', { status: begun, operation: failed(wrong, 500) }, 'latch ImageNotFound'],
  [
    'permanently, for another spec, does not',
    { operation: failed(wrong, 500), desired: two },
    'startCreate new v1:two',
  ],
  [
    'permanently, without the user-data, does',
    { operation: failed(wrong, 500), desired: noSecret },
    'latch ImageNotFound',
  ],
  [
    'of an instance that runs by now',
    { status: made, operation: failed(transient, 500), observation: running },
    'watch',
  ],
  [
    'of an instance that is stopped',
    { status: made, operation: failed(transient, 500), observation: stopped },
    'hold backoff',
  ],
])

table('a latch', [
  ['holds', { status: latchedBy() }, 'hold latch'],
  [
    'of the spec holds over a ready target',
    { status: latchedBy({ origin: 'spec' }), provider: ready(1) },
    'hold latch',
  ],
  ['of the spec holds over time', { status: latchedBy({ origin: 'spec', since: minutesAgo(10_000) }) }, 'hold latch'],
  ['holds with a hash of another version', { status: latchedBy(), desired: otherVersion }, 'hold latch'],
  ['ends by another spec, what there is goes first', { status: latchedBy(), desired: two }, 'startDelete specChanged'],
  ['ends by another spec, where nothing is', { status: { latch: latch() }, desired: two }, 'startCreate retry v1:two'],
  ['ends by another config', { status: latchedBy({ configHash: 'config-0' }) }, 'startCreate retry v1:one'],
  ['of the spec too', { status: latchedBy({ configHash: 'config-0', origin: 'spec' }) }, 'startCreate retry v1:one'],
  ['ends by a retry', { status: latchedBy(), retry: '1' }, 'startCreate retry v1:one'],
  ['ends by a new value of a retry', { status: latchedBy({ retry: '1' }), retry: '2' }, 'startCreate retry v1:one'],
  ['does not end by the same value', { status: latchedBy({ retry: '1' }), retry: '1' }, 'hold latch'],
  ['does not end by its removal', { status: latchedBy({ retry: '1' }) }, 'hold latch'],
  ['ends by a ready check after it', { status: latchedBy(), provider: ready(4) }, 'startCreate retry v1:one'],
  ['does not end by one before it', { status: latchedBy(), provider: ready(6) }, 'hold latch'],
  ['that came back waits ten minutes', { status: latchedBy({ repeated: true }), provider: ready(1) }, 'hold latch'],
  [
    'that came back ends then',
    { status: latchedBy({ repeated: true, since: minutesAgo(11) }), provider: ready(0.5) },
    'startCreate retry v1:one',
  ],
  [
    'that came back needs a check after them',
    { status: latchedBy({ repeated: true, since: minutesAgo(11) }), provider: ready(2) },
    'hold latch',
  ],
  ['that no check sees holds ten minutes', { status: latchedBy({ target: 'host-z' }) }, 'hold latch'],
  [
    'that no check sees ends then',
    { status: latchedBy({ target: 'host-z', since: minutesAgo(10) }) },
    'startCreate retry v1:one',
  ],
  ['that a check sees does not end by time', { status: latchedBy({ since: minutesAgo(10_000) }) }, 'hold latch'],
  ['does not hold back a deletion', { status: latchedBy(), deleting: true }, 'startDelete deletion'],
  ['does not outlive an instance that runs', { status: { ...made, latch: latch() }, observation: running }, 'watch'],
  ['outlives one that is stopped', { status: { ...made, latch: latch() }, observation: stopped }, 'hold latch'],
  ['comes back as repeated', { status: latchedBy(), operation: failed(denied, 9) }, 'latch Unauthorized repeated'],
  [
    'with another code does not',
    { status: latchedBy({ code: 'Other' }), operation: failed(denied, 9) },
    'latch Unauthorized',
  ],
  ['after a retry does not', { status: latchedBy(), retry: '1', operation: failed(denied, 9) }, 'latch Unauthorized'],
  [
    'after another config does not',
    { status: latchedBy({ configHash: 'config-0' }), operation: failed(denied, 9) },
    'latch Unauthorized',
  ],
])

table('an instance', [
  ['is watched before anything is known of it', { status: made }, 'watch'],
  ['is watched while it boots', { status: made, observation: booting }, 'watch'],
  ['is watched while it runs', { status: made, observation: running }, 'watch'],
  ['is left alone while it is paused', { status: made, observation: paused }, 'watch'],
  ['is left alone when it cannot be read', { status: made, observation: { kind: 'failed', error: denied } }, 'watch'],
  ['is started when it is stopped', { status: made, observation: stopped }, 'startCreate stopped v1:one'],
  ['is made again when it is gone', { status: made, observation: gone }, 'startCreate gone v1:one'],
  ['is replaced for another spec', { status: made, desired: two, observation: running }, 'startDelete specChanged'],
  ['and when it is gone already', { status: made, desired: two, observation: gone }, 'startDelete specChanged'],
  [
    'is not replaced for a hash of another version',
    { status: made, desired: otherVersion, observation: running },
    'watch',
  ],
  [
    'and keeps its hash when it is started',
    { status: made, desired: otherVersion, observation: stopped },
    'startCreate stopped v1:one',
  ],
  [
    'is replaced when its mark tells another spec',
    { status: made, observation: { kind: 'seen', instance: { state: 'running', specHash: 'v1:x' } } },
    'startDelete markDiffers',
  ],
  [
    'is not replaced for a mark of another version',
    { status: made, observation: { kind: 'seen', instance: { state: 'running', specHash: 'v0:x' } } },
    'watch',
  ],
  ['outlives its Secret', { status: made, desired: noSecret, observation: running }, 'watch SecretNotFound'],
  ['is not made again without it', { status: made, desired: noSecret, observation: gone }, 'hold userData'],
  ['is not started without it', { status: made, desired: noSecret, observation: stopped }, 'hold userData'],
  ['outlives its provider', { status: made, provider: noProvider, observation: running }, 'hold providerMissing'],
  [
    'recorded without a hash is taken for what is wanted',
    { status: { providerID: 'id' }, observation: running },
    'watch',
  ],
])

describe('an edited Secret', () => {
  const spec = { cloudInitFrom: { secretKeyRef: { name: 's', key: 'k' } } }
  it('is told from an edited spec', () => {
    expect(brief(decide(world({ spec, status: made, desired: two })))).toBe('startDelete userDataChanged')
    const older = { ...made, observedGeneration: 0 }
    expect(brief(decide(world({ spec, status: older, desired: two })))).toBe('startDelete specChanged')
  })
})

table('a replacement', [
  ['waits until the instance is gone', { status: made, desired: two, operation: deleting }, 'hold deleting'],
  ['then forgets it', { status: made, desired: two, operation: deleted }, 'clear'],
  ['then makes the next one', { desired: two }, 'startCreate new v1:two'],
  [
    'retries a failed delete later',
    { status: made, desired: two, operation: deleteFailed(denied, 500) },
    'hold deleteBackoff',
  ],
  ['and then', { status: made, desired: two, operation: deleteFailed(denied, 0) }, 'startDelete specChanged'],
  ['is off when the spec is what it was', { status: made, operation: deleteFailed(denied, 500) }, 'watch'],
  [
    'for the mark waits after a failure too',
    {
      status: made,
      operation: deleteFailed(denied, 500),
      observation: { kind: 'seen', instance: { state: 'running', specHash: 'v1:x' } },
    },
    'hold deleteBackoff',
  ],
])

table('a deletion', [
  ['of an object that is not ours', { deleting: true, unguarded: true }, 'forget'],
  ['where nothing was recorded', { deleting: true, status: { phase: 'Pending' } }, 'release'],
  ['where nothing was recorded, without the provider', { deleting: true, provider: noProvider }, 'release'],
  ['with an intent only', { deleting: true, status: begun }, 'startDelete deletion'],
  ['with an instance only', { deleting: true, status: { providerID: 'id' } }, 'startDelete deletion'],
  ['without the provider', { deleting: true, status: begun, provider: noProvider }, 'hold providerMissing'],
  ['in progress', { deleting: true, status: made, operation: deleting }, 'hold deleting'],
  ['done', { deleting: true, status: made, operation: deleted }, 'release'],
  ['done, without the provider', { deleting: true, status: made, operation: deleted, provider: noProvider }, 'release'],
  [
    'failed, whatever the error',
    { deleting: true, status: made, operation: deleteFailed(denied, 500) },
    'hold deleteBackoff',
  ],
  ['tried again', { deleting: true, status: made, operation: deleteFailed(denied, 0) }, 'startDelete deletion'],
  [
    'failed, and the provider went',
    { deleting: true, status: made, operation: deleteFailed(denied, 500), provider: noProvider },
    'hold providerMissing',
  ],
  ['after a failed create', { deleting: true, status: begun, operation: failed(wrong, 500) }, 'startDelete deletion'],
])

it('keeps in a latch what its exits need', () => {
  const action = decide(world({ status: begun, retry: '7', operation: failed(denied, 500) }))
  expect(action).toMatchObject({
    kind: 'latch',
    latch: {
      code: 'Unauthorized',
      specHash: 'v1:one',
      origin: 'environment',
      target: 'host-a',
      configHash: 'config-1',
      retry: '7',
      since: new Date(nowMs).toISOString(),
      message: 'denied',
    },
  })
})

it('says when time alone ends a latch', () => {
  const unseen = decide(world({ status: latchedBy({ target: 'host-z' }) }))
  expect(unseen).toMatchObject({ hold: { on: 'latch', retryInMs: 300_000 } })
  const seen = decide(world({ status: latchedBy() }))
  expect(seen.kind === 'hold' && 'retryInMs' in seen.hold).toBe(false)
})

it('is the same for the same world', () => {
  const seen = world({ status: made, observation: running })
  expect(decide(structuredClone(seen))).toEqual(decide(seen))
})

// Decisions as rows: what External, suspend and replaceAfter change, repairs that wait, and addresses that are taken.
import {
  made,
  begun,
  two,
  noSecret,
  noProvider,
  transient,
  quota,
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
  gone,
  external,
  suspend,
  replaceAfter,
  stoppingToDelete,
  replaced,
  halfGone,
  unhealthyFor,
  latchedBy,
  ready,
  table,
} from './decide-rows.ts'

table('an External proxy', [
  ['is probed, without a finalizer', { spec: external, unguarded: true }, 'probe'],
  ['and with one that somebody put there', { spec: external }, 'probe'],
  ['and while it is suspended', { spec: { ...external, suspend: true }, unguarded: true }, 'probe'],
  ['is forgotten at once when it is deleted', { spec: external, unguarded: true, deleting: true }, 'forget'],
  ['loses a finalizer of ours', { spec: external, deleting: true }, 'release'],
  ['without its host is not touched', { spec: { mode: 'External' }, unguarded: true }, 'hold unmanaged'],
])

table('a suspended Proxy', [
  ['gets its finalizer', { spec: suspend, unguarded: true }, 'addFinalizer'],
  ['is not made', { spec: suspend }, 'hold suspend create'],
  ['is not made after a crash either', { spec: suspend, status: begun }, 'hold suspend create'],
  ['that is being made lets go', { spec: suspend, status: begun, operation: creating }, 'letGo suspend'],
  ['once', { spec: suspend, status: begun, operation: lettingGo }, 'hold lettingGo'],
  ['that was made after all is written down', { spec: suspend, status: begun, operation: created }, 'adopt id'],
  ['is watched', { spec: suspend, status: made, observation: running }, 'watch'],
  ['is not started', { spec: suspend, status: made, observation: stopped }, 'hold suspend start'],
  ['is not made again', { spec: suspend, status: made, observation: gone }, 'hold suspend createAgain'],
  ['is not replaced', { spec: suspend, status: made, desired: two, observation: running }, 'hold suspend replace'],
  [
    'that is being replaced lets go',
    { spec: suspend, status: made, desired: two, operation: deleting },
    'letGo suspend',
  ],
  ['once', { spec: suspend, status: made, desired: two, operation: stoppingToDelete }, 'hold lettingGo'],
  ['that was removed after all is written down', { spec: suspend, status: made, operation: deleted }, 'clear'],
  ['is not deleted', { spec: suspend, status: made, deleting: true }, 'hold suspend delete'],
  ['nor when only an intent is recorded', { spec: suspend, status: begun, deleting: true }, 'hold suspend delete'],
  ['is released when nothing was recorded', { spec: suspend, deleting: true }, 'release'],
  [
    'that is being deleted lets go',
    { spec: suspend, status: made, deleting: true, operation: deleting },
    'letGo suspend',
  ],
  [
    'that was deleted after all is released',
    { spec: suspend, status: made, deleting: true, operation: deleted },
    'release',
  ],
  [
    'does not try a create again',
    { spec: suspend, status: begun, operation: failed(transient, 500) },
    'hold suspend create',
  ],
  ['nor when there is space', { spec: suspend, status: begun, operation: failed(quota, 0) }, 'hold suspend create'],
  [
    'does not try a delete again',
    { spec: suspend, status: made, deleting: true, operation: deleteFailed(denied, 500) },
    'hold suspend delete',
  ],
  ['that failed for good stays so', { spec: suspend, status: latchedBy() }, 'hold latch'],
  ['does not end a latch', { spec: suspend, status: latchedBy(), provider: ready(1) }, 'hold suspend create'],
  ['without its provider says that', { spec: suspend, provider: noProvider }, 'hold providerMissing'],
  [
    'does not repair after a pause',
    { spec: suspend, status: made, observation: gone, repairInMs: 9 },
    'hold suspend createAgain',
  ],
  [
    'is not replaced for being unhealthy',
    { ...unhealthyFor(31), spec: { ...replaceAfter, suspend: true } },
    'hold suspend replace',
  ],
])

table('an operation that was told to end', [
  [
    'is waited for when the suspension is over',
    { status: made, desired: two, operation: stoppingToDelete },
    'hold lettingGo',
  ],
  ['and in a deletion', { status: made, deleting: true, operation: stoppingToDelete }, 'hold lettingGo'],
])

table('an unhealthy instance', [
  ['is left alone', { ...unhealthyFor(10_000), spec: {} }, 'watch'],
  ['waits', unhealthyFor(29), 'watch in 60000'],
  ['is replaced', unhealthyFor(30), 'startDelete unhealthy'],
  ['after its time, one at a time', { ...unhealthyFor(31), replacing: 'default/b' }, 'watch in 10000'],
  [
    'is not replaced for a verdict from before a restart',
    { ...unhealthyFor(31), verdict: { kind: 'pending' } },
    'watch',
  ],
  [
    'is not replaced while the target of the check is down',
    { ...unhealthyFor(31), verdict: { kind: 'unknown', reason: 'TargetUnreachable', message: '' } },
    'watch',
  ],
  [
    'that has just recovered is not replaced',
    { ...unhealthyFor(31), verdict: { kind: 'healthy', latencyMs: 1 } },
    'watch',
  ],
  [
    'is not replaced for what another spec was probed with',
    { ...unhealthyFor(31), status: { ...unhealthyFor(31).status, observedGeneration: 0 } },
    'watch',
  ],
  [
    'is not replaced while it cannot be read',
    { ...unhealthyFor(31), observation: { kind: 'failed', error: transient } },
    'watch',
  ],
  ['is not replaced before it was read', { ...unhealthyFor(31), observation: { kind: 'unread' } }, 'watch'],
  ['is not replaced while it is paused', { ...unhealthyFor(31), observation: paused }, 'watch'],
  ['is started when it is stopped', { ...unhealthyFor(31), observation: stopped }, 'startCreate stopped v1:one'],
  ['is not replaced by what cannot be made', { ...unhealthyFor(31), desired: noSecret }, 'watch SecretNotFound'],
  [
    'goes on being replaced, whatever is left of it',
    { status: halfGone, observation: stopped },
    'startDelete unhealthy',
  ],
  ['and when nothing was read', { status: halfGone }, 'startDelete unhealthy'],
  [
    'and while it still runs',
    { spec: { healthCheck: { replaceAfter: '30m' } }, status: halfGone, observation: running },
    'startDelete unhealthy',
  ],
  ['unless it runs and that is not wanted any more', { status: halfGone, observation: running }, 'watch'],
  ['but waits after a failure', { status: halfGone, operation: deleteFailed(denied, 500) }, 'hold deleteBackoff'],
  ['and tries again', { status: halfGone, operation: deleteFailed(denied, 0) }, 'startDelete unhealthy'],
  ['that is gone makes room for another', { status: replaced }, 'startCreate new v1:one'],
  ['that was replaced is not replaced again', { status: { ...made, ...replaced }, observation: running }, 'watch'],
])

table('a repair', [
  [
    'waits when the last one was just now',
    { status: made, observation: stopped, repairInMs: 9 },
    'hold repair stopped',
  ],
  ['also of what vanished', { status: made, observation: gone, repairInMs: 9 }, 'hold repair gone'],
  ['does not hold back a first create', { status: begun, repairInMs: 9 }, 'startCreate new v1:one'],
  [
    'does not hold back a replacement',
    { status: made, desired: two, observation: stopped, repairInMs: 9 },
    'startDelete specChanged',
  ],
  ['does not hold back a deletion', { status: made, deleting: true, repairInMs: 9 }, 'startDelete deletion'],
])

table('an address that another Proxy has', [
  ['is asked for again', { status: made, observation: running, taken: { '192.0.2.1': 'default/b' } }, 'watch in 10000'],
])

// The reflector over a scripted API and a clock that moves only when told to: its delays, and what servers say in a stream.
import { afterEach, describe, expect, it } from 'vitest'
import { abortReason, sleep } from '../../../src/lib/clock.ts'
import { KubeError, type CompleteList, type KubeClient } from '../../../src/kube/client.ts'
import type { Resource, ResourceType } from '../../../src/kube/object.ts'
import { Reflector, type ReflectorTiming } from '../../../src/kube/reflector.ts'
import type { WatchEvent } from '../../../src/kube/watch-stream.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { recordingLogger } from '../../support/recording-logger.ts'

const type: ResourceType = { group: 'g.dev', version: 'v1', plural: 'things', kind: 'Thing', namespaced: true }

function thing(name: string, resourceVersion: string, uid = `uid-${name}`): Resource {
  return { metadata: { namespace: 'default', name, uid, resourceVersion } }
}

function apiError(status: number, retryAfter?: string): KubeError {
  return KubeError.fromStatus('GET things', status, {}, retryAfter)
}

/** One watch: events to yield, then how it ends. `silent` ends by the signal alone. */
interface Script {
  readonly events?: readonly WatchEvent<Resource>[]
  /** Yielded at its time, counted from the start of the test. */
  readonly late?: { readonly atMs: number; readonly event: WatchEvent<Resource> }
  readonly end?: 'closed' | 'silent' | KubeError
}

type Listed = { readonly items: readonly Resource[]; readonly resourceVersion: string } | KubeError

const stops: (() => Promise<void>)[] = []

afterEach(async () => {
  await Promise.all(stops.splice(0).map((stop) => stop()))
})

/** The last list and the last watch repeat. */
function start(lists: readonly Listed[], watches: readonly Script[], timing: Partial<ReflectorTiming> = {}) {
  const clock = new ManualClock()
  const logger = recordingLogger()
  const calls: string[] = []
  const told: string[] = []
  let listCalls = 0
  let watchCalls = 0
  const client: Pick<KubeClient, 'listAll' | 'watch'> = {
    listAll: <T extends Resource>(): Promise<CompleteList<T>> => {
      calls.push(`${clock.monotonic()} list`)
      const answer = lists[Math.min(listCalls++, lists.length - 1)]
      if (answer === undefined || answer instanceof Error) return Promise.reject(answer ?? new Error('no list'))
      return Promise.resolve({ ...answer, items: answer.items as readonly T[] })
    },
    watch: async function* <T extends Resource>(
      _type: ResourceType,
      options: { resourceVersion?: string | undefined },
      signal: AbortSignal,
    ): AsyncGenerator<WatchEvent<T>, void, undefined> {
      calls.push(`${clock.monotonic()} watch ${options.resourceVersion ?? ''}`)
      const script = watches[Math.min(watchCalls++, watches.length - 1)] ?? {}
      for (const event of script.events ?? []) yield event as WatchEvent<T>
      if (script.late !== undefined) {
        await sleep(clock, script.late.atMs - clock.monotonic(), signal)
        yield script.late.event as WatchEvent<T>
      }
      if (script.end instanceof Error) throw script.end
      if (script.end === 'closed') return
      await new Promise((_resolve, reject) => {
        signal.addEventListener('abort', () => reject(abortReason(signal)), { once: true })
      })
    },
  }
  const reflector = new Reflector<Resource>({
    client,
    type,
    clock,
    random: () => 0,
    logger,
    onEvent: (kind, { metadata }) => told.push(`${kind} ${metadata.uid}@${metadata.resourceVersion}`),
    timing: { backoff: { baseMs: 100, maxMs: 1600, jitter: 0 }, ...timing },
  })
  stops.push(() => reflector.stop())
  reflector.start()
  return { clock, logger, calls, told, reflector }
}

const listed: Listed = { items: [thing('a', '5')], resourceVersion: '7' }

describe('the reflector', () => {
  it('watches from the version of the list, and on from the last event or bookmark', async () => {
    const events: WatchEvent<Resource>[] = [
      { kind: 'modified', object: thing('a', '9') },
      { kind: 'bookmark', resourceVersion: '20' },
    ]
    const { clock, calls, told } = start([listed], [{ events, end: 'closed' }, { end: 'silent' }])
    await clock.advance(0)
    expect(calls).toEqual(['0 list', '0 watch 7', '0 watch 20'])
    expect(told).toEqual(['added uid-a@5', 'modified uid-a@9'])
  })

  it('backs off further with each failure in a row, up to the most, and begins anew after progress', async () => {
    const failing: Script = { end: apiError(500) }
    const good: Script = { events: [{ kind: 'bookmark', resourceVersion: '8' }], end: 'closed' }
    const { clock, calls } = start(
      [listed],
      [failing, failing, failing, failing, failing, failing, good, failing, failing],
    )
    await clock.advance(5200)
    expect(calls.slice(1)).toEqual([
      '0 watch 7',
      '100 watch 7',
      '300 watch 7',
      '700 watch 7',
      '1500 watch 7',
      '3100 watch 7',
      '4700 watch 7',
      '4700 watch 8',
      '4800 watch 8',
      '5000 watch 8',
    ])
  })

  it('waits as long as the server asks', async () => {
    const { clock, calls, reflector } = start([apiError(429, '7'), listed], [{ end: 'silent' }])
    await clock.advance(6999)
    expect(calls).toEqual(['0 list'])
    await clock.advance(1)
    expect(calls).toEqual(['0 list', '7000 list', '7000 watch 7'])
    await reflector.synced
  })

  it('lists again at once when its version expired, but not again and again at once', async () => {
    const events: WatchEvent<Resource>[] = [{ kind: 'error', error: apiError(410) }]
    const { clock, calls } = start([listed], [{ events, end: 'closed' }])
    await clock.advance(750)
    expect(calls).toEqual([
      '0 list',
      '0 watch 7',
      '100 list',
      '100 watch 7',
      '300 list',
      '300 watch 7',
      '700 list',
      '700 watch 7',
    ])
    const late: WatchEvent<Resource>[] = [{ kind: 'bookmark', resourceVersion: '8' }, ...events]
    const second = start([listed], [{ events: late, end: 'closed' }, { end: 'silent' }])
    await second.clock.advance(0)
    expect(second.calls).toEqual(['0 list', '0 watch 7', '0 list', '0 watch 7'])
  })

  it('takes another error in the stream for a failure, and resumes where it was', async () => {
    const events: WatchEvent<Resource>[] = [{ kind: 'error', error: apiError(500) }]
    const { clock, calls, logger } = start([listed], [{ events, end: 'closed' }, { end: 'silent' }])
    await clock.advance(100)
    expect(calls).toEqual(['0 list', '0 watch 7', '100 watch 7'])
    expect(logger.lines.some(({ level, message }) => level === 'warn' && message.includes('500'))).toBe(true)
  })

  it('does not spin on watches that are ended as soon as they are open', async () => {
    const { clock, calls } = start([listed], [{ end: 'closed' }])
    await clock.advance(10_000)
    expect(calls.length).toBeGreaterThan(5)
    expect(calls.length).toBeLessThan(15)
  })

  it('takes a watch for dead when it is silent past the server timeout, counted from its last sign of life', async () => {
    const { clock, calls } = start(
      [listed],
      [{ events: [{ kind: 'bookmark', resourceVersion: '8' }], end: 'silent' }],
      {
        watchTimeoutMs: 60_000,
        stallSlackMs: 10_000,
      },
    )
    await clock.advance(69_999)
    expect(calls).toHaveLength(2)
    await clock.advance(1)
    expect(calls.slice(2)).toEqual(['70000 list', '70000 watch 7'])
  })

  it('tells of another UID under a name as of a deletion and an addition, in a watch and in a list', async () => {
    const events: WatchEvent<Resource>[] = [
      { kind: 'modified', object: thing('a', '8', 'second') },
      { kind: 'error', error: apiError(410) },
    ]
    const relisted: Listed = { items: [thing('a', '12', 'third')], resourceVersion: '13' }
    const { clock, told } = start([listed, relisted], [{ events, end: 'closed' }, { end: 'silent' }])
    await clock.advance(200)
    expect(told).toEqual(['added uid-a@5', 'deleted uid-a@5', 'added second@8', 'deleted second@8', 'added third@12'])
  })

  it('checks every ten minutes what the watch told, and survives a failing check', async () => {
    const { clock, calls, logger, reflector } = start(
      [listed, apiError(500), listed, { items: [], resourceVersion: '90' }],
      [{ end: 'silent' }],
      { watchTimeoutMs: 7_200_000 },
    )
    await clock.advance(1_800_000)
    expect(calls).toEqual(['0 list', '0 watch 7', '600000 list', '1200000 list', '1800000 list'])
    expect(logger.lines.some(({ message }) => message.includes('periodic list failed'))).toBe(true)
    expect(reflector.store.size).toBe(1)
    await clock.advance(5_000)
    expect(calls.slice(5)).toEqual(['1805000 list', '1805000 watch 90'])
    expect(reflector.store.size).toBe(0)
  })

  it('gives the watch a grace: what it tells a little after the list was not missed, what it tells later was', async () => {
    const modified: WatchEvent<Resource> = { kind: 'modified', object: thing('a', '9') }
    const timing = { watchTimeoutMs: 7_200_000, relistEveryMs: 600_000, relistGraceMs: 5000 }
    const lists: Listed[] = [listed, { items: [thing('a', '9')], resourceVersion: '9' }]
    const prompt = start(lists, [{ late: { atMs: 604_999, event: modified }, end: 'silent' }], timing)
    await prompt.clock.advance(1_300_000)
    expect(prompt.calls).toEqual(['0 list', '0 watch 7', '600000 list', '1205000 list'])
    expect(prompt.told).toEqual(['added uid-a@5', 'modified uid-a@9'])
    const tardy = start(lists, [{ late: { atMs: 606_000, event: modified }, end: 'silent' }, { end: 'silent' }], timing)
    await tardy.clock.advance(700_000)
    expect(tardy.calls).toEqual(['0 list', '0 watch 7', '600000 list', '605000 list', '605000 watch 9'])
    expect(tardy.told).toEqual(['added uid-a@5', 'modified uid-a@9'])
  })

  it('does not blame a watch that was opened after the list for what an earlier one did not tell', async () => {
    const timing = { watchTimeoutMs: 7_200_000, relistEveryMs: 600_000, relistGraceMs: 5000 }
    const lists: Listed[] = [listed, { items: [thing('a', '9')], resourceVersion: '9' }]
    const broken: Script = { late: { atMs: 602_000, event: { kind: 'error', error: apiError(500) } }, end: 'closed' }
    const { clock, calls, logger } = start(lists, [broken, { end: 'silent' }], timing)
    await clock.advance(700_000)
    expect(calls).toEqual(['0 list', '0 watch 7', '600000 list', '602100 watch 7'])
    expect(logger.lines.filter(({ message }) => message.includes('missed changes'))).toEqual([])
  })
})

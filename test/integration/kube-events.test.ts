// Events over real sockets, in competition with other writers and with trouble.
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { systemClock } from '../../src/lib/clock.ts'
import { KubeClient } from '../../src/kube/client.ts'
import { EventRecorder, eventType, type EventNote } from '../../src/kube/events.ts'
import { eventually } from '../support/eventually.ts'
import { startKubeApi, type KubeApi } from '../support/kube-api/kube-api.ts'
import { widgetKind } from '../support/kube-api/widgets.ts'
import { recordingLogger, type RecordingLogger } from '../support/recording-logger.ts'

const budgetMs = 60_000
const namespace = 'default'

let api: KubeApi
let client: KubeClient
let logger: RecordingLogger

beforeEach(async () => {
  api = await startKubeApi({ kinds: [widgetKind] })
  client = KubeClient.fromKubeconfig({ text: api.kubeconfig() })
  logger = recordingLogger()
})

afterEach(async () => {
  await client.close()
  await api.stop()
})

describe('the event recorder', () => {
  let recorder: EventRecorder
  const subject = { apiVersion: 'suite.egressproxies.dev/v1', kind: 'Widget', namespace, name: 'w', uid: 'uid-1' }
  const note: EventNote = { type: 'Normal', reason: 'Created', message: 'instance w was created' }
  const events = () => api.stored(eventType)
  const make = (maxPending?: number) =>
    new EventRecorder({
      client,
      clock: systemClock,
      random: () => 0,
      logger,
      component: 'egress-proxies-operator',
      instance: 'host-1',
      ...(maxPending !== undefined && { maxPending }),
    })
  const shown = async (count: number) =>
    await eventually('the Events are stored', budgetMs, () => {
      const all = events()
      return Promise.resolve(all.length === count ? all : undefined)
    })

  beforeEach(() => {
    recorder = make()
  })

  afterEach(async () => {
    await recorder.stop(100)
  })

  it('writes what kubectl shows', async () => {
    recorder.record(subject, note)
    const [event] = await shown(1)
    expect(event).toMatchObject({
      metadata: { namespace: 'default' },
      involvedObject: subject,
      ...note,
      count: 1,
      source: { component: 'egress-proxies-operator', host: 'host-1' },
      reportingComponent: 'egress-proxies-operator',
      reportingInstance: 'host-1',
    })
    expect(event?.['firstTimestamp']).toMatch(/Z$/)
  })

  it('counts repeats in one Event, sent and unsent', async () => {
    for (let n = 0; n < 5; n++) recorder.record(subject, note)
    await shown(1)
    expect(events()[0]?.['count']).toBe(5)
    recorder.record(subject, note)
    await eventually('the repeat is counted', budgetMs, () =>
      Promise.resolve(events()[0]?.['count'] === 6 || undefined),
    )
    recorder.record({ ...subject, uid: 'uid-2' }, note)
    recorder.record(subject, { ...note, message: 'another' })
    await shown(3)
  })

  it('gives ten messages of one reason Events of their own and the rest one', async () => {
    for (let n = 0; n < 30; n++) recorder.record(subject, { ...note, message: `${n} bytes` })
    const all = await shown(11)
    expect(all.filter((event) => String(event['message']).startsWith('(combined'))).toMatchObject([{ count: 20 }])
  })

  it('puts Events about cluster-scoped objects where the server wants them', async () => {
    recorder.record({ apiVersion: 'v1', kind: 'Node', name: 'n', uid: 'uid-3' }, note)
    const [event] = await shown(1)
    expect(event?.metadata.namespace).toBe('default')
  })

  it('neither waits nor throws while the server is away, and sends later', async () => {
    await api.stop()
    recorder.record(subject, note)
    recorder.record(subject, { ...note, reason: 'Started' })
    await eventually('it failed once', budgetMs, () => Promise.resolve(logger.lines.length > 0 || undefined))
    await api.start()
    const all = await shown(2)
    expect(all.map((event) => event['reason']).sort()).toEqual(['Created', 'Started'])
  })

  it('creates one Event only when the answer was lost', async () => {
    api.faults.loseAnswers('POST', 2)
    recorder.record(subject, note)
    const created = () => api.requests.filter(({ method }) => method === 'POST').length
    await eventually('it was sent again', budgetMs, () => Promise.resolve(created() === 3 || undefined))
    await recorder.stop(30_000)
    expect(events()).toHaveLength(1)
    expect(created()).toBe(3)
  })

  it('creates a new Event when the server forgot the one it counted in', async () => {
    recorder.record(subject, note)
    const [first] = await shown(1)
    await client.delete(eventType, { namespace, name: first?.metadata.name ?? '' })
    recorder.record(subject, note)
    const [second] = await shown(1)
    expect(second?.metadata.name).not.toBe(first?.metadata.name)
    expect(second?.['count']).toBe(2)
  })

  it('drops what will never be taken, with a line in the log, and goes on', async () => {
    recorder.record({ ...subject, namespace: 'no-such-namespace', uid: 'uid-0' }, note)
    recorder.record(subject, note)
    await shown(1)
    expect(logger.lines.map(({ message }) => message).join()).toContain('an Event was refused')
  })

  it('holds a bounded number, and says that it dropped some', async () => {
    const small = make(3)
    for (let n = 0; n < 8; n++) small.record({ ...subject, uid: `uid-${n}` }, note)
    await shown(3)
    await small.stop(1000)
    const dropped = logger.lines.find(({ message }) => message === 'Events were dropped')
    expect(dropped?.fields['events']).toBe(5)
  })

  it('sends what waits when it is stopped, within its budget', async () => {
    for (let n = 0; n < 20; n++) recorder.record({ ...subject, uid: `uid-${n}` }, note)
    await recorder.stop(30_000)
    expect(events()).toHaveLength(20)
    recorder.record(subject, { ...note, reason: 'Late' })
    const away = make()
    const release = api.faults.fail({ status: 500 })
    away.record(subject, note)
    await away.stop(200)
    release()
    expect(logger.lines.at(-1)).toMatchObject({ message: 'Events were not sent before the end', fields: { events: 1 } })
    expect(events()).toHaveLength(20)
  })
})

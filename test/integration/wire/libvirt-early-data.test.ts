// Downloads whose data overtakes the reply to the call, as a busy libvirtd sends it now and then.
import { afterEach, beforeEach, expect, it } from 'vitest'
import type { LibvirtConnection } from '../../../src/wire/libvirt/connection.ts'
import type { Frame } from '../../../src/wire/libvirt/frame.ts'
import type { StorageVol } from '../../../src/wire/libvirt/protocol.gen.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { isCall, isStream, TestDaemon, type Peer } from './libvirt-daemon.ts'

let daemon: TestDaemon
let clock: ManualClock
let connection: LibvirtConnection
let peer: Peer

const vol: StorageVol = { pool: 'default', name: 'base.info', key: '/pool/base.info' }

beforeEach(async () => {
  daemon = await TestDaemon.listen()
  clock = new ManualClock()
  daemon.answer('CONNECT_GET_HOSTNAME', { hostname: 'host' })
  ;({ connection, peer } = await daemon.open(clock))
})
afterEach(async () => await daemon.close())

const download = (signal?: AbortSignal) =>
  connection.downloadAll(vol, {
    offset: 0n,
    length: 0n,
    maxBytes: 4 << 20,
    timeoutMs: 600_000,
    ...(signal && { signal }),
  })

async function opening(): Promise<Frame> {
  const [frame] = await peer.received(isCall('STORAGE_VOL_DOWNLOAD'))
  if (frame === undefined) throw new Error('no download call')
  return frame
}

async function expectGoodAsNew(): Promise<void> {
  expect(await connection.call('CONNECT_GET_HOSTNAME', null, { timeoutMs: 600_000 })).toEqual({ hostname: 'host' })
  expect(connection.load).toEqual({ active: 0, queued: 0 })
  expect(clock.pendingCount).toBe(0)
}

it.each([
  ['a piece', 1],
  ['more than may wait unread', 12],
])('takes %s before the reply', async (_what, pieces) => {
  const piece = Buffer.alloc(200_000, 7)
  const result = download()
  const call = await opening()
  for (let sent = 0; sent < pieces; sent++) peer.stream(call, 'CONTINUE', piece)
  peer.reply(call, 'STORAGE_VOL_DOWNLOAD', null)
  peer.stream(call, 'CONTINUE', piece)
  peer.stream(call, 'CONTINUE')
  await peer.received(isStream('OK'))
  peer.stream(call, 'OK')
  expect((await result).equals(Buffer.alloc(200_000 * (pieces + 1), 7))).toBe(true)
  await expectGoodAsNew()
})

it('takes everything and the end before the reply', async () => {
  const result = download()
  const call = await opening()
  peer.stream(call, 'CONTINUE', Buffer.from('all of it'))
  peer.stream(call, 'CONTINUE')
  peer.reply(call, 'STORAGE_VOL_DOWNLOAD', null)
  await peer.received(isStream('OK'))
  peer.stream(call, 'OK')
  expect((await result).toString()).toBe('all of it')
  await expectGoodAsNew()
})

it('drops what comes before the reply when it was cancelled', async () => {
  const controller = new AbortController()
  const result = download(controller.signal)
  const call = await opening()
  const reason = new Error('not any more')
  controller.abort(reason)
  await expect(result).rejects.toBe(reason)
  peer.stream(call, 'CONTINUE', Buffer.from('too late'))
  peer.reply(call, 'STORAGE_VOL_DOWNLOAD', null)
  await peer.received(isStream('ERROR'))
  peer.stream(call, 'OK')
  await expectGoodAsNew()
})

// When the keepalive pings, when it gives up, and what counts as a sign of life.
import { describe, expect, it } from 'vitest'
import { Keepalive, type KeepalivePolicy } from '../../../../src/wire/libvirt/keepalive.ts'
import { ManualClock } from '../../../support/manual-clock.ts'

const policy: KeepalivePolicy = { intervalMs: 5000, maxUnanswered: 5 }

function start(): { clock: ManualClock; keepalive: Keepalive; log: string[]; setDeaf: (deaf: boolean) => void } {
  const clock = new ManualClock()
  const log: string[] = []
  let isDeaf = false
  const keepalive = new Keepalive(clock, policy, {
    ping: () => log.push(`ping ${clock.monotonic()}`),
    deaf: () => isDeaf,
    silent: (ms) => log.push(`silent ${ms}`),
  })
  return { clock, keepalive, log, setDeaf: (deaf) => (isDeaf = deaf) }
}

describe('keepalive', () => {
  it('pings into silence and gives up at the time the daemon itself does', async () => {
    const { clock, log } = start()
    await clock.advance(60_000)
    expect(log).toEqual(['ping 5000', 'ping 10000', 'ping 15000', 'ping 20000', 'ping 25000', 'silent 30000'])
    expect(clock.pendingCount).toBe(0)
  })

  it('starts over with every sign of life', async () => {
    const { clock, keepalive, log } = start()
    await clock.advance(27_000)
    keepalive.alive()
    await clock.advance(6000)
    expect(log.slice(5)).toEqual(['ping 32000'])
    keepalive.alive()
    await clock.advance(29_999)
    expect(log.at(-1)).toBe('ping 58000')
    await clock.advance(1)
    expect(log.at(-1)).toBe('silent 30000')
  })

  it('sends nothing while packets come', async () => {
    const { clock, keepalive, log } = start()
    for (let i = 0; i < 20; i++) {
      await clock.advance(4000)
      keepalive.alive()
    }
    expect(log).toEqual([])
  })

  it('does not take its own side not reading for silence', async () => {
    const { clock, log, setDeaf } = start()
    setDeaf(true)
    await clock.advance(120_000)
    expect(log).toEqual([])
    setDeaf(false)
    await clock.advance(31_000)
    expect(log.at(-1)).toBe('silent 30000')
  })

  it('is over when stopped', async () => {
    const { clock, keepalive, log } = start()
    keepalive.stop()
    await clock.advance(60_000)
    expect(log).toEqual([])
    expect(clock.pendingCount).toBe(0)
  })
})

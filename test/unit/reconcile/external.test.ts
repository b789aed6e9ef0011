// External proxies through the handler: probed and listed, and nothing is made, guarded or left for them.
import { afterEach, describe, expect, it } from 'vitest'
import { viewOf } from '../../../src/discovery/view.ts'
import { baseSpec, ReconcileHarness } from '../../support/reconcile-harness.ts'

let harness = new ReconcileHarness()

function begin(): ReconcileHarness {
  harness = new ReconcileHarness()
  harness.start()
  return harness
}

afterEach(() => {
  harness.kill()
})

const named = { mode: 'External', host: 'proxy.example.net', port: 8080 } as const

describe('an External proxy', () => {
  it('is probed at its name, becomes Ready, and is gone with its object', async () => {
    const h = begin()
    h.proxies.apply('a', named)
    await h.settle()
    const proxy = h.proxies.read('default/a')
    expect(h.probes.watched.get('default/a')).toMatchObject({ host: 'proxy.example.net', port: 8080 })
    expect(proxy.status).toMatchObject({
      phase: 'Ready',
      endpoint: 'http://proxy.example.net:8080',
      observedGeneration: 1,
    })
    expect(Object.keys(proxy.status ?? {}).sort()).toEqual(['conditions', 'endpoint', 'observedGeneration', 'phase'])
    expect(proxy.status?.conditions?.map(({ type, status }) => [type, status])).toEqual([
      ['Healthy', 'True'],
      ['Ready', 'True'],
    ])
    expect(proxy.metadata.finalizers).toBeUndefined()
    expect(h.reasons('a')).toEqual(['Healthy'])
    expect(viewOf(proxy, h.probes.verdict('default/a'))).toMatchObject({
      url: 'http://proxy.example.net:8080',
      host: 'proxy.example.net',
      port: 8080,
      provider: null,
      zone: null,
      healthy: true,
    })

    h.proxies.delete('a')
    expect(h.proxies.objects.size).toBe(0)
    await h.settle()
    expect(h.probes.watched.size).toBe(0)
    expect(h.hypervisor.steps).toEqual([])
  })

  it.each([
    ['192.0.2.7', 'http://192.0.2.7:3128'],
    ['2001:db8::7', 'http://[2001:db8::7]:3128'],
  ])('at %s tells its address', async (host, endpoint) => {
    const h = begin()
    h.proxies.apply('a', { mode: 'External', host })
    await h.settle()
    const proxy = h.proxies.read('default/a')
    expect(proxy.status).toMatchObject({ phase: 'Ready', ip: host, endpoint })
    expect(h.probes.watched.get('default/a')?.host).toBe(host)
    expect(viewOf(proxy, { kind: 'pending' })).toMatchObject({ url: endpoint, host })
  })

  it('is Running before it was probed and while it is unhealthy, and listed as such', async () => {
    const h = begin()
    h.probes.answer = { kind: 'pending' }
    h.kill()
    h.start()
    h.proxies.apply('a', named)
    await h.settle()
    expect(h.phase('a')).toBe('Running')
    expect(h.condition('a', 'Healthy')).toMatchObject({ status: 'Unknown', reason: 'NotProbed' })
    expect(h.proxies.status('a').endpoint).toBe('http://proxy.example.net:8080')
    h.probes.say('default/a', { kind: 'unhealthy', reason: 'ProxyUnreachable', message: 'refused' })
    await h.settle()
    expect(h.phase('a')).toBe('Running')
    expect(h.condition('a', 'Healthy')).toMatchObject({ status: 'False', reason: 'ProxyUnreachable' })
    expect(viewOf(h.proxies.read('default/a'), { kind: 'pending' })).toMatchObject({ healthy: false })
    h.probes.say('default/a', { kind: 'healthy', latencyMs: 4, egressIP: '203.0.113.9' })
    await h.settle()
    expect(h.proxies.status('a')).toMatchObject({ phase: 'Ready', egressIP: '203.0.113.9' })
    expect(h.reasons('a')).toEqual(['Unhealthy', 'Healthy'])
  })

  it('follows its spec: another host is another endpoint, not Ready before it was probed there', async () => {
    const h = begin()
    h.proxies.apply('a', { ...named, host: '192.0.2.7' })
    await h.settle()
    h.probes.say('default/a', { kind: 'healthy', latencyMs: 4, egressIP: '203.0.113.9' })
    await h.settle()
    h.probes.answer = { kind: 'pending' }
    h.proxies.apply('a', named)
    await h.settle()
    expect(h.proxies.status('a')).toMatchObject({ phase: 'Running', endpoint: 'http://proxy.example.net:8080' })
    expect(h.proxies.status('a').ip).toBeUndefined()
    expect(h.proxies.status('a').egressIP).toBeUndefined()
    expect(h.condition('a', 'Healthy')).toMatchObject({ status: 'Unknown', reason: 'NotProbed' })
  })

  it('keeps its verdict over a restart and goes on being probed without interruption', async () => {
    const h = begin()
    h.proxies.apply('a', named)
    await h.settle()
    const writes = h.proxies.statusWrites
    h.kill()
    h.probes.answer = { kind: 'pending' }
    h.start()
    await h.settle()
    expect(h.phase('a')).toBe('Ready')
    h.probes.say('default/a', { kind: 'unknown', reason: 'TargetUnreachable', message: 'target is down' })
    await h.settle()
    expect(h.phase('a')).toBe('Ready')
    h.probes.say('default/a', { kind: 'healthy', latencyMs: 1 })
    for (let i = 0; i < 5; i++) {
      h.add('a')
      await h.advance(60_000)
    }
    // nothing forgot the verdict in between
    expect(h.phase('a')).toBe('Ready')
    expect(h.proxies.statusWrites).toBe(writes + 2)
  })

  it('takes credentials from a Secret and says when it cannot be probed', async () => {
    const h = begin()
    h.proxies.apply('a', { ...named, credentialsSecretRef: { name: 'auth' } })
    await h.settle()
    expect(h.phase('a')).toBe('Running')
    expect(h.condition('a', 'Healthy')).toMatchObject({ status: 'Unknown', reason: 'SecretNotFound' })
    const values = { username: Buffer.from('u'), password: Buffer.from('p') }
    h.secrets.set('default/auth', new Map(Object.entries(values)))
    await h.advance(15_000)
    expect(h.phase('a')).toBe('Ready')
    expect(h.probes.watched.get('default/a')?.credentials?.username).toBe('u')
  })

  it('that somebody else holds back is Deleting, not probed and not listed', async () => {
    const h = begin()
    h.proxies.apply('a', named)
    await h.settle()
    h.proxies.guard('a', 'example.net/other')
    h.proxies.delete('a')
    await h.settle()
    expect(h.phase('a')).toBe('Deleting')
    expect(h.condition('a', 'Ready')).toMatchObject({ status: 'False' })
    expect(h.probes.watched.size).toBe(0)
    expect(viewOf(h.proxies.read('default/a'), { kind: 'pending' })).toBeUndefined()
  })

  it('needs no provider, and takes no address from an instance', async () => {
    const h = begin()
    h.proxies.apply('vm', baseSpec)
    await h.settle()
    h.proxies.apply('a', { mode: 'External', host: '192.0.2.10', port: 9000 })
    await h.settle()
    h.configured.clear()
    await h.restart()
    expect(h.proxies.status('a')).toMatchObject({ phase: 'Ready', endpoint: 'http://192.0.2.10:9000' })
    expect(h.proxies.status('vm')).toMatchObject({ phase: 'Ready', endpoint: 'http://192.0.2.10:3128' })
  })
})

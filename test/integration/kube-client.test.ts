// The client over real sockets: what it sends, what it makes of bad answers, and what becomes of its connections.
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createServer, type RequestListener, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { KubeClient, KubeError, type ClientOptions } from '../../src/kube/client.ts'
import { eventually } from '../support/eventually.ts'
import { startKubeApi, type KubeApi } from '../support/kube-api/kube-api.ts'
import { widgetKind, widgets } from '../support/kube-api/widgets.ts'

const budgetMs = 60_000
const namespace = 'default'

function kubeconfig(server: string, user: object = {}, cluster: object = {}): string {
  return JSON.stringify({
    apiVersion: 'v1',
    kind: 'Config',
    clusters: [{ name: 'c', cluster: { server, 'insecure-skip-tls-verify': true, ...cluster } }],
    users: [{ name: 'u', user }],
    contexts: [{ name: 'x', context: { cluster: 'c', user: 'u' } }],
    'current-context': 'x',
  })
}

async function failure(request: Promise<unknown>): Promise<KubeError> {
  const outcome = await request.then(
    () => undefined,
    (error: unknown) => error,
  )
  if (!(outcome instanceof KubeError)) throw new Error('it did not fail as it should', { cause: outcome })
  return outcome
}

describe('the client against the in-process API', () => {
  let api: KubeApi
  let client: KubeClient
  let dir: string

  beforeEach(async () => {
    api = await startKubeApi({ kinds: [widgetKind] })
    client = KubeClient.fromKubeconfig({ text: api.kubeconfig() })
    dir = await mkdtemp(join(tmpdir(), 'kube-client-'))
  })

  afterEach(async () => {
    vi.useRealTimers()
    await client.close()
    await api.stop()
    await rm(dir, { recursive: true })
  })

  it('loads a kubeconfig file, with a server path before its own', async () => {
    const file = join(dir, 'config')
    await api.writeKubeconfig(file)
    const fromFile = KubeClient.fromKubeconfig({ file })
    expect((await fromFile.list(widgets)).items).toEqual([])
    await fromFile.close()
    const prefixed = KubeClient.fromKubeconfig({ text: kubeconfig(`${api.url}/k8s/clusters/c-1`) })
    expect(await failure(prefixed.list(widgets))).toMatchObject({ status: 404 })
    expect(api.requests.at(-1)?.url).toMatch(/^\/k8s\/clusters\/c-1\/apis\/suite\.egressproxies\.dev\/v1\/widgets/)
    await prefixed.close()
  })

  it('refuses at once to go without any kubeconfig', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'no-kubeconfig-'))
    try {
      vi.stubEnv('HOME', folder)
      vi.stubEnv('KUBECONFIG', undefined)
      expect(() => KubeClient.fromDefault()).toThrow(/kubeconfig.*neither \$KUBECONFIG, nor ~\/\.kube\/config, nor/)
    } finally {
      vi.unstubAllEnvs()
      await rm(folder, { recursive: true })
    }
  })

  it('refuses a kubeconfig that is none', () => {
    const code = 'KUBE_CONFIG'
    const missing = join(dir, 'missing')
    expect(() => KubeClient.fromKubeconfig({ file: missing })).toThrow(expect.objectContaining({ code }))
    expect(() => KubeClient.fromKubeconfig({ text: '{"clusters": [{}]}' })).toThrow(expect.objectContaining({ code }))
  })

  it('reports what is wrong with the kubeconfig at the first request', async () => {
    const empty = KubeClient.fromKubeconfig({ text: '{}' })
    expect(await failure(empty.list(widgets))).toMatchObject({ code: 'KUBE_CONFIG' })
    const text = kubeconfig(api.url, {}, { 'insecure-skip-tls-verify': false })
    const plain = KubeClient.fromKubeconfig({ text })
    expect((await failure(plain.list(widgets))).message).toContain('skipTLSVerify')
    const lost = KubeClient.fromKubeconfig({ text: kubeconfig(api.url, { 'client-key': join(dir, 'none.pem') }) })
    expect(await failure(lost.list(widgets))).toMatchObject({ code: 'KUBE_CONFIG' })
  })

  it('reads the token of a service account again while it runs', async () => {
    const tokenFile = join(dir, 'token')
    api.token = 'first'
    await writeFile(tokenFile, 'first\n')
    const user = { 'auth-provider': { name: 'tokenFile', config: { tokenFile } } }
    const inCluster = KubeClient.fromKubeconfig({ text: kubeconfig(api.url, user) })
    await inCluster.list(widgets)
    api.token = 'second'
    await writeFile(tokenFile, 'second\n')
    expect(await failure(inCluster.list(widgets))).toMatchObject({ code: 'KUBE_UNAUTHORIZED', status: 401 })
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 61_000 })
    await inCluster.list(widgets)
    await inCluster.close()
  })

  it('dials anew when its certificates changed, and only then', async () => {
    const ca = join(dir, 'ca.pem')
    await writeFile(ca, 'one')
    const text = kubeconfig(api.url, {}, { 'certificate-authority': ca })
    const rotating = KubeClient.fromKubeconfig({ text })
    const listTen = async () => {
      for (let n = 0; n < 10; n++) await rotating.list(widgets)
      return api.connectionsAccepted
    }
    const first = await listTen()
    expect(await listTen()).toBe(first)
    await writeFile(ca, 'two')
    const second = await listTen()
    expect(second).toBeGreaterThan(first)
    expect(await listTen()).toBe(second)
    await rotating.close()
    await eventually('its connections are closed', budgetMs, () =>
      Promise.resolve(api.openConnections === 0 || undefined),
    )
  })

  it('says when nobody listens, without naming more than the request', async () => {
    await api.stop()
    const refused = await failure(client.get(widgets, { namespace, name: 'x' }))
    expect(refused).toMatchObject({ code: 'KUBE_UNREACHABLE', status: 0, reason: 'Unreachable' })
    expect(refused.message).toContain('GET /apis/suite.egressproxies.dev/v1/namespaces/default/widgets/x')
    expect(refused.message).toContain('ECONNREFUSED')
    expect(refused.cause).toBeInstanceOf(Error)
  })

  it('ends with the reason of the signal, before and during a request', async () => {
    const reason = new Error('the caller left')
    await expect(client.list(widgets, {}, AbortSignal.abort(reason))).rejects.toBe(reason)
    const during = new AbortController()
    const watching = (async () => {
      for await (const event of client.watch(widgets, {}, during.signal)) expect(event).toBeUndefined()
    })()
    await eventually('the watch is open', budgetMs, () => Promise.resolve(api.openWatches === 1 || undefined))
    during.abort(reason)
    await expect(watching).rejects.toBe(reason)
    await eventually('the watch is closed', budgetMs, () => Promise.resolve(api.openWatches === 0 || undefined))
  })

  it('closes the connection of a watch that was left in the middle, and survives its breaking then', async () => {
    await client.create(widgets, { metadata: { namespace, name: 'one' } })
    for await (const event of client.watch(widgets, {}, new AbortController().signal)) {
      expect(event.kind).toBe('added')
      api.dropWatches()
      break
    }
    await eventually('the watch is closed', budgetMs, () => Promise.resolve(api.openWatches === 0 || undefined))
    await client.list(widgets)
  })

  it('reads on in one piece when the snapshot of its pages was forgotten', async () => {
    for (const name of ['a', 'b', 'c']) await client.create(widgets, { metadata: { namespace, name } })
    const release = api.faults.fail({ status: 410, path: /widgets/, times: 1, query: /continue=/ })
    const all = await client.listAll(widgets, { limit: 2 })
    release()
    expect(all.items.map((item) => item.metadata.name)).toEqual(['a', 'b', 'c'])
    expect(api.requests.filter(({ url }) => url.includes('widgets?')).map(({ url }) => /limit=\d/.test(url))).toEqual([
      true,
      true,
    ])
    expect(api.requests.at(-1)?.url).toBe('/apis/suite.egressproxies.dev/v1/widgets')
  })
})

describe('the client against a server that is not what it says', () => {
  let server: Server
  let client: KubeClient

  const serve = async (listener: RequestListener, options: ClientOptions = {}) => {
    server = createServer(listener)
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    const { port } = server.address() as AddressInfo
    client = KubeClient.fromKubeconfig({ text: kubeconfig(`http://127.0.0.1:${port}`) }, options)
  }
  const watchAll = async () => {
    const kinds: string[] = []
    for await (const event of client.watch(widgets, {}, AbortSignal.timeout(budgetMs))) kinds.push(event.kind)
    return kinds
  }

  afterEach(async () => {
    await client.close()
    server.closeAllConnections()
    server.close()
  })

  it('keeps a budget for an answer that never comes, whole or in part', async () => {
    await serve(
      (request, response) => {
        if (request.url?.includes('limit=1') === true) response.writeHead(200).write('{"items": [')
      },
      { requestTimeoutMs: 200 },
    )
    const late = await failure(client.list(widgets))
    expect(late).toMatchObject({ code: 'KUBE_TIMEOUT', status: 0, reason: 'Timeout' })
    expect(await failure(client.list(widgets, { limit: 1 }))).toMatchObject({ code: 'KUBE_TIMEOUT' })
    expect(await failure(watchAll())).toMatchObject({ code: 'KUBE_TIMEOUT' })
  })

  it('has no budget for a watch that is open', async () => {
    await serve(
      (_request, response) => {
        response.writeHead(200).flushHeaders()
        setTimeout(() => {
          response.end(`${JSON.stringify({ type: 'BOOKMARK', object: { metadata: { resourceVersion: '7' } } })}\n`)
        }, 500)
      },
      { requestTimeoutMs: 200 },
    )
    expect(await watchAll()).toEqual(['bookmark'])
  })

  it('shows the text of an answer that something on the way made, and how long it asks to wait', async () => {
    await serve((_request, response) => {
      response.writeHead(503, { 'retry-after': '7' }).end('<html>upstream is away</html>')
    })
    const refused = await failure(client.list(widgets))
    expect(refused).toMatchObject({ code: 'KUBE_SERVER', status: 503, retryAfterMs: 7000 })
    expect(refused.message).toContain('upstream is away')
  })

  it.each([
    ['not JSON', 'hello'],
    ['no list', '{}'],
    ['a list without a version', '{"items":[],"metadata":{}}'],
  ])('refuses a list that is %s', async (_what, body) => {
    await serve((_request, response) => response.end(body))
    expect(await failure(client.list(widgets))).toMatchObject({ code: 'KUBE_PROTOCOL', status: 0 })
  })

  it.each([
    ['is cut in the middle of a line', (write: (text: string) => void) => write('{"type":"ADDED","obj')],
    ['never ends its line', (write: (text: string) => void) => write('x'.repeat(9 * 1024 * 1024))],
    ['has an unknown event', (write: (text: string) => void) => write('{"type":"RENAMED","object":{}}\n')],
  ])('refuses a watch that %s', async (_what, send) => {
    await serve((_request, response) => {
      response.writeHead(200)
      send((text) => response.write(text))
      response.end()
    })
    expect(await failure(watchAll())).toMatchObject({ code: 'KUBE_PROTOCOL' })
  })

  it('reports a watch whose connection breaks', async () => {
    await serve((_request, response) => {
      response.writeHead(200).write('\n')
      setTimeout(() => response.destroy(), 50)
    })
    expect(await failure(watchAll())).toMatchObject({ code: 'KUBE_UNREACHABLE' })
  })
})

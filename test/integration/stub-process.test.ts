// The stub as a process of its own with the operator as another, put together from nothing but what the stub prints and the sample.
import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { afterEach, expect, it } from 'vitest'
import type { Proxy } from '../../src/api/proxy.ts'
import { KubeClient } from '../../src/kube/client.ts'
import { proxyResource } from '../../src/reconcile/resources.ts'
import { startOperator } from '../support/e2e/operator-process.ts'
import { sampleProxy } from '../support/e2e/samples.ts'
import { eventually } from '../support/eventually.ts'
import { startProductApi } from '../support/product-kinds.ts'

const budgetMs = 90_000
const stubScript = resolve(import.meta.dirname, '../../hack/stub-libvirt.ts')

let undo = new AsyncDisposableStack()
afterEach(async () => {
  await undo.disposeAsync()
  undo = new AsyncDisposableStack()
})

async function endOf(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const exited = once(child, 'exit')
  child.kill('SIGTERM')
  await exited
}

it('makes a Proxy of the sample Ready with the printed config and the printed flags', async () => {
  const folder = undo.adopt(await mkdtemp(join(tmpdir(), 'stub-process-')), (it) => rm(it, { recursive: true }))
  const stub = undo.adopt(
    spawn(process.execPath, [stubScript, '--boot-delay-ms', '100'], { stdio: ['ignore', 'pipe', 'inherit'] }),
    endOf,
  )
  let printed = ''
  stub.stdout.setEncoding('utf8').on('data', (chunk: string) => (printed += chunk))
  await eventually('what the stub prints', budgetMs, () => Promise.resolve(printed.includes('Ctrl-C') || undefined))
  const providersConfig = join(folder, 'providers.yaml')
  await writeFile(providersConfig, printed.slice(printed.indexOf('providers:\n'), printed.indexOf('Ctrl-C')))
  const flags = /^ +(--.+)$/m.exec(printed)?.[1]?.split(' ') ?? []

  const api = undo.use(await startProductApi())
  const kubeconfig = join(folder, 'kubeconfig')
  await api.writeKubeconfig(kubeconfig)
  const client = undo.adopt(KubeClient.fromKubeconfig({ file: kubeconfig }), (it) => it.close())
  const log = join(folder, 'operator.txt')
  const operator = undo.adopt(
    await startOperator({ kubeconfig, providersConfig, more: flags }, log),
    async (it) => await it.kill(),
  )
  await client.create(proxyResource, { ...(await sampleProxy('proxy-kvm2-sample', {})) })
  const ref = { namespace: 'default', name: 'proxy-kvm2-sample' }
  const ready = await eventually('the Proxy is Ready', budgetMs, async () => {
    const proxy = await client.get<Proxy>(proxyResource, ref)
    return proxy.status?.phase === 'Ready' ? proxy : undefined
  })
  const listed = await fetch(`${operator.urls.discovery}/v1/proxies?format=text`)
  expect(await listed.text()).toBe(`${ready.status?.endpoint ?? ''}\n`)
  expect(await operator.stop()).toBe(0)
})

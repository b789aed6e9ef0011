// The story that every demo tells: Proxies are applied, used, changed and deleted, and each claim is checked where it would show.
import { z } from 'zod'
import type { Proxy } from '../../src/api/proxy.ts'
import type { KubeClient } from '../../src/kube/client.ts'
import { proxyResource } from '../../src/reconcile/resources.ts'
import { getThrough, getThroughTunnel } from '../../test/support/e2e/through-proxy.ts'
import { eventually } from '../../test/support/eventually.ts'
import { DemoError, type Audience } from './audience.ts'
import type { HostInstance, Stage } from './stage.ts'

export interface PlayParts {
  readonly stage: Stage
  readonly client: KubeClient
  readonly audience: Audience
  readonly discoveryUrl: string
}

const foundSchema = z.object({ name: z.string(), host: z.string(), url: z.string() })

export async function play(parts: PlayParts): Promise<void> {
  const { audience, stage } = parts
  await makeProxies(parts)
  await useProxy(parts)
  const [changed] = stage.proxies
  const last = stage.proxies.at(-1)
  if (changed === undefined || last === undefined) throw new DemoError('the stage has no Proxy')
  await changeProxy(parts, changed.metadata.name)
  await deleteProxy(parts, last.metadata.name)
  audience.tell('')
}

/** Applies what is not there, and waits until all are Ready. */
export async function makeProxies({ stage, audience }: PlayParts): Promise<void> {
  const { length } = stage.proxies
  audience.tell(
    '',
    length === 1
      ? `1. A Proxy is applied: ${stage.source}. The operator makes a VM for it:`
      : `1. ${length} Proxies are applied: ${stage.source}. The operator makes a VM for each:`,
    '',
  )
  await stage.apply(stage.proxies)
  await audience.until(length === 1 ? 'the Proxy is Ready' : `all ${length} Proxies are Ready`, (proxies) =>
    proxies.length === length && proxies.every(isReady) ? true : undefined,
  )
  audience.tell('', '   On the host now:', ...(await inventoryLines(stage)))
}

async function useProxy({ stage, audience, discoveryUrl }: PlayParts): Promise<void> {
  const { pages, proxies } = stage
  audience.tell('', '2. Who needs a proxy asks the discovery API:', '')
  const listUrl = `${discoveryUrl}/v1/proxies?format=text`
  const urls = await eventually('the discovery API lists every proxy', stage.stepBudgetMs, async () => {
    const text = await (await fetch(listUrl)).text()
    const lines = text.split('\n').filter((line) => line !== '')
    return lines.length === proxies.length ? lines : undefined
  })
  audience.tell(`   GET ${listUrl}`, ...urls.map((url) => `       ${url}`))
  const randomUrl = `${discoveryUrl}/v1/proxies/random`
  const found = foundSchema.parse(await (await fetch(randomUrl)).json())
  audience.tell(`   GET ${randomUrl}`, `       ${found.url}  (${found.name})`)

  const plain = await getThrough(found.url, pages.httpUrl)
  requirePage('HTTP', plain, found.host)
  audience.tell(
    '   and fetches pages through it:',
    `   GET ${pages.httpUrl}`,
    `       ${plain.status}; the page saw a client at ${plain.body}, which is the VM`,
  )
  const tunnelled = await getThroughTunnel(found.url, pages.httpsUrl, pages.ca)
  requirePage('HTTPS', tunnelled, found.host)
  audience.tell(
    `   CONNECT, then GET ${pages.httpsUrl}`,
    `       ${tunnelled.status}; TLS from end to end, and the page saw ${tunnelled.body}`,
  )
}

async function changeProxy({ stage, audience, client }: PlayParts, name: string): Promise<void> {
  audience.tell(
    '',
    `3. The user-data of ${name} changes. What a VM was made from is never changed in it: it is replaced.`,
    '',
  )
  const before = await instanceOf(stage, named(audience.proxies(), name))
  const patch = { spec: { cloudInit: stage.changedUserData } }
  const ref = { namespace: 'default', name }
  const { metadata } = await client.patch<Proxy>(proxyResource, ref, { kind: 'merge', body: patch })
  const replaced = await audience.until(`${name} is Ready with another VM`, (proxies) => {
    const proxy = named(proxies, name)
    const current =
      proxy.status?.observedGeneration === metadata.generation && proxy.status?.specHash !== before.specHash
    return current && isReady(proxy) ? proxy : undefined
  })
  const after = await instanceOf(stage, replaced)
  if (after.run === before.run) throw new DemoError(`${name} is Ready again, and its VM was not started anew`)
  audience.tell('', `   VM before: ${before.text}`, `   VM after:  ${after.text}`)
}

async function deleteProxy({ stage, audience, client }: PlayParts, name: string): Promise<void> {
  audience.tell('', `4. ${name} is deleted. The object goes when nothing of its VM is left:`, '')
  const { name: instance } = await instanceOf(stage, named(audience.proxies(), name))
  await client.delete(proxyResource, { namespace: 'default', name })
  await audience.until(`${name} is gone`, (proxies) =>
    proxies.some(({ metadata }) => metadata.name === name) ? undefined : true,
  )
  const { instances, files } = await stage.inventory()
  const left = [...instances.map((it) => it.name), ...files].filter((it) => it.includes(instance))
  if (left.length > 0) throw new DemoError(`${name} is gone, and on the host is still: ${left.join(', ')}`)
  audience.tell('', `   Of ${instance} nothing is left on the host:`, ...(await inventoryLines(stage)))
}

async function inventoryLines(stage: Stage): Promise<string[]> {
  const { instances, files } = await stage.inventory()
  return [
    `       domains  ${instances.length === 0 ? 'none' : instances.map(({ name }) => name).join(', ')}`,
    ...files.map((file, index) => `       ${index === 0 ? 'pool    ' : '        '} ${file}`),
  ]
}

interface SeenInstance extends HostInstance {
  readonly specHash: string | undefined
  /** For people. */
  readonly text: string
}

/** The VM of a Proxy, as the host shows it. */
async function instanceOf(stage: Stage, { metadata, status }: Proxy): Promise<SeenInstance> {
  const { instances } = await stage.inventory()
  const found = instances.find(({ name }) => name === status?.instanceName)
  if (found === undefined) throw new DemoError(`${metadata.name}: the host has no domain ${status?.instanceName ?? ''}`)
  const specHash = status?.specHash
  const text = `libvirt id ${found.run ?? 'none'}, ${status?.ip ?? 'no address'}, made from ${specHash?.slice(0, 15) ?? 'nothing'}...`
  return { ...found, specHash, text }
}

function named(proxies: readonly Proxy[], name: string): Proxy {
  const found = proxies.find(({ metadata }) => metadata.name === name)
  if (found === undefined) throw new DemoError(`there is no Proxy ${name}; was it deleted by somebody else?`)
  return found
}

function isReady({ status }: Proxy): boolean {
  return status?.phase === 'Ready'
}

function requirePage(kind: string, page: { readonly status: number; readonly body: string }, host: string): void {
  if (page.status === 200 && page.body === host) return
  throw new DemoError(`${kind} through ${host}: status ${page.status}, and the page saw ${JSON.stringify(page.body)}`)
}

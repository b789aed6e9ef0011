// What the tests of the whole operator share: operators in a stub's world, and waiting for what the world then shows.
import type { Proxy, ProxySpecInput } from '../../../src/api/proxy.ts'
import type { KubeClient } from '../../../src/kube/client.ts'
import type { Logger } from '../../../src/observe/logger.ts'
import { proxyResource } from '../../../src/reconcile/resources.ts'
import { sampleProxy } from '../../support/e2e/samples.ts'
import { eventually } from '../../support/eventually.ts'
import { startInProcessOperator, type InProcessOperator } from '../../support/in-process-operator.ts'
import type { LibvirtStub } from '../../support/libvirt-stub/stub.ts'
import { recordingLogger } from '../../support/recording-logger.ts'
import { baseFiles, type StubWorld } from '../../support/stub-world.ts'

/** For whatever takes milliseconds on an idle machine. */
export const budgetMs = 60_000

export async function startOperator(world: StubWorld, log: Logger = recordingLogger()): Promise<InProcessOperator> {
  return await startInProcessOperator({
    kubeconfig: world.api.kubeconfig(),
    providersConfigFile: world.providersConfigFile,
    healthCheckUrl: world.pages.httpUrl,
    log,
    allowLoopback: true,
  })
}

/** kubectl apply of the sample under another name, with other fields. User-data from a Secret takes the place of the sample's. */
export async function createProxy(client: KubeClient, name: string, spec: Partial<ProxySpecInput> = {}): Promise<void> {
  const sample = await sampleProxy(name, spec)
  const { cloudInit, ...rest } = sample.spec
  await client.create(proxyResource, {
    ...sample,
    spec: { ...rest, ...(spec.cloudInitFrom === undefined && { cloudInit }) },
  })
}

export async function deleteProxy(client: KubeClient, name: string): Promise<void> {
  await client.delete(proxyResource, { namespace: 'default', name })
}

export async function untilProxies(
  client: KubeClient,
  what: string,
  wanted: (proxies: readonly Proxy[]) => boolean,
): Promise<readonly Proxy[]> {
  return await eventually(what, budgetMs, async () => {
    const { items } = await client.list<Proxy>(proxyResource)
    if (wanted(items)) return items
    throw new Error(`Proxies: ${JSON.stringify(items.map(({ metadata, status }) => [metadata.name, status]))}`)
  })
}

export async function untilReady(client: KubeClient, name: string): Promise<Proxy> {
  const isWanted = ({ metadata, status }: Proxy) => metadata.name === name && status?.phase === 'Ready'
  const proxies = await untilProxies(client, `${name} is Ready`, (all) => all.some(isWanted))
  const found = proxies.find(isWanted)
  if (found === undefined) throw new Error(`${name} is not among the Proxies`)
  return found
}

export async function untilGone(client: KubeClient): Promise<void> {
  await untilProxies(client, 'all Proxies are gone', (proxies) => proxies.length === 0)
}

/** Names of the domains and files there are. */
export function inventory(stub: LibvirtStub): { readonly domains: string[]; readonly files: string[] } {
  return {
    domains: stub
      .domains()
      .map(({ name }) => name)
      .sort(),
    files: stub
      .volumes()
      .map(({ name }) => name)
      .sort(),
  }
}

/** What is on the host when there is no instance and the image was fetched once. */
export const emptyHost = { domains: [], files: baseFiles }

// The whole operator in this process, put together as `run` does it: for the demos and for tests that look inside. Not the command.
import { createOperator } from '../../src/app.ts'
import { loadProvidersConfig } from '../../src/config/load.ts'
import { formatProblem } from '../../src/config/validate-command.ts'
import { KubeClient, type ResourceType } from '../../src/kube/client.ts'
import { systemClock } from '../../src/lib/clock.ts'
import type { Logger } from '../../src/observe/logger.ts'
import { createMetrics, type Metrics } from '../../src/observe/metrics.ts'
import { buildProviders } from '../../src/providers.ts'

export interface InProcessOperatorOptions {
  /** Kubeconfig as text. */
  readonly kubeconfig: string
  readonly providersConfigFile: string
  readonly healthCheckUrl: string
  readonly log: Logger
  /** The VMs are processes on this machine, and loopback addresses are their own. */
  readonly allowLoopback: boolean
}

export interface InProcessOperator {
  /** Base URL of the discovery API. */
  readonly discoveryUrl: string
  readonly metrics: Metrics
  /** Ends it in the orderly way, connections included. */
  stop(): Promise<void>
}

const namespaceResource: ResourceType = {
  group: '',
  version: 'v1',
  plural: 'namespaces',
  kind: 'Namespace',
  namespaced: false,
}

/** Resolves when it watches and serves. @throws Error that holds every mistake in the providers config */
export async function startInProcessOperator(options: InProcessOperatorOptions): Promise<InProcessOperator> {
  const { log } = options
  const loaded = await loadProvidersConfig(options.providersConfigFile)
  if (loaded.kind === 'invalid') {
    throw new Error(loaded.problems.map((problem) => formatProblem(options.providersConfigFile, problem)).join('\n'))
  }
  await using undo = new AsyncDisposableStack()
  const client = undo.adopt(KubeClient.fromKubeconfig({ text: options.kubeconfig }), (it) => it.close())
  const installation = (await client.get(namespaceResource, { name: 'kube-system' })).metadata.uid
  const metrics = createMetrics()
  const common = { clock: systemClock, random: Math.random, log, metrics, installation }
  const operator = createOperator({
    ...common,
    client,
    providers: buildProviders(loaded.config, {
      ...common,
      addressPolicy: { allowLoopback: options.allowLoopback },
    }),
    instance: 'in-process',
    maxConcurrentReconciles: 64,
    providerCheckIntervalMs: 60_000,
    providerCheckTimeoutMs: 15_000,
    healthCheckUrl: options.healthCheckUrl,
  })
  undo.defer(() => operator.stop())
  const discoveryUrl = await operator.discovery.listen({ host: '127.0.0.1', port: 0 })
  await operator.start()
  const end = undo.move()
  return { discoveryUrl, metrics, stop: () => end.disposeAsync() }
}

// The reconcilers on a real queue, reflector and HTTP, over a scripted provider: an operator without hypervisor and probes.
import { apiVersion } from '../../src/api/group.ts'
import { proxySpecSchema, type Proxy, type ProxySpecInput } from '../../src/api/proxy.ts'
import { KubeClient } from '../../src/kube/client.ts'
import { EventRecorder } from '../../src/kube/events.ts'
import { keyOf } from '../../src/kube/object.ts'
import { WorkQueue } from '../../src/kube/queue.ts'
import { Reflector } from '../../src/kube/reflector.ts'
import { runWorkers } from '../../src/kube/workers.ts'
import { systemClock } from '../../src/lib/clock.ts'
import { silentLogger } from '../../src/observe/logger.ts'
import type { ProviderSet } from '../../src/provider/contract.ts'
import { kubeProxyApi, kubeReadSecret } from '../../src/reconcile/kube-api.ts'
import { createProxyHandler } from '../../src/reconcile/proxy-handler.ts'
import { proxyResource } from '../../src/reconcile/resources.ts'
import { FakeProbes } from './reconcile-harness.ts'
import type { KubeApi } from './kube-api/kube-api.ts'

export interface RunningOperator {
  readonly probes: FakeProbes
  readonly queue: WorkQueue
  stop(): Promise<void>
}

/** Starts it; it waits for the API server as long as it takes. */
export function startReconcileOperator(api: KubeApi, providers: ProviderSet): RunningOperator {
  const clock = systemClock
  const random = Math.random
  const logger = silentLogger
  const client = KubeClient.fromKubeconfig({ text: api.kubeconfig() })
  const queue = new WorkQueue({ clock, random, backoff: { baseMs: 20, maxMs: 500, jitter: 0.5 } })
  const reflector = new Reflector<Proxy>({
    client,
    type: proxyResource,
    clock,
    random,
    logger,
    timing: { backoff: { baseMs: 20, maxMs: 200, jitter: 0.5 } },
    onEvent: (_kind, { metadata }) => queue.add(keyOf(metadata)),
  })
  const events = new EventRecorder({ client, clock, random, logger, component: 'test', instance: 'test' })
  const probes = new FakeProbes()
  probes.onTransition = (key) => queue.add(key)
  const handler = createProxyHandler({
    store: reflector.store,
    api: kubeProxyApi(client),
    readSecret: kubeReadSecret(client),
    queue,
    providers,
    probes,
    readiness: { lastReadyMs: () => undefined },
    events,
    clock,
    random,
    log: logger,
    installation: 'test',
    defaultCheckUrl: 'http://check.example.net/ip',
    mayMutate: () => true,
  })
  const abort = new AbortController()
  reflector.start()
  const reconcile = (key: string, signal: AbortSignal) => handler.reconcile(key, signal)
  const workers = runWorkers(queue, 8, reconcile, { signal: abort.signal, clock, logger })
  return {
    probes,
    queue,
    async stop() {
      abort.abort(new Error('stop'))
      await workers
      await handler.stop()
      await reflector.stop()
      await events.stop(1000)
      await client.close()
    },
  }
}

/** A Proxy as the API server would store it, defaults included. */
export function proxyObject(name: string, spec: ProxySpecInput) {
  return { apiVersion, kind: 'Proxy', metadata: { name, namespace: 'default' }, spec: proxySpecSchema.parse(spec) }
}

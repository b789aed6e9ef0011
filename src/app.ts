// The composition root: builds one operator from its parts, starts it and stops it in the right order. No behaviour of its own.
import type { FastifyInstance } from 'fastify'
import type { Proxy } from './api/proxy.ts'
import { createDiscoveryServer } from './discovery/server.ts'
import { DirectChecks } from './health/direct.ts'
import { HealthEngine } from './health/engine.ts'
import type { KubeClient } from './kube/client.ts'
import { EventRecorder } from './kube/events.ts'
import { OperatorHost } from './kube/host.ts'
import { keyOf } from './kube/object.ts'
import { WorkQueue, type QueueMetrics } from './kube/queue.ts'
import { runWorkers } from './kube/workers.ts'
import type { Random } from './lib/backoff.ts'
import type { Clock } from './lib/clock.ts'
import type { Logger } from './observe/logger.ts'
import type { Metrics } from './observe/metrics.ts'
import type { ProviderSet } from './provider/contract.ts'
import { kubeProviderHealthApi, kubeProxyApi, kubeReadSecret } from './reconcile/kube-api.ts'
import { ProviderHealthMonitor } from './reconcile/provider-health.ts'
import { createProxyHandler } from './reconcile/proxy-handler.ts'
import { trackProxies } from './reconcile/proxy-metrics.ts'
import { proxyResource } from './reconcile/resources.ts'
import { fetchDirectly } from './wire/http-proxy/client.ts'

export interface OperatorParts {
  readonly client: KubeClient
  readonly providers: ProviderSet
  /** Id of this installation, a DNS label. */
  readonly installation: string
  readonly clock: Clock
  readonly random: Random
  readonly log: Logger
  readonly metrics: Metrics
  /** Name of this process in Events: the Pod's or the host's. */
  readonly instance: string
  readonly maxConcurrentReconciles: number
  readonly providerCheckIntervalMs: number
  readonly providerCheckTimeoutMs: number
  /** Fetched through every proxy whose spec names no URL. */
  readonly healthCheckUrl: string | undefined
}

export interface Operator {
  /** Begins watching and working. Whatever is not there yet is waited for; nothing of it is a reason to fail. */
  start(): Promise<void>
  /** Whether the first complete list of Proxies is in. */
  synced(): boolean
  /** The discovery API, to be told where to listen. */
  readonly discovery: FastifyInstance
  /** Ends all work in the reverse order of its beginning; resolves when the hypervisors are let go of. */
  stop(): Promise<void>
}

const maxConcurrentProbes = 128
/** For Events that still wait to be sent at the end, milliseconds. */
const eventsFlushMs = 3000
/** Name of the queue and the controller in metrics. */
const controller = 'proxy'

/** An operator that has not begun anything. */
export function createOperator(parts: OperatorParts): Operator {
  const { client, clock, installation, log, metrics, providers, random } = parts
  const queue = new WorkQueue({ clock, random, metrics: queueMetrics(metrics) })
  const events = new EventRecorder({
    client,
    clock,
    random,
    logger: log.child({ logger: 'events' }),
    component: 'egress-proxies-operator',
    instance: parts.instance,
  })
  const probes = new HealthEngine({
    clock,
    random,
    log: log.child({ logger: 'health' }),
    metrics,
    maxConcurrentProbes,
    direct: new DirectChecks({ clock, fetch: (url, signal) => fetchDirectly({ url, clock, signal, maxBodyBytes: 0 }) }),
    onTransition: (key) => queue.add(key),
  })
  const host = new OperatorHost({ client, clock, random, logger: log.child({ logger: 'kube' }) })
  const reflector = host.watch<Proxy>({
    type: proxyResource,
    onEvent: (_kind, { metadata }) => queue.add(keyOf(metadata)),
  })
  const { store } = reflector
  const readiness = new ProviderHealthMonitor({
    api: kubeProviderHealthApi(client),
    providers,
    events,
    clock,
    log: log.child({ logger: 'provider-health' }),
    metrics,
    installation,
    intervalMs: parts.providerCheckIntervalMs,
    timeoutMs: parts.providerCheckTimeoutMs,
    onTargetReady: (provider, target) => {
      for (const { metadata, spec, status } of store.list()) {
        if (spec.provider === provider && status?.latch?.target === target) queue.add(keyOf(metadata))
      }
    },
  })
  const handler = createProxyHandler({
    store,
    api: kubeProxyApi(client),
    readSecret: kubeReadSecret(client),
    queue,
    providers,
    probes,
    readiness,
    events,
    clock,
    random,
    log: log.child({ logger: 'proxy' }),
    installation,
    // one replica, and no lease to lose
    mayMutate: () => true,
    ...(parts.healthCheckUrl === undefined ? {} : { defaultCheckUrl: parts.healthCheckUrl }),
  })
  const discovery = createDiscoveryServer({
    proxies: () => store.list(),
    verdict: (key) => probes.verdict(key),
    random,
    log: log.child({ logger: 'discovery' }),
  })

  const stopWork = new AbortController()
  const untrack = trackProxies(store, metrics)
  let working: Promise<void> | undefined

  async function work(): Promise<void> {
    await Promise.race([host.synced(), aborted(stopWork.signal)])
    if (stopWork.signal.aborted) return
    readiness.start()
    await runWorkers(queue, parts.maxConcurrentReconciles, (key, signal) => handler.reconcile(key, signal), {
      signal: stopWork.signal,
      clock,
      logger: log,
      onResult: (result, durationMs) => {
        metrics.reconcileTotal.inc({ controller, result })
        metrics.reconcileTime.observe({ controller }, durationMs / 1000)
      },
    })
  }

  return {
    discovery,
    synced: () => reflector.hasSynced,
    async start() {
      await host.start()
      working = work()
    },
    async stop() {
      stopWork.abort(new Error('the operator is stopping'))
      await working
      // no worker takes a key any more, and what waits is found again by the next list: only the timers are to go
      await queue.shutDown(stopWork.signal).catch(() => undefined)
      await Promise.all([handler.stop(), readiness.stop()])
      probes.stop()
      untrack()
      await host.stopped()
      await Promise.all(providers.list().map(({ provider }) => provider.close()))
      await events.stop(eventsFlushMs)
      await discovery.close()
    },
  }
}

function queueMetrics(metrics: Metrics): QueueMetrics {
  const labels = { name: controller }
  return {
    depth: (keys) => metrics.queueDepth.set(labels, keys),
    added: () => metrics.queueAdds.inc(labels),
    started: (waitedMs) => metrics.queueWait.observe(labels, waitedMs / 1000),
    finished: () => undefined,
    retried: () => undefined,
  }
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve()
    signal.addEventListener('abort', () => resolve(), { once: true })
  })
}

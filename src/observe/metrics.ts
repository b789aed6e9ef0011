// The one table of all metrics, under names dashboards rely on; not who sets them.
import { Counter, Gauge, Histogram, Registry } from 'prom-client'

const operationBucketsSeconds = [0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1200]
const requestBucketsSeconds = [0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10]

/** Metrics of one operator process. Names, types and units follow the Prometheus conventions. */
export interface Metrics {
  readonly registry: Registry
  readonly providerTargetUp: Gauge<'provider' | 'target'>
  readonly providerCheckDuration: Histogram<'provider'>
  readonly providerOperationDuration: Histogram<'provider' | 'type' | 'operation' | 'result'>
  readonly proxies: Gauge<'provider' | 'phase'>
  readonly proxyUp: Gauge<'namespace' | 'name'>
  readonly probeDuration: Histogram
  readonly configValid: Gauge
  readonly imageDownloadBytes: Counter
  readonly reconcileTotal: Counter<'controller' | 'result'>
  readonly reconcileTime: Histogram<'controller'>
  readonly queueDepth: Gauge<'name'>
  readonly queueAdds: Counter<'name'>
  readonly queueWait: Histogram<'name'>
}

export function createMetrics(): Metrics {
  const registry = new Registry()
  const registers = [registry]
  return {
    registry,
    providerTargetUp: new Gauge({
      name: 'proxy_operator_provider_target_up',
      help: 'Whether the last health check of a target was ready.',
      labelNames: ['provider', 'target'],
      registers,
    }),
    providerCheckDuration: new Histogram({
      name: 'proxy_operator_provider_check_duration_seconds',
      help: 'Time of one health check round of a provider.',
      labelNames: ['provider'],
      buckets: requestBucketsSeconds,
      registers,
    }),
    providerOperationDuration: new Histogram({
      name: 'proxy_operator_provider_operation_duration_seconds',
      help: 'Time of one call of the provider contract; result is ok or the kind of error.',
      labelNames: ['provider', 'type', 'operation', 'result'],
      buckets: operationBucketsSeconds,
      registers,
    }),
    proxies: new Gauge({
      name: 'proxy_operator_proxies',
      help: 'Proxies by provider and phase.',
      labelNames: ['provider', 'phase'],
      registers,
    }),
    proxyUp: new Gauge({
      name: 'proxy_operator_proxy_up',
      help: 'Whether a proxy is healthy.',
      labelNames: ['namespace', 'name'],
      registers,
    }),
    probeDuration: new Histogram({
      name: 'proxy_operator_probe_duration_seconds',
      help: 'Time of one probe through a proxy.',
      buckets: requestBucketsSeconds,
      registers,
    }),
    configValid: new Gauge({
      name: 'proxy_operator_config_valid',
      help: 'Whether the providers config file as it stands is valid.',
      registers,
    }),
    imageDownloadBytes: new Counter({
      name: 'proxy_operator_image_download_bytes_total',
      help: 'Bytes of images read from their servers.',
      registers,
    }),
    reconcileTotal: new Counter({
      name: 'controller_runtime_reconcile_total',
      help: 'Reconciles by outcome.',
      labelNames: ['controller', 'result'],
      registers,
    }),
    reconcileTime: new Histogram({
      name: 'controller_runtime_reconcile_time_seconds',
      help: 'Time of one reconcile.',
      labelNames: ['controller'],
      buckets: requestBucketsSeconds,
      registers,
    }),
    queueDepth: new Gauge({
      name: 'workqueue_depth',
      help: 'Keys that wait in the queue.',
      labelNames: ['name'],
      registers,
    }),
    queueAdds: new Counter({
      name: 'workqueue_adds_total',
      help: 'Keys added to the queue.',
      labelNames: ['name'],
      registers,
    }),
    queueWait: new Histogram({
      name: 'workqueue_queue_duration_seconds',
      help: 'Time a key waited before a worker took it.',
      labelNames: ['name'],
      buckets: requestBucketsSeconds,
      registers,
    }),
  }
}

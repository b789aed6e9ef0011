// The command run: from arguments and a providers config to an operator that serves and works until it is told to stop.
import { once } from 'node:events'
import type { Server } from 'node:http'
import { hostname } from 'node:os'
import { createOperator } from '../app.ts'
import { loadProvidersConfig } from '../config/load.ts'
import { formatProblem, type Output } from '../config/validate-command.ts'
import { KubeClient } from '../kube/client.ts'
import { backoffDelayMs } from '../lib/backoff.ts'
import { sleep, systemClock } from '../lib/clock.ts'
import { errorMessage } from '../lib/errors.ts'
import { createPageServer, healthPages, metricsPages, type Pages } from '../observe/endpoints.ts'
import { createLogger, type Logger } from '../observe/logger.ts'
import { createMetrics } from '../observe/metrics.ts'
import { parseRunOptions, type BindAddress, type RunOptions } from '../options.ts'
import { buildProviders } from '../providers.ts'

export interface RunEnvironment {
  /** Ends the operator in an orderly way. */
  readonly stop: AbortSignal
  readonly stdout: Output
  readonly stderr: Output
  /** Printed for --help and after a mistake in the arguments. */
  readonly usage: string
}

/** Resolves to the exit status: 0 after an orderly stop, 1 for an unusable config, 2 for unusable arguments. */
export async function runCommand(args: readonly string[], environment: RunEnvironment): Promise<number> {
  const parsed = parseRunOptions(args)
  switch (parsed.kind) {
    case 'help':
      environment.stdout.write(environment.usage)
      return 0
    case 'invalid':
      for (const problem of parsed.problems) environment.stderr.write(`${problem}\n`)
      return 2
    case 'valid':
      return await run(parsed.options, environment)
  }
}

async function run(options: RunOptions, { stop, stderr }: RunEnvironment): Promise<number> {
  const loaded = await loadProvidersConfig(options.providersConfig)
  if (loaded.kind === 'invalid') {
    for (const problem of loaded.problems) stderr.write(`${formatProblem(options.providersConfig, problem)}\n`)
    return 1
  }
  const log = createLogger({ level: options.logLevel })
  const metrics = createMetrics()
  metrics.configValid.set(1)
  const client =
    options.kubeconfig === undefined
      ? KubeClient.fromDefault()
      : KubeClient.fromKubeconfig({ file: options.kubeconfig })
  let notReady: () => string | undefined = () => 'the API server has not answered yet'
  const servers: Server[] = []
  try {
    const metricsUrl = await serve(options.metrics, metricsPages(metrics.registry), log, servers)
    const healthUrl = await serve(
      options.healthProbe,
      healthPages(() => notReady()),
      log,
      servers,
    )
    const installation = options.installationId ?? (await clusterId(client, log, stop))
    const operator = createOperator({
      ...options,
      client,
      providers: buildProviders(loaded.config, {
        clock: systemClock,
        random: Math.random,
        log,
        metrics,
        installation,
        addressPolicy: { allowLoopback: options.allowLoopbackInstances },
      }),
      installation,
      clock: systemClock,
      random: Math.random,
      log,
      metrics,
      instance: hostname(),
    })
    notReady = () => (operator.synced() ? undefined : 'the first list of Proxies is not in yet')
    try {
      const discovery = await operator.discovery.listen({
        port: options.discovery.port,
        host: options.discovery.host ?? '::',
      })
      log.info('operator listening', { discovery, metrics: metricsUrl, health: healthUrl })
      await operator.start()
      log.info('operator started', { installation })
      if (!stop.aborted) await once(stop, 'abort')
      log.info('operator stopping')
    } finally {
      await operator.stop()
    }
    log.info('operator stopped')
    return 0
  } catch (thrown) {
    // told to stop before it had begun
    if (stop.aborted) return 0
    throw thrown
  } finally {
    for (const server of servers) server.close()
    await client.close()
  }
}

/** The UID of the namespace that every cluster has and keeps: asked until the API server answers. */
async function clusterId(client: KubeClient, log: Logger, signal: AbortSignal): Promise<string> {
  const namespaces = { group: '', version: 'v1', plural: 'namespaces', kind: 'Namespace', namespaced: false }
  for (let attempt = 0; ; attempt++) {
    try {
      return (await client.get(namespaces, { name: 'kube-system' }, signal)).metadata.uid
    } catch (thrown) {
      signal.throwIfAborted()
      log.warn(`cannot read the UID of namespace kube-system, which marks our instances: ${errorMessage(thrown)}`)
      await sleep(
        systemClock,
        backoffDelayMs({ baseMs: 500, maxMs: 10_000, jitter: 0.5 }, attempt, Math.random),
        signal,
      )
    }
  }
}

/** Listens, and returns the base URL. */
async function serve(
  address: BindAddress | undefined,
  pages: Pages,
  log: Logger,
  servers: Server[],
): Promise<string | undefined> {
  if (address === undefined) return undefined
  const server = createPageServer(pages, log)
  servers.push(server)
  server.listen(address.port, address.host)
  await once(server, 'listening')
  const bound = server.address()
  if (bound === null || typeof bound === 'string') return undefined
  return `http://${bound.family === 'IPv6' ? `[${bound.address}]` : bound.address}:${bound.port}`
}

// The health check of a host: a fresh connection, four calls, and where it broke. The shared connection is never touched.
import { errorMessage } from '../../lib/errors.ts'
import type { CallContext, TargetHealth } from '../contract.ts'
import type { LibvirtHost } from './config.ts'
import type { Engine } from './engine.ts'
import { classOf, type CheckReason } from './errors.ts'
import { poolState, type HostApi } from './host-api.ts'
import { readInstance } from './instance.ts'
import { gibBytes, poolStateWord } from './pool-space.ts'

type Outcome =
  | { readonly kind: 'ready'; readonly message: string }
  | { readonly kind: 'broken'; readonly reason: CheckReason; readonly message: string }

/** All hosts at once; never throws for one. */
export async function checkHosts(engine: Engine, context: CallContext): Promise<readonly TargetHealth[]> {
  const checked = await Promise.all(engine.config.hosts.map((host) => checkHost(engine, host, context.signal)))
  const [first, ...more] = checked
  // A target of its own would make the provider not ready, which nobody could cure while the instances are there.
  const stranded = [...engine.known.stranded].map(([host, count]) => `${host} (${count} instances)`)
  if (first === undefined || stranded.length === 0) return checked
  return [{ ...first, details: { ...first.details, removedHosts: stranded.join(', ') } }, ...more]
}

async function checkHost(engine: Engine, host: LibvirtHost, signal: AbortSignal): Promise<TargetHealth> {
  const { clock, log, flavour } = engine
  const began = clock.monotonic()
  // Kept as they come: a host that fails late still says what it answered before.
  const details: Record<string, string> = {
    user: host.user,
    pool: host.pool,
    ...(host.nic.kind === 'network' ? { network: host.nic.network } : {}),
  }
  const outcome = await probe(engine, host, details, signal)
  const latencyMs = Math.round(clock.monotonic() - began)
  const ready = outcome.kind === 'ready'
  const reason = outcome.kind === 'ready' ? 'Reachable' : flavour.reasons[outcome.reason]
  log.debug(`${flavour.subject} host checked`, { host: host.name, ready, reason, latencyMs })
  return { name: host.name, address: host.address, ready, reason, message: outcome.message, latencyMs, details }
}

async function probe(
  engine: Engine,
  host: LibvirtHost,
  details: Record<string, string>,
  signal: AbortSignal,
): Promise<Outcome> {
  try {
    return await engine.connections.fresh(host.name, signal, (api) => ask(engine, api, host, details, signal))
  } catch (thrown) {
    const found = classOf(thrown)
    const message = found?.hint === undefined ? errorMessage(thrown) : `${errorMessage(thrown)} (${found.hint})`
    // The round's time is over, whichever stage was at work.
    const reason = signal.aborted ? 'Timeout' : (found?.checkReason ?? 'APIError')
    return {
      kind: 'broken',
      reason,
      message: signal.aborted ? `the check did not finish in time: ${message}` : message,
    }
  }
}

async function ask(
  engine: Engine,
  api: HostApi,
  host: LibvirtHost,
  details: Record<string, string>,
  signal: AbortSignal,
): Promise<Outcome> {
  const version = versionWords(await api.libVersion({ signal }))
  details['libvirtVersion'] = version
  details['hostname'] = await api.hostname({ signal })
  const pool = await api.findPool(host.pool, { signal })
  const info = await api.poolInfo(pool, { signal })
  details['poolState'] = poolStateWord(info.state)
  const { capacity, available, unit } = engine.flavour.poolDetails
  details[capacity] = `${gib(info.capacityBytes)}${unit}`
  details[available] = `${gib(info.availableBytes)}${unit}`
  if (info.state !== poolState.running) {
    return {
      kind: 'broken',
      reason: 'PoolNotActive',
      message:
        `storage pool ${host.pool} is not running (${poolStateWord(info.state)}); on the host: ` +
        `virsh pool-start ${host.pool} and virsh pool-autostart ${host.pool}`,
    }
  }
  Object.assign(details, await engine.imageStatus.details(host, api, pool, signal))
  if (host.nic.kind === 'network' && !(await api.isNetworkActive(host.nic.network, { signal }))) {
    const { network } = host.nic
    return {
      kind: 'broken',
      reason: 'APIError',
      message: `network ${network} is not active; on the host: virsh net-start ${network} and virsh net-autostart ${network}`,
    }
  }
  const drained = host.drain ? await draining(engine, api, details, signal) : ''
  return {
    kind: 'ready',
    message: `libvirt ${version}, pool ${host.pool} has ${gib(info.availableBytes)} GiB available${drained}`,
  }
}

/** How much longer the host is needed. */
async function draining(
  engine: Engine,
  api: HostApi,
  details: Record<string, string>,
  signal: AbortSignal,
): Promise<string> {
  const found = await Promise.all(
    (await api.allStates({ signal })).map(({ domain }) => readInstance(engine, api, domain, signal)),
  )
  const left = found.filter((instance) => instance?.reading.kind === 'marked').length
  details['drain'] = 'true'
  details['instances'] = String(left)
  return left === 0 ? '; draining: nothing is left on it' : `; draining: ${left} instances are left on it`
}

/** libvirt packs its version as major * 1,000,000 + minor * 1,000 + micro. */
function versionWords(packed: bigint): string {
  return [packed / 1_000_000n, (packed / 1000n) % 1000n, packed % 1000n].join('.')
}

function gib(bytes: bigint): string {
  return (Number(bytes) / gibBytes).toFixed(1)
}

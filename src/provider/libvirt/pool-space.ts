// Whether a storage pool runs and has room for what is about to be made; the only place that says so before libvirt does.
import { ProviderError } from '../errors.ts'
import { poolState, type HostApi, type PoolInfo, type StoragePool } from './host-api.ts'

export const gibBytes = 1024 ** 3
/** Set aside for a seed. */
export const seedReserveBytes = 16 * 1024 * 1024

/** virsh's words for the states of a pool. */
const stateWords = ['inactive', 'building', 'running', 'degraded', 'inaccessible'] as const

export function poolStateWord(state: number): string {
  return stateWords[state] ?? `state ${state}`
}

export interface PoolScope {
  readonly api: HostApi
  readonly pool: StoragePool
  /** Name of the host in the config. */
  readonly host: string
  readonly signal: AbortSignal
}

/** @throws ProviderError permanent (environment) when the pool does not run */
export async function runningPool(scope: PoolScope): Promise<PoolInfo> {
  const info = await scope.api.poolInfo(scope.pool, { signal: scope.signal })
  if (info.state === poolState.running) return info
  const { name } = scope.pool
  throw ProviderError.permanent(
    'environment',
    `host ${scope.host}: storage pool ${name} is not running (${poolStateWord(info.state)}); on the host: ` +
      `virsh pool-start ${name} and virsh pool-autostart ${name}`,
    { code: 'PoolNotActive', target: scope.host },
  )
}

/**
 * @param needs bytes by what they are for
 * @returns bytes that are left besides
 * @throws ProviderError quotaExceeded, or permanent when the pool does not run
 */
export async function requireSpace(scope: PoolScope, needs: Readonly<Record<string, number>>): Promise<bigint> {
  const { availableBytes } = await runningPool(scope)
  const needed = Object.values(needs).reduce((sum, bytes) => sum + bytes, 0)
  if (availableBytes >= BigInt(needed)) return availableBytes - BigInt(needed)
  const parts = Object.entries(needs).map(([what, bytes]) => `${what} ${formatBytes(bytes)}`)
  throw ProviderError.quotaExceeded(
    `host ${scope.host}: storage pool ${scope.pool.name} has ${availableBytes} bytes available and ${needed} are needed ` +
      `(${parts.join(', ')}); free space in the pool or lower diskSizeGb`,
    { code: 'PoolSpace', target: scope.host },
  )
}

/** For an image whose size only its bytes tell: they are more than what there was room for. */
export function notEnoughSpace(host: string, pool: string, received: number, roomBytes: bigint): ProviderError {
  return ProviderError.quotaExceeded(
    `host ${host}: storage pool ${pool} has room for ${roomBytes} bytes of an image whose server did not announce its size, ` +
      `and ${received} have come; free space in the pool`,
    { code: 'PoolSpace', target: host },
  )
}

/** `435.1 MiB` */
export function formatBytes(bytes: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB']
  let value = bytes
  let unit = 0
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024
    unit++
  }
  return `${unit === 0 ? value : value.toFixed(1)} ${units[unit] ?? ''}`
}

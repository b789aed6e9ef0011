// Proxies as the rows that `kubectl get px -w` prints; strings only.
import { conditionStatus } from '../../src/api/conditions.ts'
import { proxyConditions, type Proxy } from '../../src/api/proxy.ts'

const widths = [21, 9, 11, 14, 16, 9]
const indent = '  '

export const header = line(['NAME', 'MODE', 'PROVIDER', 'PHASE', 'IP', 'HEALTHY', 'AGE'])

/** Everything but the age: two equal ones are one row. */
export function facts({ metadata, spec, status }: Proxy): string[] {
  const healthy = status?.conditions === undefined ? '' : conditionStatus(status.conditions, proxyConditions.healthy)
  return [metadata.name, spec.mode, spec.provider ?? '', status?.phase ?? '', status?.ip ?? '', healthy]
}

export function row(proxy: Proxy, nowMs: number): string {
  const created = Date.parse(proxy.metadata.creationTimestamp ?? '')
  const seconds = Number.isNaN(created) ? 0 : Math.max(0, Math.round((nowMs - created) / 1000))
  return line([...facts(proxy), `${seconds}s`])
}

function line(cells: readonly string[]): string {
  return `${indent}${cells.map((cell, index) => cell.padEnd(widths[index] ?? 0)).join(' ')}`.trimEnd()
}

// The command check: one round of the health check from where you stand, as a table. It needs no cluster.
import { parseArgs } from 'node:util'
import { loadProvidersConfig } from '../config/load.ts'
import { formatProblem, type Output } from '../config/validate-command.ts'
import { systemClock } from '../lib/clock.ts'
import { deadline } from '../lib/deadline.ts'
import { errorMessage } from '../lib/errors.ts'
import { silentLogger } from '../observe/logger.ts'
import { createMetrics } from '../observe/metrics.ts'
import type { Provider, TargetHealth } from '../provider/contract.ts'
import { buildProviders } from '../providers.ts'

const usage = 'usage: egress-proxies-operator check --providers-config FILE [--provider NAME]\n'
const timeoutMs = 15_000

interface Row {
  readonly provider: string
  readonly target: TargetHealth
}

/** Exit status: 0 when every target is ready, 1 when one is not or the config is invalid, 2 for wrong arguments. */
export async function checkCommand(args: readonly string[], out: Output, err: Output): Promise<number> {
  let file: string | undefined
  let only: string | undefined
  try {
    const { values } = parseArgs({
      args: [...args],
      options: { 'providers-config': { type: 'string' }, provider: { type: 'string' } },
    })
    file = values['providers-config']
    only = values.provider
  } catch (thrown) {
    err.write(`${errorMessage(thrown)}\n`)
  }
  if (file === undefined) {
    err.write(usage)
    return 2
  }
  const loaded = await loadProvidersConfig(file)
  if (loaded.kind === 'invalid') {
    for (const problem of loaded.problems) err.write(`${formatProblem(file, problem)}\n`)
    return 1
  }
  const parts = { clock: systemClock, random: Math.random, log: silentLogger, metrics: createMetrics() }
  // a check marks nothing, so it needs no installation of its own
  const all = buildProviders(loaded.config, { ...parts, installation: 'check' }).list()
  const chosen = all.filter(({ provider }) => only === undefined || provider.name === only)
  if (chosen.length === 0) {
    const names = all.map(({ provider }) => provider.name).join(', ')
    err.write(only === undefined ? `${file} has no provider\n` : `${file} has no provider ${only}; it has ${names}\n`)
    return 1
  }
  const rows = (await Promise.all(chosen.map(({ provider }) => checkOne(provider)))).flat()
  out.write(table(rows))
  return rows.every(({ target }) => target.ready) ? 0 : 1
}

async function checkOne(provider: Provider): Promise<Row[]> {
  using budget = deadline(systemClock, `check of ${provider.name}`, timeoutMs)
  try {
    const targets = await provider.check({ signal: budget.signal })
    return targets.map((target) => ({ provider: provider.name, target }))
  } finally {
    await provider.close()
  }
}

function table(rows: readonly Row[]): string {
  const cells = rows.map(({ provider, target }) => [
    provider,
    target.name,
    target.address,
    target.ready ? 'yes' : 'no',
    target.reason,
    `${Math.round(target.latencyMs)} ms`,
    target.ready ? describe(target.details) : target.message,
  ])
  const all = [['PROVIDER', 'TARGET', 'ADDRESS', 'READY', 'REASON', 'LATENCY', 'DETAILS'], ...cells]
  const widths = all.reduce<number[]>((found, row) => row.map((cell, i) => Math.max(found[i] ?? 0, cell.length)), [])
  return all
    .map(
      (row) =>
        `${row
          .map((cell, i) => cell.padEnd(widths[i] ?? 0))
          .join('  ')
          .trimEnd()}\n`,
    )
    .join('')
}

function describe(details: Readonly<Record<string, string>>): string {
  return Object.entries(details)
    .map(([name, value]) => `${name}=${value}`)
    .join(' ')
}

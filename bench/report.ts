// Figures of one bench run: their spread, the table for people and the file for programs. Measures nothing.
import { mkdir, writeFile } from 'node:fs/promises'
import { availableParallelism, cpus, totalmem } from 'node:os'
import { join } from 'node:path'

export type Unit = 's' | 'MiB'

/** Another way to the same end, measured in the same run. */
export interface Peer {
  readonly name: string
  readonly values: readonly number[]
}

export interface Measurement {
  readonly name: string
  readonly unit: Unit
  readonly values: readonly number[]
  /** What the design aims at, at most. */
  readonly target?: number
  readonly peer?: Peer
}

interface Spread {
  readonly median: number
  readonly min: number
  readonly max: number
}

interface Figure extends Spread {
  readonly name: string
  readonly unit: Unit
  readonly values: readonly number[]
  readonly target?: number
  readonly peer?: Spread & Peer & { readonly ratio: number }
}

/** @throws for no values: a figure that was not measured is none */
export function spread(values: readonly number[]): Spread {
  const sorted = [...values].sort((a, b) => a - b)
  const [min, max] = [sorted[0], sorted.at(-1)]
  const [low, high] = [sorted[Math.floor((sorted.length - 1) / 2)], sorted[Math.ceil((sorted.length - 1) / 2)]]
  if (min === undefined || max === undefined || low === undefined || high === undefined) throw new Error('no values')
  return { median: (low + high) / 2, min, max }
}

export function figureOf({ name, unit, values, target, peer }: Measurement): Figure {
  const own = spread(values)
  if (peer === undefined) return { name, unit, ...own, values, ...(target !== undefined && { target }) }
  const other = spread(peer.values)
  return {
    name,
    unit,
    ...own,
    values,
    ...(target !== undefined && { target }),
    peer: { ...peer, ...other, ratio: own.median / other.median },
  }
}

export function table(measurements: readonly Measurement[]): string {
  const rows = measurements
    .map(figureOf)
    .map(({ name, unit, median, min, max, values, target, peer }) => [
      name,
      `${show(median)} ${unit}`,
      `${show(min)} - ${show(max)}`,
      String(values.length),
      target === undefined ? '' : `at most ${target} ${unit}: ${median <= target ? 'met' : 'missed'}`,
      peer === undefined ? '' : `${show(peer.ratio)} x ${peer.name} (${show(peer.median)} ${unit})`,
    ])
  const all = [['', 'median', 'min - max', 'runs', 'target', 'against'], ...rows]
  const widths = [0, 1, 2, 3, 4, 5].map((column) => Math.max(...all.map((row) => row[column]?.length ?? 0)))
  return all
    .map((row) =>
      row
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join('  ')
        .trimEnd(),
    )
    .join('\n')
}

/** Writes `bench/results/<name>.json`, with what the figures depend on. @returns its path */
export async function writeResults(
  name: string,
  measurements: readonly Measurement[],
  conditions: Readonly<Record<string, string | number>>,
): Promise<string> {
  const folder = join(import.meta.dirname, 'results')
  await mkdir(folder, { recursive: true })
  const file = join(folder, `${name}.json`)
  const machine = {
    cpus: availableParallelism(),
    cpu: cpus()[0]?.model ?? 'unknown',
    memoryMiB: Math.round(totalmem() / 2 ** 20),
    node: process.version,
  }
  const results = { name, at: new Date().toISOString(), machine, conditions, figures: measurements.map(figureOf) }
  await writeFile(file, `${JSON.stringify(results, undefined, 2)}\n`)
  return file
}

function show(value: number): string {
  return value.toFixed(value < 10 ? 2 : 1)
}

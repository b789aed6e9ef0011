// The command validate-config: what it prints and its exit status. It needs no cluster and no hypervisor.
import type { ConfigProblem } from './problems.ts'
import { loadProvidersConfig } from './load.ts'

/** Where a command prints. */
export interface Output {
  write(text: string): unknown
}

/**
 * Prints a line per mistake to `err`, or one line about a valid file to `out`.
 * @returns exit status: 0 valid, 1 not
 */
export async function validateConfigCommand(file: string, out: Output, err: Output = out): Promise<0 | 1> {
  const result = await loadProvidersConfig(file)
  if (result.kind === 'invalid') {
    for (const problem of result.problems) err.write(`${formatProblem(file, problem)}\n`)
    const { length } = result.problems
    err.write(`${file}: ${length} ${length === 1 ? 'mistake' : 'mistakes'}\n`)
    return 1
  }
  const { providers } = result.config
  const names = providers.map(({ name, type }) => `${name} (${type})`).join(', ')
  out.write(
    `${file}: valid, ${providers.length} ${providers.length === 1 ? 'provider' : 'providers'}${names && `: ${names}`}\n`,
  )
  return 0
}

/** `FILE:LINE: PATH: MESSAGE`, the form that editors can jump to. */
export function formatProblem(file: string, { path, message, line, column }: ConfigProblem): string {
  const where = [file, line, column].filter((part) => part !== undefined).join(':')
  return [where, path, message].filter((part) => part !== '').join(': ')
}

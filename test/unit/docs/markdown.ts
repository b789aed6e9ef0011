// Reads the project's Markdown for the tests beside it: tables, sources, and which files there are.
import { readFileSync, globSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

export const root = fileURLToPath(new URL('../../../', import.meta.url))

export function readText(path: string): string {
  return readFileSync(`${root}${path}`, 'utf8')
}

/** All TypeScript of a folder in one text. */
export function sourcesOf(folder: string): string {
  return globSync(`${folder}/*.ts`, { cwd: root }).toSorted().map(readText).join('\n')
}

/** Paths from the root. */
export function documents(): string[] {
  return ['README.md', ...globSync('docs/**/*.md', { cwd: root })]
}

/** Rows of the table whose header begins with that cell. @throws when there is none */
export function table(text: string, firstHeader: string): string[][] {
  const rows = text.split('\n').map((line) => (line.startsWith('|') ? cells(line) : undefined))
  const start = rows.findIndex((row) => row?.[0] === firstHeader)
  if (start < 0) throw new Error(`no table begins with ${firstHeader}`)
  const rest = rows.slice(start + 2)
  const end = rest.indexOf(undefined)
  return (end < 0 ? rest : rest.slice(0, end)).flatMap((row) => (row === undefined ? [] : [row]))
}

/** What stands in backquotes. */
export function codes(cell: string | undefined): string[] {
  return [...(cell ?? '').matchAll(/`([^`]+)`/g)].map(([, code]) => code ?? '')
}

function cells(line: string): string[] {
  return line
    .split('|')
    .slice(1, -1)
    .map((cell) => cell.trim())
}

// Reads a YAML text into plain values and remembers where each stood; knows nothing of what the values mean.
import { LineCounter, isMap, isScalar, isSeq, parseDocument, type Document, type Pair, type ParsedNode } from 'yaml'
import { errorMessage } from '../lib/errors.ts'
import type { ConfigProblem } from './problems.ts'

export type YamlSource =
  | {
      readonly kind: 'value'
      /** Maps without their null entries: in YAML an empty value is an absent one. */
      readonly value: unknown
      /** Line, from 1, of the key or item at `keys`, or of the nearest one above it that is there. */
      readonly lineOf: (keys: readonly PropertyKey[]) => number | undefined
    }
  | { readonly kind: 'invalid'; readonly problems: readonly ConfigProblem[] }

/** Syntax errors and repeated keys come back all at once, each with line and column. */
export function readYaml(source: string): YamlSource {
  const lines = new LineCounter()
  const document = parseDocument(source, { lineCounter: lines, prettyErrors: false, merge: true })
  const faults = [...document.errors, ...document.warnings]
  if (faults.length > 0) {
    return {
      kind: 'invalid',
      problems: faults.map(({ code, message: text, pos }) => {
        const message = code === 'MULTIPLE_DOCS' ? 'the file holds more than one document' : text
        const { line, col } = lines.linePos(pos[0])
        return { path: '', message: `not valid YAML: ${message}`, line, column: col }
      }),
    }
  }
  try {
    const value = withoutNulls(document.toJS()) ?? {}
    return { kind: 'value', value, lineOf: (keys) => lineOf(document, lines, keys) }
  } catch (error) {
    // An alias that resolves to too much is found only here.
    return { kind: 'invalid', problems: [{ path: '', message: `not valid YAML: ${errorMessage(error)}` }] }
  }
}

function withoutNulls(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutNulls)
  if (typeof value !== 'object' || value === null) return value
  const entries = Object.entries(value).filter(([, entry]) => entry !== null)
  return Object.fromEntries(entries.map(([key, entry]) => [key, withoutNulls(entry)]))
}

function lineOf(document: Document.Parsed, lines: LineCounter, keys: readonly PropertyKey[]): number | undefined {
  let node: ParsedNode | null | undefined = document.contents
  let offset = node?.range[0]
  for (const key of keys) {
    if (isMap(node)) {
      const pair: Pair<ParsedNode, ParsedNode | null> | undefined = node.items.find(
        (item) => isScalar(item.key) && String(item.key.value) === String(key),
      )
      if (pair === undefined) break
      offset = pair.key.range[0]
      node = pair.value
    } else if (isSeq(node) && typeof key === 'number') {
      const item: ParsedNode | undefined = node.items[key]
      if (item === undefined) break
      offset = item.range[0]
      node = item
    } else break
  }
  return offset === undefined ? undefined : lines.linePos(offset).line
}

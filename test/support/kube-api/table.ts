// Objects as the tables that kubectl prints; a table of the columns a kind declares, nothing else.
import { isJson, without, type Json, type Stored } from './json.ts'
import type { Column, ServedKind } from './kinds.ts'

const age: Column = { name: 'Age', type: 'date', jsonPath: '.metadata.creationTimestamp' }

/** A meta.k8s.io/v1 Table. Rows carry the metadata of their object alone. */
export function tableOf(kind: ServedKind, objects: readonly Stored[], listMeta: Json): Json {
  const columns = kind.columns ?? [age]
  return {
    kind: 'Table',
    apiVersion: 'meta.k8s.io/v1',
    metadata: listMeta,
    columnDefinitions: [
      { name: 'Name', type: 'string', format: 'name', description: '', priority: 0 },
      ...columns.map(({ name, type, priority }) => ({
        name,
        type: type === 'date' ? 'string' : type,
        format: '',
        description: '',
        priority: priority ?? 0,
      })),
    ],
    rows: objects.map((object) => ({
      cells: [object.metadata.name, ...columns.map((column) => cell(object, column))],
      object: {
        kind: 'PartialObjectMetadata',
        apiVersion: 'meta.k8s.io/v1',
        metadata: without(object.metadata, 'managedFields'),
      },
    })),
  }
}

function cell(object: Stored, column: Column): unknown {
  const value = evaluate(object, column.jsonPath)
  if (column.type !== 'date') return isJson(value) || Array.isArray(value) ? JSON.stringify(value) : (value ?? null)
  return typeof value === 'string' ? sinceText(Date.parse(value)) : '<unknown>'
}

/** The JSONPath that printer columns use: members, and one condition on the elements of an array. */
function evaluate(object: Stored, path: string): unknown {
  let value: unknown = object
  for (const step of path.matchAll(/\.(?<name>[\w-]+)|\[\?\(@\.(?<key>\w+)==["'](?<wanted>[^"']*)["']\)\]/g)) {
    const { name, key, wanted } = step.groups ?? {}
    if (name !== undefined) value = isJson(value) ? value[name] : undefined
    else if (key !== undefined)
      value = Array.isArray(value) ? value.find((e) => isJson(e) && e[key] === wanted) : undefined
  }
  return value
}

function sinceText(ms: number): string {
  const seconds = Math.max(0, Math.round((Date.now() - ms) / 1000))
  if (seconds < 120) return `${seconds}s`
  if (seconds < 7200) return `${Math.floor(seconds / 60)}m`
  return seconds < 172_800 ? `${Math.floor(seconds / 3600)}h` : `${Math.floor(seconds / 86_400)}d`
}

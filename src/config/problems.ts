// Turns what zod says about a config into problems in the config's own words; judges nothing itself.
import { z } from 'zod'
import { suggest } from './suggest.ts'

/** One mistake in a config. */
export interface ConfigProblem {
  /** Where, for example `providers[0] (kvm2-home): kvm2.hosts[0]`. Empty for the file as a whole. */
  readonly path: string
  /** What, for example `bridge is required`. */
  readonly message: string
  /** Line in the file, from 1. */
  readonly line?: number
  /** Column in that line, from 1; for faults of syntax. */
  readonly column?: number
}

/** A mistake before it has its final words. */
export interface RawProblem {
  /** From the root of the file to the value or key that is wrong. */
  readonly keys: readonly PropertyKey[]
  /** The end of a sentence that begins with the last key, or a whole one if it `standsAlone`. */
  readonly message: string
  readonly standsAlone?: true
}

/** All that is wrong with `value`, which stands at `base` in the file. */
export function schemaProblems(schema: z.ZodType, value: unknown, base: readonly PropertyKey[]): RawProblem[] {
  const { error } = schema.safeParse(value)
  return error === undefined ? [] : error.issues.flatMap((issue) => issueProblems(schema, value, base, issue))
}

function issueProblems(
  schema: z.ZodType,
  root: unknown,
  base: readonly PropertyKey[],
  issue: z.core.$ZodIssue,
): RawProblem[] {
  const keys = [...base, ...issue.path]
  if (issue.code === 'unrecognized_keys') {
    const known = knownKeys(schema, issue.path)
    return issue.keys.map((key) => ({ keys: [...keys, key], message: unknownKey(key, known), standsAlone: true }))
  }
  return [{ keys, message: describe(issue, valueAt(root, issue.path)) }]
}

/** @param known the keys that may stand there */
export function unknownKey(key: string, known: readonly string[]): string {
  const meant = suggest(key, known)
  return `unknown key "${key}"${meant === undefined ? `; known: ${known.join(', ')}` : `, did you mean "${meant}"?`}`
}

function describe(issue: z.core.$ZodIssue, value: unknown): string {
  switch (issue.code) {
    case 'invalid_type':
      return value === undefined
        ? 'is required'
        : `must be ${typeNames[issue.expected] ?? issue.expected}, not ${show(value)}`
    case 'invalid_value':
      return `must be ${issue.values.map(String).join(' or ')}, not ${show(value)}`
    case 'too_small':
      return issue.origin === 'number' || issue.origin === 'int'
        ? `must be at least ${issue.minimum}, not ${show(value)}`
        : issue.message
    case 'too_big':
      return issue.origin === 'number' || issue.origin === 'int'
        ? `must be at most ${issue.maximum}, not ${show(value)}`
        : issue.message
    default:
      return typeof value === 'string' && value !== '' && isQuotable(value)
        ? `${show(value)} ${issue.message}`
        : issue.message
  }
}

const typeNames: Readonly<Record<string, string>> = {
  string: 'a text',
  number: 'a number',
  int: 'a whole number',
  boolean: 'true or false',
  array: 'a list',
  object: 'a map of keys',
  record: 'a map of names',
}

/** A value for people, short: what may be secret or long is named by its type only. */
function show(value: unknown): string {
  if (typeof value === 'number' || typeof value === 'boolean') return String(value)
  if (typeof value === 'string') return isQuotable(value) ? `"${value}"` : 'that text'
  if (Array.isArray(value)) return 'a list'
  return value === null ? 'null' : 'a map'
}

/** What holds an `@` may hold a password before it. */
function isQuotable(text: string): boolean {
  return /^[\x20-\x7e]{0,80}$/.test(text) && !text.includes('@')
}

function valueAt(root: unknown, path: readonly PropertyKey[]): unknown {
  return path.reduce<unknown>(
    (value, key) =>
      typeof value === 'object' && value !== null ? (value as Record<PropertyKey, unknown>)[key] : undefined,
    root,
  )
}

interface JsonSchema {
  readonly properties?: Readonly<Record<string, JsonSchema>>
  readonly items?: JsonSchema
  readonly additionalProperties?: JsonSchema | boolean
}

function knownKeys(schema: z.ZodType, path: readonly PropertyKey[]): string[] {
  const root = z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any' }) as JsonSchema
  const node = path.reduce<JsonSchema | undefined>((parent, key) => childSchema(parent, key), root)
  return Object.keys(node?.properties ?? {})
}

function childSchema(parent: JsonSchema | undefined, key: PropertyKey): JsonSchema | undefined {
  const { properties, items, additionalProperties } = parent ?? {}
  const rest = typeof additionalProperties === 'object' ? additionalProperties : undefined
  return typeof key === 'number' ? items : (properties?.[String(key)] ?? rest)
}

/**
 * The problem in words: the last key begins the message, the keys before it are the path.
 * @param entryName name of the entry under `providers`, when it has one
 * @param line in the file, from 1
 */
export function toProblem(problem: RawProblem, entryName: string | undefined, line: number | undefined): ConfigProblem {
  const { keys, standsAlone } = problem
  const leaf = keys.at(-1)
  const [index, inside] = splitEntry(typeof leaf === 'number' ? keys : keys.slice(0, -1))
  const entry = index === undefined ? [] : [`providers[${index}]${entryName === undefined ? '' : ` (${entryName})`}`]
  const path = [...entry, ...(inside.length === 0 ? [] : [formatKeys(inside)])].join(': ')
  const subject = leaf === undefined || typeof leaf === 'number' || standsAlone === true ? '' : `${formatLeaf(leaf)} `
  return { path, message: `${subject}${problem.message}`, ...(line !== undefined && { line }) }
}

/** `providers`, index and what follows, when the keys begin like that. */
function splitEntry(keys: readonly PropertyKey[]): [number | undefined, readonly PropertyKey[]] {
  const [first, index, ...rest] = keys
  return first === 'providers' && typeof index === 'number' ? [index, rest] : [undefined, keys]
}

function formatLeaf(leaf: PropertyKey): string {
  const text = String(leaf)
  return /^[A-Za-z0-9._-]+$/.test(text) ? text : JSON.stringify(text)
}

function formatKeys(keys: readonly PropertyKey[]): string {
  return keys.reduce<string>((path, key) => {
    if (typeof key === 'number') return `${path}[${key}]`
    return path === '' ? formatLeaf(key) : `${path}.${formatLeaf(key)}`
  }, '')
}

// The providers config: its types, and the pure parse from text. Reading and watching the file are elsewhere.
import { createHash } from 'node:crypto'
import { z } from 'zod'
import { dnsLabel } from '../api/fields.ts'
import {
  kvm2BlockSchema,
  kvmBlockSchema,
  normaliseLibvirtBlock,
  type LibvirtConfig,
} from '../provider/libvirt/config.ts'
import { repeatedNames } from '../provider/config-fields.ts'
import { schemaProblems, toProblem, unknownKey, type ConfigProblem, type RawProblem } from './problems.ts'
import { suggest } from './suggest.ts'
import { readYaml } from './yaml-source.ts'

interface EntryCommon {
  /** DNS label; what `spec.provider` of a Proxy names. */
  readonly name: string
  /** Most creates at a time on one target. */
  readonly maxConcurrentCreates: number
  /** SHA-256 over the entry with its defaults, hex; the same for the same meaning, whatever the order of keys. */
  readonly configHash: string
}

/** One entry of `providers`, told apart by `type`; the key of its block is its type. */
export interface Kvm2Entry extends EntryCommon {
  readonly type: 'kvm2'
  readonly kvm2: LibvirtConfig
}

/** The first generation of kvm2, with marks of its own: both may stand side by side, on one host too. */
export interface KvmEntry extends EntryCommon {
  readonly type: 'kvm'
  readonly kvm: LibvirtConfig
}

export type ProviderEntry = Kvm2Entry | KvmEntry
type EntryType = ProviderEntry['type']

/** Types that this version can run. */
export const supportedTypes = ['kvm2', 'kvm'] as const satisfies readonly EntryType[]
/** Types that are known, but not to this version. */
const laterTypes: readonly string[] = ['proxmox']

export interface ProvidersConfig {
  /** In file order; names are unique. */
  readonly providers: readonly ProviderEntry[]
}

export type ParsedProvidersConfig =
  | { readonly kind: 'valid'; readonly config: ProvidersConfig }
  | { readonly kind: 'invalid'; readonly problems: readonly ConfigProblem[] }

export const defaultMaxConcurrentCreates = 4

const entrySchema = z.looseObject({
  name: dnsLabel(),
  type: z.string(),
  maxConcurrentCreates: z.int().min(1).max(1000).default(defaultMaxConcurrentCreates),
})

type EntryResult =
  | { readonly kind: 'entry'; readonly entry: ProviderEntry }
  | { readonly kind: 'problems'; readonly problems: readonly RawProblem[] }

/**
 * Every mistake at once, each with its path and line.
 * @param text YAML, or JSON
 */
export function parseProvidersConfig(text: string): ParsedProvidersConfig {
  const source = readYaml(text)
  if (source.kind === 'invalid') return source
  const { entries, problems: fileProblems } = readEntries(source.value)
  const results = entries.map((entry, index) => parseEntry(entry, index))
  const problems = [
    ...fileProblems,
    ...results.flatMap((result) => (result.kind === 'problems' ? result.problems : [])),
    ...repeatedNames(entries).map(({ index, first }): RawProblem => {
      return { keys: ['providers', index, 'name'], message: `is taken already by providers[${first}]` }
    }),
  ]
  if (problems.length > 0) {
    return {
      kind: 'invalid',
      problems: problems
        .map((problem) => toProblem(problem, entryName(entries, problem.keys), source.lineOf(problem.keys)))
        .sort((a, b) => (a.line ?? 0) - (b.line ?? 0)),
    }
  }
  return {
    kind: 'valid',
    config: { providers: results.flatMap((result) => (result.kind === 'entry' ? [result.entry] : [])) },
  }
}

function readEntries(root: unknown): { entries: readonly unknown[]; problems: readonly RawProblem[] } {
  if (!isMap(root))
    return { entries: [], problems: [{ keys: [], message: `the file must be a map with the key providers` }] }
  const { providers, ...rest } = root
  const unknown = Object.keys(rest).map((key): RawProblem => {
    return { keys: [key], message: unknownKey(key, ['providers']), standsAlone: true }
  })
  if (Array.isArray(providers)) return { entries: providers as readonly unknown[], problems: unknown }
  const what = providers === undefined ? 'is required' : 'must be a list'
  const problem = { keys: ['providers'], message: `${what}: entries of the form {name, type, <type>: {...}}` }
  return { entries: [], problems: [...unknown, problem] }
}

function parseEntry(raw: unknown, index: number): EntryResult {
  const base = ['providers', index]
  const common = entrySchema.safeParse(raw)
  const problems = schemaProblems(entrySchema, raw, base)
  if (!isMap(raw)) return { kind: 'problems', problems }
  const type = supportedTypes.find((supported) => supported === raw['type'])
  if (type === undefined) return { kind: 'problems', problems: [...problems, ...wrongType(raw['type'], base)] }
  const schema = type === 'kvm2' ? kvm2BlockSchema : kvmBlockSchema
  const all = [...problems, ...strayKeys(raw, type, base), ...schemaProblems(schema, raw[type], [...base, type])]
  const block = schema.safeParse(raw[type])
  if (all.length > 0 || !common.success || !block.success) return { kind: 'problems', problems: all }
  const { name, maxConcurrentCreates } = common.data
  const config = normaliseLibvirtBlock(block.data)
  const configHash = hashOf({ type, maxConcurrentCreates, [type]: config })
  return { kind: 'entry', entry: entryOf(type, { name, maxConcurrentCreates, configHash }, config) }
}

function entryOf(type: EntryType, common: EntryCommon, config: LibvirtConfig): ProviderEntry {
  switch (type) {
    case 'kvm2':
      return { ...common, type, kvm2: config }
    case 'kvm':
      return { ...common, type, kvm: config }
  }
}

function wrongType(type: unknown, base: readonly PropertyKey[]): RawProblem[] {
  if (typeof type !== 'string') return []
  const allowed = supportedTypes.join(', ')
  const meant = suggest(type, supportedTypes)
  const message = laterTypes.includes(type)
    ? `"${type}" is not supported by this version; supported: ${allowed}`
    : `"${type}" is unknown${meant === undefined ? '' : `, did you mean "${meant}"?`}; supported: ${allowed}`
  return [{ keys: [...base, 'type'], message }]
}

function strayKeys(raw: Readonly<Record<string, unknown>>, type: string, base: readonly PropertyKey[]): RawProblem[] {
  const known = [...Object.keys(entrySchema.shape), type]
  return Object.keys(raw)
    .filter((key) => !known.includes(key))
    .map((key) => {
      const isBlock = laterTypes.includes(key) || supportedTypes.some((other) => other === key)
      const message = isBlock ? `the block of type ${type} is ${type}:, not ${key}:` : unknownKey(key, known)
      return { keys: [...base, key], message, standsAlone: true }
    })
}

function entryName(entries: readonly unknown[], [first, index]: readonly PropertyKey[]): string | undefined {
  const entry = first === 'providers' && typeof index === 'number' ? entries[index] : undefined
  return isMap(entry) && typeof entry['name'] === 'string' && entry['name'] !== '' ? entry['name'] : undefined
}

function isMap(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function hashOf(value: unknown): string {
  return createHash('sha256').update(canonicalJson(value)).digest('hex')
}

/** JSON with sorted keys; a Map counts as an object. */
function canonicalJson(value: unknown): string {
  return JSON.stringify(value, (_key, entry: unknown) => {
    if (entry instanceof Map) return sortedEntries([...entry.entries()] as [string, unknown][])
    return isMap(entry) ? sortedEntries(Object.entries(entry)) : entry
  })
}

function sortedEntries(entries: readonly [string, unknown][]): Record<string, unknown> {
  return Object.fromEntries([...entries].sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)))
}

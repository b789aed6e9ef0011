// Judges and defaults objects of our kinds as the API server does from the CRDs; used where no API server stands.
import { z } from 'zod'
import { exhaustive } from '../lib/exhaustive.ts'
import { apiVersion, providerHealthKind, proxyKind, type KindNames } from './group.ts'
import { providerHealthStatusSchema } from './provider-health.ts'
import { proxyRules, type ProxyRule } from './proxy-rules.ts'
import { toStructuralSchema, unknownFields } from './structural-schema.ts'
import { proxySpecSchema, proxyStatusSchema, type ProxySpec } from './proxy.ts'

/** What is wrong with one field. `field` is a path such as `spec.healthCheck.interval`. */
export interface FieldProblem {
  readonly field: string
  readonly message: string
}

/** A Kubernetes object before anybody judged it. */
export type RawObject = Readonly<Record<string, unknown>>

const proxyParts = { spec: proxySpecSchema, status: proxyStatusSchema.exactOptional() }
const providerHealthParts = { status: providerHealthStatusSchema.exactOptional() }

/**
 * All that is wrong with a Proxy; nothing when the API server would take it.
 * @param old the stored object, on an update
 */
export function validateProxy(object: RawObject, old?: RawObject): FieldProblem[] {
  const problems = judge(proxyKind, proxyParts, object)
  const spec = proxySpecSchema.safeParse(withoutNulls(object['spec']))
  if (!spec.success) return problems
  const oldSpec = old === undefined ? undefined : proxySpecSchema.safeParse(withoutNulls(old['spec']))
  const broken = proxyRules.filter((rule) => !ruleHolds(rule, spec.data, oldSpec?.data))
  return [...problems, ...broken.map((rule) => ({ field: `spec.${rule.field}`, message: rule.message }))]
}

/** All that is wrong with a ProviderHealth. */
export function validateProviderHealth(object: RawObject): FieldProblem[] {
  return judge(providerHealthKind, providerHealthParts, object)
}

/** The Proxy with defaults in, and without nulls and unknown fields; one that is not valid keeps all but its nulls. */
export function defaultProxy(object: RawObject): RawObject {
  return parseParts(proxyParts, object)
}

/** The same for a ProviderHealth. */
export function defaultProviderHealth(object: RawObject): RawObject {
  return parseParts(providerHealthParts, object)
}

/** Paths of the fields that the schema does not know, which strict field validation refuses. */
export function unknownProxyFields(object: RawObject): string[] {
  return unknownIn(proxyParts, object)
}

/** The same for a ProviderHealth. */
export function unknownProviderHealthFields(object: RawObject): string[] {
  return unknownIn(providerHealthParts, object)
}

function judge(names: KindNames, parts: z.ZodRawShape, object: RawObject): FieldProblem[] {
  const envelope = [
    ...expectLiteral('apiVersion', object['apiVersion'], apiVersion),
    ...expectLiteral('kind', object['kind'], names.kind),
  ]
  const parsed = z.object(parts).safeParse(fieldsWithoutNulls(pick(parts, object)))
  return [...envelope, ...(parsed.error?.issues ?? []).map(toProblem)]
}

function expectLiteral(field: string, value: unknown, wanted: string): FieldProblem[] {
  return value === wanted ? [] : [{ field, message: `must be ${wanted}` }]
}

function toProblem(issue: z.core.$ZodIssue): FieldProblem {
  const missing = issue.code === 'invalid_type' && issue.message.endsWith('received undefined')
  return { field: z.core.toDotPath(issue.path), message: missing ? 'Required value' : issue.message }
}

function ruleHolds(rule: ProxyRule, spec: ProxySpec, old: ProxySpec | undefined): boolean {
  switch (rule.kind) {
    case 'state':
      return rule.holds(spec)
    case 'transition':
      return old === undefined || rule.holds(spec, old)
    default:
      return exhaustive(rule)
  }
}

function parseParts(parts: z.ZodRawShape, object: RawObject): RawObject {
  const given = fieldsWithoutNulls(pick(parts, object))
  const parsed = z.object(parts).safeParse(given)
  return { ...object, ...(parsed.success ? parsed.data : given) }
}

function unknownIn(parts: z.ZodRawShape, object: RawObject): string[] {
  const known = new Set([...Object.keys(parts), 'apiVersion', 'kind', 'metadata'])
  const atRoot = Object.keys(object).filter((key) => !known.has(key))
  return [...atRoot, ...unknownFields(toStructuralSchema(z.object(parts)), pick(parts, object), '')]
}

function pick(parts: z.ZodRawShape, object: RawObject): Record<string, unknown> {
  return Object.fromEntries(Object.keys(parts).flatMap((key) => (key in object ? [[key, object[key]]] : [])))
}

/** The API server drops a null where the schema does not say nullable; ours never does. */
function withoutNulls(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutNulls)
  return typeof value === 'object' && value !== null ? fieldsWithoutNulls(value) : value
}

function fieldsWithoutNulls(value: object): Record<string, unknown> {
  const kept = Object.entries(value).filter(([, entry]) => entry !== null && entry !== undefined)
  return Object.fromEntries(kept.map(([key, entry]) => [key, withoutNulls(entry)]))
}

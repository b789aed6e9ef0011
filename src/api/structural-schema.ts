// Turns our zod schemas into Kubernetes structural schemas (OpenAPI 3.0 subset of a CRD); writes no files.
import { z } from 'zod'
import { rulesKey } from './fields.ts'

/** A node of a structural schema, as far as ours use it. */
export interface StructuralSchema {
  type: 'object' | 'array' | 'string' | 'integer' | 'boolean'
  description?: string
  format?: string
  properties?: Record<string, StructuralSchema>
  required?: string[]
  items?: StructuralSchema
  additionalProperties?: StructuralSchema
  'x-kubernetes-validations'?: readonly ValidationRule[]
  /** Limits, defaults, enums and list types are passed through as they are. */
  [keyword: string]: unknown
}

/** One entry of `x-kubernetes-validations`. */
export interface ValidationRule {
  readonly rule: string
  readonly message: string
  readonly fieldPath?: string
  readonly reason?: string
}

/** zod's bounds of integers without bounds: true of every JSON number, so not worth saying. */
const unbounded = new Set<unknown>([Number.MAX_SAFE_INTEGER, Number.MIN_SAFE_INTEGER])

/**
 * The structural schema of what people may write, so without the fields that have defaults among the required ones.
 * @throws Error for anything that is not structural, such as a union
 */
export function toStructuralSchema(schema: z.ZodType): StructuralSchema {
  return convert(z.toJSONSchema(schema, { target: 'openapi-3.0', io: 'input' }), '')
}

function convert(node: Readonly<Record<string, unknown>>, path: string): StructuralSchema {
  const { $schema: _schema, [rulesKey]: rules, type, properties, items, additionalProperties, ...rest } = node
  if (!isStructuralType(type)) {
    throw new Error(`schema${path} is not structural: ${JSON.stringify(node)}`)
  }
  const kept = Object.entries(rest).filter(([, value]) => !unbounded.has(value))
  const result: StructuralSchema = { type, ...Object.fromEntries(kept) }
  if (result.format === 'date-time') delete result['pattern']
  if (type === 'integer') result.format = result['maximum'] === undefined ? 'int64' : 'int32'
  if (isNode(properties)) {
    result.properties = Object.fromEntries(
      Object.entries(properties).map(([name, child]) => [name, convertChild(child, `${path}.${name}`)]),
    )
  }
  if (items !== undefined) result.items = convertChild(items, `${path}[]`)
  if (isNode(additionalProperties)) result.additionalProperties = convertChild(additionalProperties, `${path}{}`)
  if (rules !== undefined) result['x-kubernetes-validations'] = rules as readonly ValidationRule[]
  return result
}

function convertChild(child: unknown, path: string): StructuralSchema {
  if (!isNode(child)) throw new Error(`schema${path} is not structural: ${JSON.stringify(child)}`)
  return convert(child, path)
}

const structuralTypes = ['object', 'array', 'string', 'integer', 'boolean'] as const

function isStructuralType(type: unknown): type is StructuralSchema['type'] {
  return structuralTypes.some((known) => known === type)
}

function isNode(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Paths of the fields in `value` that the schema does not know: what the API server prunes, or refuses when strict. */
export function unknownFields(schema: StructuralSchema, value: unknown, path: string): string[] {
  if (Array.isArray(value)) {
    const { items } = schema
    return items === undefined ? [] : value.flatMap((entry, index) => unknownFields(items, entry, `${path}[${index}]`))
  }
  if (!isNode(value) || schema.type !== 'object' || schema.additionalProperties !== undefined) return []
  return Object.entries(value).flatMap(([key, entry]) => {
    const child = schema.properties?.[key]
    const childPath = path === '' ? key : `${path}.${key}`
    return child === undefined ? [childPath] : unknownFields(child, entry, childPath)
  })
}

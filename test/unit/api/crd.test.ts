// What the generated CRDs promise, read from the generator; the real API server judges them in test/e2e/crd.test.ts.
import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { customResourceDefinitions } from '../../../src/api/crd.ts'
import { proxyRules } from '../../../src/api/proxy-rules.ts'
import { proxySpecSchema } from '../../../src/api/proxy.ts'
import { toStructuralSchema, unknownFields, type StructuralSchema } from '../../../src/api/structural-schema.ts'

const spec = toStructuralSchema(proxySpecSchema)

function fieldAt(path: string): StructuralSchema | undefined {
  return path.split('.').reduce<StructuralSchema | undefined>((node, key) => node?.properties?.[key], spec)
}

function everyNode(node: StructuralSchema): StructuralSchema[] {
  const children = [...Object.values(node.properties ?? {}), node.items, node.additionalProperties]
  return [node, ...children.flatMap((child) => (child === undefined ? [] : everyNode(child)))]
}

describe('CRDs', () => {
  it('are named after their plurals', () => {
    expect(customResourceDefinitions().map(({ metadata }) => metadata.name)).toEqual([
      'proxies.egressproxies.dev',
      'providerhealths.egressproxies.dev',
    ])
  })

  it('have rules about fields that exist', () => {
    expect(proxyRules.length).toBeGreaterThan(10)
    for (const { field } of proxyRules) expect(fieldAt(field), field).toBeDefined()
  })

  it('never quote cloud-init or a URL in a refusal', () => {
    for (const path of ['cloudInit', 'placement.image', 'healthCheck.url']) {
      const rules = fieldAt(path)?.['x-kubernetes-validations'] ?? []
      expect(rules.length, path).toBeGreaterThan(0)
      if (path !== 'healthCheck.url') expect(rules.map(({ reason }) => reason)).not.toContain(undefined)
      else expect(rules[0]?.reason).toBe('FieldValueForbidden')
    }
  })

  it('bound every string and list that a rule may read, and describe every field', () => {
    const nodes = everyNode(spec)
    expect(nodes.length).toBeGreaterThan(25)
    for (const node of nodes) {
      if (node.type === 'string' && node['enum'] === undefined) expect(node['maxLength']).toBeTypeOf('number')
      if (node !== spec) expect(node.description, JSON.stringify(node)).toBeTypeOf('string')
    }
  })
})

describe('toStructuralSchema', () => {
  it('refuses what a CRD cannot say', () => {
    expect(() => toStructuralSchema(z.object({ a: z.union([z.string(), z.int()]) }))).toThrow(
      /schema\.a is not structural/,
    )
  })

  it('says integers by size and leaves out bounds that bound nothing', () => {
    const { properties } = toStructuralSchema(z.object({ small: z.int32(), big: z.int() }))
    expect(properties?.['small']).toMatchObject({ type: 'integer', format: 'int32' })
    expect(properties?.['big']).toEqual({ type: 'integer', format: 'int64' })
  })
})

describe('unknownFields', () => {
  const schema = toStructuralSchema(
    z.object({
      a: z.object({ b: z.string() }),
      list: z.array(z.object({ c: z.string() })),
      map: z.record(z.string(), z.string()),
    }),
  )

  it('finds them at every depth, and takes any key of a map', () => {
    const value = { a: { b: '', x: 1 }, list: [{ c: '' }, { d: 1 }], map: { anything: '' }, y: 1 }
    expect(unknownFields(schema, value, '')).toEqual(['a.x', 'list[1].d', 'y'])
  })

  it('has nothing to say of values of the wrong type', () => {
    expect(unknownFields(schema, { a: 'text', list: { c: 1 }, map: [] }, '')).toEqual([])
  })
})

// The custom resource that the suite works on, in the two forms in which the two kinds of API server learn of it.
import type { NewObject, Resource, ResourceType } from '../../../src/kube/client.ts'
import type { FieldProblem } from './api-error.ts'
import { jsonAt, type Json } from './json.ts'
import type { CustomKind } from './kinds.ts'

export interface Widget extends Resource {
  readonly spec: { readonly size: number; readonly color?: string }
  readonly status?: { readonly phase?: string; readonly message?: string }
}

export const widgets: ResourceType = {
  group: 'suite.egressproxies.dev',
  version: 'v1',
  plural: 'widgets',
  kind: 'Widget',
  namespaced: true,
}

export const widgetKind: CustomKind = {
  ...widgets,
  shortNames: ['wd'],
  columns: [
    { name: 'Size', type: 'integer', jsonPath: '.spec.size' },
    { name: 'Phase', type: 'string', jsonPath: '.status.phase' },
    { name: 'Color', type: 'string', jsonPath: '.spec.color', priority: 1 },
    { name: 'Age', type: 'date', jsonPath: '.metadata.creationTimestamp' },
  ],
  prepare: (object) => {
    const { size = 1, color } = jsonAt(object, 'spec') ?? {}
    const { phase, message } = jsonAt(object, 'status') ?? {}
    const pruned: Json = { metadata: object['metadata'], spec: defined({ size, color }) }
    if (object['status'] !== undefined) pruned['status'] = defined({ phase, message })
    return pruned
  },
  validate: (object) => {
    const size = jsonAt(object, 'spec')?.['size']
    const problems: FieldProblem[] = []
    if (typeof size === 'number' && size < 1) {
      const message = `Invalid value: ${size}: spec.size in body should be greater than or equal to 1`
      problems.push({ field: 'spec.size', message })
    }
    return problems
  },
}

export const definitions: ResourceType = {
  group: 'apiextensions.k8s.io',
  version: 'v1',
  plural: 'customresourcedefinitions',
  kind: 'CustomResourceDefinition',
  namespaced: false,
}

export const widgetDefinition: NewObject = {
  metadata: { name: `${widgets.plural}.${widgets.group}` },
  spec: {
    group: widgets.group,
    scope: 'Namespaced',
    names: { plural: widgets.plural, singular: 'widget', kind: widgets.kind, shortNames: ['wd'] },
    versions: [
      {
        name: widgets.version,
        served: true,
        storage: true,
        subresources: { status: {} },
        additionalPrinterColumns: widgetKind.columns,
        schema: {
          openAPIV3Schema: {
            type: 'object',
            properties: {
              spec: {
                type: 'object',
                default: {},
                properties: { size: { type: 'integer', minimum: 1, default: 1 }, color: { type: 'string' } },
              },
              status: { type: 'object', properties: { phase: { type: 'string' }, message: { type: 'string' } } },
            },
          },
        },
      },
    ],
  },
}

function defined(object: Json): Json {
  return Object.fromEntries(Object.entries(object).filter(([, value]) => value !== undefined))
}

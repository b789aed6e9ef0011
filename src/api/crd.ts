// The CustomResourceDefinitions of our kinds as plain objects, made from the zod schemas; no YAML and no files here.
import { apiGroup, apiVersionName, providerHealthKind, proxyKind, type KindNames } from './group.ts'
import { providerHealthStatusSchema } from './provider-health.ts'
import { proxyRules } from './proxy-rules.ts'
import { proxySpecSchema, proxyStatusSchema } from './proxy.ts'
import { toStructuralSchema, type StructuralSchema, type ValidationRule } from './structural-schema.ts'

interface PrinterColumn {
  readonly name: string
  readonly type: 'string' | 'date' | 'boolean'
  readonly jsonPath: string
  readonly description?: string
  /** Above 0: only with `-o wide`. */
  readonly priority?: number
}

/** A CustomResourceDefinition, apiextensions.k8s.io/v1. */
export interface CustomResourceDefinition {
  readonly apiVersion: 'apiextensions.k8s.io/v1'
  readonly kind: 'CustomResourceDefinition'
  readonly metadata: { readonly name: string }
  readonly spec: Readonly<Record<string, unknown>>
}

const age: PrinterColumn = { name: 'Age', type: 'date', jsonPath: '.metadata.creationTimestamp' }

const proxyColumns: readonly PrinterColumn[] = [
  { name: 'Mode', type: 'string', jsonPath: '.spec.mode' },
  { name: 'Provider', type: 'string', jsonPath: '.spec.provider' },
  { name: 'Phase', type: 'string', jsonPath: '.status.phase' },
  { name: 'IP', type: 'string', jsonPath: '.status.ip' },
  { name: 'Healthy', type: 'string', jsonPath: '.status.conditions[?(@.type=="Healthy")].status' },
  age,
  { name: 'Zone', type: 'string', jsonPath: '.spec.placement.zone', priority: 1 },
  { name: 'ProviderID', type: 'string', jsonPath: '.status.providerID', priority: 1 },
  { name: 'EgressIP', type: 'string', jsonPath: '.status.egressIP', priority: 1 },
]

const providerHealthColumns: readonly PrinterColumn[] = [
  { name: 'Type', type: 'string', jsonPath: '.status.type' },
  { name: 'Ready', type: 'boolean', jsonPath: '.status.ready' },
  { name: 'Targets', type: 'string', jsonPath: '.status.readyTargets' },
  { name: 'Reason', type: 'string', jsonPath: '.status.conditions[?(@.type=="Ready")].reason' },
  { name: 'Checked', type: 'date', jsonPath: '.status.checkedAt' },
  age,
]

/** Every CRD of ours. */
export function customResourceDefinitions(): readonly CustomResourceDefinition[] {
  return [proxyCrd(), providerHealthCrd()]
}

function proxyCrd(): CustomResourceDefinition {
  const spec = toStructuralSchema(proxySpecSchema.describe('What the proxy should be.'))
  spec['x-kubernetes-validations'] = proxyRules.map(({ cel, message, field, reason }): ValidationRule => {
    return { rule: cel, message, fieldPath: `.${field}`, reason }
  })
  const status = toStructuralSchema(proxyStatusSchema.describe('What the operator found and did.'))
  return definition(proxyKind, proxyColumns, {
    type: 'object',
    description: 'A forward proxy for egress traffic: a VM that the operator owns, or an endpoint that already exists.',
    required: ['spec'],
    properties: { ...envelope(), spec, status },
  })
}

function providerHealthCrd(): CustomResourceDefinition {
  const status = toStructuralSchema(providerHealthStatusSchema.describe('What the last round of checks found.'))
  return definition(providerHealthKind, providerHealthColumns, {
    type: 'object',
    description: 'Health of one entry of the providers config. Written by the operator alone.',
    properties: { ...envelope(), status },
  })
}

function envelope(): Record<string, StructuralSchema> {
  return { apiVersion: { type: 'string' }, kind: { type: 'string' }, metadata: { type: 'object' } }
}

function definition(
  names: KindNames,
  additionalPrinterColumns: readonly PrinterColumn[],
  openAPIV3Schema: StructuralSchema,
): CustomResourceDefinition {
  const { kind, plural, singular, listKind, shortName, namespaced } = names
  return {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: { name: `${plural}.${apiGroup}` },
    spec: {
      group: apiGroup,
      scope: namespaced ? 'Namespaced' : 'Cluster',
      names: { kind, plural, singular, listKind, shortNames: [shortName] },
      versions: [
        {
          name: apiVersionName,
          served: true,
          storage: true,
          additionalPrinterColumns,
          subresources: { status: {} },
          schema: { openAPIV3Schema },
        },
      ],
    },
  }
}

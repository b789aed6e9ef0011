// The kind ProviderHealth: schema of its status and types. It has no spec; the operator writes all of it.
import { z } from 'zod'
import { conditionsSchema } from './conditions.ts'
import { listMap, timestamp } from './fields.ts'
import type { apiVersion, providerHealthKind } from './group.ts'
import type { ObjectMeta } from './meta.ts'

export const targetHealthSchema = z.object({
  name: z.string().min(1).max(253).describe('Host or node, as the providers config names it.'),
  address: z.string().max(2048).exactOptional().describe('Where it is dialled.'),
  ready: z.boolean().describe('Whether the last check passed.'),
  reason: z.string().max(1024).describe('Where the check broke, as one CamelCase word; Reachable when it passed.'),
  message: z.string().max(32_768).exactOptional().describe('The same for people.'),
  latencyMillis: z.int().min(0).exactOptional().describe('How long the check took, milliseconds.'),
  details: z
    .record(z.string(), z.string().max(4096))
    .exactOptional()
    .describe('Facts that the target told: versions, pool state, free space.'),
  lastTransitionTime: timestamp().describe('When ready last changed.'),
})

/** An instance whose mark must still be rewritten as retained. */
export const retainedSchema = z.object({
  uid: z.string().min(1).max(253).describe('UID of the Proxy that let go of it.'),
  instance: z.string().min(1).max(1024).describe('What the provider calls the instance.'),
  since: timestamp().describe('When the Proxy was deleted.'),
})

export const providerHealthStatusSchema = z.object({
  type: z.string().max(63).exactOptional().describe('Type of the provider entry.'),
  ready: z.boolean().exactOptional().describe('Whether all targets are ready.'),
  readyTargets: z.string().max(32).exactOptional().describe('Ready targets of all, for example 2/3.'),
  checkedAt: timestamp().exactOptional().describe('When the last round ended.'),
  targets: listMap(targetHealthSchema, 1024, 'name').exactOptional().describe('One per host or node.'),
  retained: listMap(retainedSchema, 4096, 'uid').exactOptional().describe('Instances still to be marked as retained.'),
  conditions: conditionsSchema.exactOptional().describe('Ready.'),
})

export type ProviderHealthStatus = z.output<typeof providerHealthStatusSchema>
export type TargetHealth = z.output<typeof targetHealthSchema>
export type RetainedInstance = z.output<typeof retainedSchema>

/** The object as the API server returns it. */
export interface ProviderHealth {
  apiVersion: typeof apiVersion
  kind: typeof providerHealthKind.kind
  metadata: ObjectMeta
  status?: ProviderHealthStatus
}

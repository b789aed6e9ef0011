// metav1.Condition: its schema and the pure helpers that read and change lists of them. Writing them is elsewhere.
import { z } from 'zod'
import { listMap, timestamp } from './fields.ts'

export const conditionStatuses = ['True', 'False', 'Unknown'] as const

export const conditionSchema = z.object({
  type: z.string().min(1).max(316).describe('What this condition is about, in CamelCase.'),
  status: z.enum(conditionStatuses).describe('True, False or Unknown.'),
  observedGeneration: z.int().min(0).exactOptional().describe('The metadata.generation this was decided for.'),
  lastTransitionTime: timestamp().describe('When status last changed.'),
  reason: z
    .string()
    .min(1)
    .max(1024)
    .regex(/^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$/, 'must be a CamelCase word')
    .describe('Why, as one CamelCase word for programs.'),
  message: z.string().max(32_768).describe('Why, for people.'),
})

/** A list of conditions, at most one of each type. */
export const conditionsSchema = listMap(conditionSchema, 32, 'type')

export type Condition = z.output<typeof conditionSchema>
export type ConditionStatus = Condition['status']

/** A condition as a caller states it: {@link setCondition} finds out when it last changed. */
export type ConditionUpdate = Omit<Condition, 'lastTransitionTime'>

/** The condition of that type, if there is one. */
export function findCondition(conditions: readonly Condition[] | undefined, type: string): Condition | undefined {
  return conditions?.find((condition) => condition.type === type)
}

/** The status of the condition of that type; `Unknown` when there is none. */
export function conditionStatus(conditions: readonly Condition[] | undefined, type: string): ConditionStatus {
  return findCondition(conditions, type)?.status ?? 'Unknown'
}

/**
 * The list with that condition set. `lastTransitionTime` moves only when the status changes (metav1's rule), and a list
 * in which nothing changes is returned as it came, so that callers can compare by identity.
 * @param nowIso RFC 3339
 */
export function setCondition(
  conditions: Condition[] | undefined,
  update: ConditionUpdate,
  nowIso: string,
): Condition[] {
  const before = conditions ?? []
  const old = findCondition(before, update.type)
  const lastTransitionTime = old?.status === update.status ? old.lastTransitionTime : nowIso
  const next: Condition = { ...update, lastTransitionTime }
  if (old === undefined) return [...before, next]
  if (sameCondition(old, next)) return before
  return before.map((condition) => (condition === old ? next : condition))
}

/** The list without the condition of that type; the same list when it had none. */
export function removeCondition(conditions: Condition[] | undefined, type: string): Condition[] {
  const before = conditions ?? []
  return findCondition(before, type) === undefined ? before : before.filter((condition) => condition.type !== type)
}

function sameCondition(a: Condition, b: Condition): boolean {
  return (
    a.status === b.status &&
    a.reason === b.reason &&
    a.message === b.message &&
    a.observedGeneration === b.observedGeneration &&
    a.lastTransitionTime === b.lastTransitionTime
  )
}

import { describe, expect, it } from 'vitest'
import {
  conditionStatus,
  findCondition,
  removeCondition,
  setCondition,
  type Condition,
} from '../../../src/api/conditions.ts'

const early = '2026-01-01T00:00:00Z'
const late = '2026-01-01T00:05:00Z'
const ready: Condition = { type: 'Ready', status: 'True', reason: 'Up', message: '', lastTransitionTime: early }
const healthy: Condition = { ...ready, type: 'Healthy' }

describe('setCondition', () => {
  it('adds a condition that is not there, at the end', () => {
    expect(setCondition(undefined, { type: 'Ready', status: 'True', reason: 'Up', message: '' }, early)).toEqual([
      ready,
    ])
    expect(setCondition([healthy], { ...ready }, early)).toEqual([healthy, ready])
  })

  it('moves lastTransitionTime when the status changes', () => {
    const down = { type: 'Ready', status: 'False', reason: 'Down', message: 'gone', observedGeneration: 2 } as const
    expect(setCondition([healthy, ready], down, late)).toEqual([healthy, { ...down, lastTransitionTime: late }])
  })

  it('keeps lastTransitionTime when only reason, message or generation change', () => {
    const update = { type: 'Ready', status: 'True', reason: 'StillUp', message: 'fine', observedGeneration: 7 } as const
    expect(setCondition([ready], update, late)).toEqual([{ ...update, lastTransitionTime: early }])
  })

  it('drops an observedGeneration that the update does not have', () => {
    const { lastTransitionTime: _, ...update } = ready
    expect(setCondition([{ ...ready, observedGeneration: 1 }], update, late)).toEqual([ready])
  })

  it('hands back the same list when nothing changes, and never changes its input', () => {
    const list = [healthy, ready]
    const before = structuredClone(list)
    const { lastTransitionTime: _, ...same } = ready
    expect(setCondition(list, same, late)).toBe(list)
    setCondition(list, { ...same, status: 'False' }, late)
    expect(list).toEqual(before)
  })
})

describe('reading and removing', () => {
  it('finds by type; what is not there is Unknown', () => {
    expect(findCondition([healthy, ready], 'Ready')).toBe(ready)
    expect(findCondition(undefined, 'Ready')).toBeUndefined()
    expect(conditionStatus([ready], 'Ready')).toBe('True')
    expect(conditionStatus([ready], 'Healthy')).toBe('Unknown')
  })

  it('removes by type, and hands back the same list when there is none', () => {
    const list = [healthy, ready]
    expect(removeCondition(list, 'Healthy')).toEqual([ready])
    expect(removeCondition(list, 'Outdated')).toBe(list)
    expect(removeCondition(undefined, 'Outdated')).toEqual([])
  })
})

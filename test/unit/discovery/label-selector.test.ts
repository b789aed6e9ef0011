// The selector syntax of Kubernetes, accepted and refused as the API server does.
import { describe, expect, it } from 'vitest'
import { matchesLabels, parseLabelSelector } from '../../../src/discovery/label-selector.ts'

const labels = { tier: 'gold', 'example.net/region': 'eu', empty: '' }

function selects(selector: string): boolean {
  const parsed = parseLabelSelector(selector)
  if (parsed.kind === 'invalid') throw new Error(parsed.message)
  return matchesLabels(parsed.requirements, labels)
}

describe('label selector', () => {
  it.each([
    ['', true],
    ['tier=gold', true],
    ['tier==gold', true],
    ['tier = gold', true],
    ['tier=silver', false],
    ['tier!=silver', true],
    ['absent!=x', true],
    ['tier in (silver, gold)', true],
    ['tier in (silver)', false],
    ['tier notin (silver)', true],
    ['absent notin (x)', true],
    ['tier', true],
    ['!tier', false],
    ['!absent', true],
    ['empty=', true],
    ['example.net/region=eu,tier in (gold),!absent', true],
    ['example.net/region=eu,tier=silver', false],
    ['constructor', false],
  ])('%j selects: %s', (selector, expected) => {
    expect(selects(selector)).toBe(expected)
  })

  it.each(['a=b=c', 'tier in gold', 'tier in (a,b', '=x', ',', 'a b', '-a=b', 'a=%'])('refuses %j', (selector) => {
    expect(parseLabelSelector(selector)).toMatchObject({ kind: 'invalid' })
  })
})

// The arithmetic and the words of a bench's table; nothing is measured.
import { expect, it } from 'vitest'
import { figureOf, spread, table } from '../../../bench/report.ts'

it.each([
  [[3], { median: 3, min: 3, max: 3 }],
  [[4, 1], { median: 2.5, min: 1, max: 4 }],
  [[10, 2, 9], { median: 9, min: 2, max: 10 }],
])('spreads %j', (values, expected) => {
  expect(spread(values)).toEqual(expected)
})

it('refuses to spread nothing', () => {
  expect(() => spread([])).toThrow('no values')
})

it('compares medians with those of the peer', () => {
  const figure = figureOf({ name: 'a', unit: 's', values: [3, 1, 2], peer: { name: 'by hand', values: [4, 4, 9] } })
  expect(figure.peer).toMatchObject({ median: 4, ratio: 0.5 })
})

it('says in one line what was measured, how far it spreads, whether the target is met, and against what', () => {
  const lines = table([
    { name: 'fast', unit: 's', values: [0.5], target: 1 },
    { name: 'slow', unit: 's', values: [12, 14], target: 1, peer: { name: 'by hand', values: [26] } },
  ]).split('\n')
  expect(lines).toHaveLength(3)
  expect(lines[1]).toMatch(/^fast +0\.50 s +0\.50 - 0\.50 +1 +at most 1 s: met$/)
  expect(lines[2]).toMatch(/^slow +13\.0 s +12\.0 - 14\.0 +2 +at most 1 s: missed +0\.50 x by hand \(26\.0 s\)$/)
})

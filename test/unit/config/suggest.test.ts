import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { editDistance, suggest } from '../../../src/config/suggest.ts'

const keys = ['sshKeyFile', 'knownHostsFile', 'diskSizeGb', 'images', 'machineTypes', 'hosts']

describe('suggest', () => {
  it.each([
    ['host', 'hosts'],
    ['sshKeyfile', 'sshKeyFile'],
    ['diskSizeGiB', 'diskSizeGb'],
    ['machienTypes', 'machineTypes'],
    ['imgaes', 'images'],
    ['knownHosts', undefined],
    ['bridge', undefined],
    ['', undefined],
  ])('takes %j for %j', (word, meant) => {
    expect(suggest(word, keys)).toBe(meant)
  })

  it('picks the nearest of several', () => {
    expect(suggest('pools', ['pool', 'polls', 'tools'])).toBe('pool')
  })
})

describe('editDistance', () => {
  it.each([
    ['', 'abc', 3],
    ['abc', 'abc', 0],
    ['abc', 'acb', 1],
    ['brigde', 'bridge', 1],
    ['kitten', 'sitting', 3],
  ])('of %j and %j is %d', (a, b, distance) => {
    expect(editDistance(a, b)).toBe(distance)
  })

  it('is symmetric, 0 only for equal words, and at most the length of the longer', () => {
    fc.assert(
      fc.property(fc.string({ maxLength: 12 }), fc.string({ maxLength: 12 }), (a, b) => {
        const distance = editDistance(a, b)
        expect(distance).toBe(editDistance(b, a))
        expect(distance === 0).toBe(a === b)
        expect(distance).toBeLessThanOrEqual(Math.max(a.length, b.length))
      }),
    )
  })
})

// The spec hash is an interface: a change of these values replaces every instance there is.
import { createHash } from 'node:crypto'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { hashesDiffer, specHash } from '../../../src/reconcile/spec-hash.ts'

const placement = { zone: 'beelink', machineType: 'small', image: 'debian-13', region: 'home' }

describe('specHash', () => {
  it('is SHA-256 over each field after its length in 8 bytes', () => {
    const fields = ['kvm2-home', 'beelink', 'small', 'debian-13', 'home', '#cloud-config\n']
    const bytes = fields.map((field) => {
      const length = Buffer.alloc(8)
      length[7] = field.length
      return Buffer.concat([length, Buffer.from(field)])
    })
    const expected = createHash('sha256').update(Buffer.concat(bytes)).digest('hex')
    const userData = Buffer.from('#cloud-config\n')
    expect(specHash({ provider: 'kvm2-home', placement, userData })).toBe(`v1:${expected}`)
  })

  it('has these values', () => {
    expect(specHash({ provider: 'kvm2-home', placement })).toBe(
      'v1:8e12ae86ef9280ab1e03419295d1c94d55086757000251591dc5e5128f1725f8',
    )
    expect(specHash({ provider: 'p', placement: {}, userData: Buffer.from([0, 0xff, 0x1f, 0x8b]) })).toBe(
      'v1:57becb8a422e41997143fdb957f78f62bf2b1c04228f4b248184e0a32515f185',
    )
  })

  it('tells any two specs apart, wherever a text stands', () => {
    const field = fc.string({ maxLength: 6 })
    const spec = fc.record({
      provider: field,
      placement: fc.record({ zone: field, machineType: field, image: field, region: field }),
      userData: fc.uint8Array({ maxLength: 6 }),
    })
    const flat = (s: { provider: string; placement: object; userData: Uint8Array }) =>
      JSON.stringify([s.provider, Object.entries(s.placement).sort(), [...s.userData]])
    fc.assert(
      fc.property(spec, spec, (a, b) => {
        expect(specHash(a) === specHash(b)).toBe(flat(a) === flat(b))
      }),
    )
    const shifted = { provider: 'ab', placement: { zone: 'c' } }
    expect(specHash(shifted)).not.toBe(specHash({ provider: 'a', placement: { zone: 'bc' } }))
  })
})

describe('hashesDiffer', () => {
  it.each([
    ['v1:aa', 'v1:aa', false],
    ['v1:aa', 'v1:bb', true],
    ['v1:aa', 'v2:bb', false],
    ['aa', 'v1:aa', false],
    ['aa', 'bb', true],
  ])('%s and %s: %s', (a, b, differ) => {
    expect(hashesDiffer(a, b)).toBe(differ)
  })
})

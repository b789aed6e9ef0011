// The generated table is what its description says; and the description is one the generator understands.
import { readFileSync } from 'node:fs'
import { expect, it } from 'vitest'
import { generate } from '../../../../hack/gen-libvirt-protocol.ts'
import { events, procedures } from '../../../../src/wire/libvirt/protocol.gen.ts'

const folder = new URL('../../../../src/wire/libvirt/', import.meta.url)
const description = JSON.parse(readFileSync(new URL('protocol.json', folder), 'utf8')) as Parameters<typeof generate>[0]

it('protocol.gen.ts is up to date', () => {
  expect(readFileSync(new URL('protocol.gen.ts', folder), 'utf8')).toBe(generate(description))
})

it('no two names share a number', () => {
  const numbers = [
    ...Object.values(procedures).map(({ program, number }) => `${program} ${number}`),
    ...Object.values(events).map(({ number }) => `REMOTE ${number}`),
  ]
  expect(new Set(numbers).size).toBe(numbers.length)
  expect(numbers.length).toBe(102)
})

it('an unknown type is refused', () => {
  expect(() => generate({ ...description, types: { Bad: { field: 'widget' } } })).toThrow('unknown type widget')
})

// A merge patch applied as RFC 7386 says gives what was wanted.
import fc from 'fast-check'
import { expect, it } from 'vitest'
import { mergePatch, type JsonObject } from '../../../src/reconcile/merge-patch.ts'

/** RFC 7386, section 2. */
function apply(target: unknown, patch: unknown): unknown {
  if (typeof patch !== 'object' || patch === null || Array.isArray(patch)) return patch
  const isObject = typeof target === 'object' && target !== null && !Array.isArray(target)
  const result: Record<string, unknown> = isObject ? { ...target } : {}
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) Reflect.deleteProperty(result, key)
    else result[key] = apply(result[key], value)
  }
  return result
}

const leaf = fc.oneof(fc.string({ maxLength: 3 }), fc.integer({ max: 5 }), fc.boolean())
const key = fc.constantFrom('a', 'b', 'c')
const { value: object } = fc.letrec((tie) => ({
  value: fc.dictionary(key, fc.oneof({ depthSize: 'small' }, leaf, fc.array(leaf, { maxLength: 2 }), tie('value'))),
}))

it('turns any object into any other', () => {
  fc.assert(
    fc.property(object, object, (x, y) => {
      const [from, to] = [x as JsonObject, y as JsonObject]
      const patch = mergePatch(from, to)
      const present = JSON.parse(JSON.stringify(from)) as unknown
      const wanted = JSON.parse(JSON.stringify(to)) as unknown
      if (patch === undefined) expect(present).toEqual(wanted)
      else expect(apply(present, patch)).toEqual(wanted)
    }),
  )
})

it('is undefined when nothing differs, an absent field and an undefined one being the same', () => {
  expect(mergePatch({ a: 1, b: { c: [1, { d: 2 }] } }, { a: 1, b: { c: [1, { d: 2 }] }, e: undefined })).toBeUndefined()
  expect(mergePatch({ a: undefined }, {})).toBeUndefined()
})

it('names just what differs', () => {
  expect(mergePatch({ a: 1, b: { c: 1, d: 2 }, e: [1] }, { b: { c: 1, d: 3 }, e: [1], f: 4 })).toEqual({
    a: null,
    b: { d: 3 },
    f: 4,
  })
})

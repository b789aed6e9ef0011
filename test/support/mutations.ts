// Damage to real documents and packets, as fast-check makes and shrinks it; what must survive it is said by the tests.
import fc from 'fast-check'

/** One damage. Places are fractions of the length, so that the same damage fits any document. */
type Damage =
  | { readonly kind: 'flip'; readonly at: number; readonly mask: number }
  | { readonly kind: 'cut'; readonly at: number }
  | { readonly kind: 'remove' | 'repeat'; readonly at: number; readonly size: number }
  | { readonly kind: 'insert'; readonly at: number; readonly bytes: Uint8Array }
  | { readonly kind: 'overwrite'; readonly at: number; readonly bytes: Uint8Array }

/** The words that lengths, counts and markers go wrong at, big endian. */
const words = [0, 1, 2, 0xff, 0xffff, 0x0100_0000, 0x0200_0004, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff].map((word) => {
  const bytes = Buffer.alloc(4)
  bytes.writeUInt32BE(word)
  return bytes
})

const steps = 2 ** 20

/**
 * A document that was damaged once to four times.
 * @param fragments what else to insert and to write over it with, apart from random bytes and the words of {@link words}
 */
export function damaged(
  documents: readonly Uint8Array[],
  fragments: readonly string[] = [],
): fc.Arbitrary<{ readonly index: number; readonly bytes: Buffer }> {
  // not fc.double: it is even over representations, so that nearly all would be 0 or next to it
  const at = fc.nat(steps).map((step) => step / steps)
  const size = fc.integer({ min: 1, max: 40 })
  const bytes = fc.oneof(
    fc.uint8Array({ maxLength: 20 }),
    fc.constantFrom(...words),
    ...fragments.map((fragment) => fc.constant(Buffer.from(fragment))),
  )
  const damage: fc.Arbitrary<Damage> = fc.oneof(
    fc.record({ kind: fc.constant('flip'), at, mask: fc.integer({ min: 1, max: 255 }) }),
    fc.record({ kind: fc.constant('cut'), at }),
    fc.record({ kind: fc.constantFrom('remove', 'repeat'), at, size }),
    fc.record({ kind: fc.constantFrom('insert', 'overwrite'), at, bytes }),
  )
  return fc
    .tuple(fc.nat(documents.length - 1), fc.array(damage, { minLength: 1, maxLength: 4 }))
    .map(([index, damages]) => ({ index, bytes: damages.reduce(apply, Buffer.from(documents[index] ?? [])) }))
}

function apply(document: Buffer, damage: Damage): Buffer {
  // packets are made of words, and a damaged length says more than one that is shifted by a byte
  const exact = Math.floor(damage.at * document.length)
  const at = damage.kind === 'overwrite' ? exact - (exact % 4) : exact
  const before = document.subarray(0, at)
  switch (damage.kind) {
    case 'flip': {
      const flipped = Buffer.from(document)
      const byte = flipped[at]
      if (byte !== undefined) flipped[at] = byte ^ damage.mask
      return flipped
    }
    case 'cut':
      return before
    case 'remove':
      return Buffer.concat([before, document.subarray(at + damage.size)])
    case 'repeat':
      return Buffer.concat([document.subarray(0, at + damage.size), document.subarray(at)])
    case 'insert':
      return Buffer.concat([before, damage.bytes, document.subarray(at)])
    case 'overwrite':
      return Buffer.concat([before, damage.bytes, document.subarray(at + damage.bytes.byteLength)])
  }
}

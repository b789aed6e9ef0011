// Looks for secrets where they must never be: it knows the secrets of a run and searches what the run told.
import { randomBytes } from 'node:crypto'
import { readFile } from 'node:fs/promises'

/** Text of one place, by the name of the place. */
export type Told = readonly (readonly [place: string, text: string])[]

export interface Canary {
  /** To be put into user-data and the like. */
  readonly text: string
  /** Places where a secret stands, each with the secret's name; empty when all is well. */
  leaks(told: Told): string[]
}

/** @param secretFiles files whose every line is a secret, by name */
export async function createCanary(secretFiles: Readonly<Record<string, string>>): Promise<Canary> {
  const text = `canary-${randomBytes(12).toString('hex')}`
  const needles: [name: string, needle: string][] = disguises(text).map((needle) => ['the canary', needle])
  for (const [name, file] of Object.entries(secretFiles)) {
    const words = (await readFile(file, 'utf8')).split(/\s+/).filter((word) => /^[A-Za-z0-9+/=]{32,}$/.test(word))
    if (words.length === 0) throw new Error(`${name}: nothing in ${file} looks like a secret`)
    for (const word of words) needles.push([name, word])
  }
  return {
    text,
    leaks: (told) =>
      told.flatMap(([place, content]) =>
        needles.filter(([, needle]) => content.includes(needle)).map(([name]) => `${name} in ${place}`),
      ),
  }
}

/** A text as it is, in hex, and in base64 at each of the three alignments. */
function disguises(text: string): string[] {
  const bytes = Buffer.from(text)
  const base64 = [0, 1, 2].map((shift) => {
    // The characters that mix with neighbours on either side are left out.
    const encoded = Buffer.concat([Buffer.alloc(shift), bytes]).toString('base64')
    return encoded.slice(shift === 0 ? 0 : 4, Math.floor(((shift + bytes.length) * 8) / 24) * 4)
  })
  return [text, bytes.toString('hex'), ...base64]
}

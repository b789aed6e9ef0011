// The search for secrets finds them in every guise: otherwise a suite that tells none would prove nothing.
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { createCanary, type Canary } from '../../support/e2e/canary.ts'
import { generateTestKey } from '../../support/ssh/keys.ts'

let folder: string
let canary: Canary
const { privateKey } = generateTestKey()

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'canary-'))
  await writeFile(join(folder, 'key'), privateKey)
  await writeFile(join(folder, 'empty'), 'nothing\n')
  canary = await createCanary({ 'the key': join(folder, 'key') })
})
afterAll(() => rm(folder, { recursive: true }))

it('finds the text as it is, in hex, and in base64 at any place of a longer text', () => {
  for (const before of ['', 'a', 'ab', 'abc', 'abcd']) {
    const whole = `${before}${canary.text}${before}`
    for (const told of [whole, Buffer.from(whole).toString('hex'), Buffer.from(whole).toString('base64')]) {
      expect(canary.leaks([['a log', told]])).toContain('the canary in a log')
    }
  }
})

it('finds every line of a file that is secret, also alone', () => {
  const lines = privateKey.split('\n').filter((line) => line.length > 32 && !line.includes(' '))
  expect(lines.length).toBeGreaterThan(2)
  for (const line of lines) expect(canary.leaks([['an Event', `x${line}y`]])).toEqual(['the key in an Event'])
})

it('finds nothing where nothing is', () => {
  expect(canary.leaks([['a log', `${'canary-'.repeat(10)} ${generateTestKey().publicKey}`]])).toEqual([])
})

it('refuses a file without anything to search for', async () => {
  await expect(createCanary({ 'the key': join(folder, 'empty') })).rejects.toThrow('nothing in')
})

// What the documents point to exists: files behind relative links, and targets of the Makefile.
import { existsSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { expect, test } from 'vitest'
import { documents, readText, root } from './markdown.ts'

test('every relative link leads to a file', () => {
  const links = documents().flatMap((path) =>
    [...readText(path).matchAll(/\]\(([^)\s#]+)[^)]*\)/g)].map(([, target]) => ({ path, target: target ?? '' })),
  )
  const relative = links.filter(({ target }) => !/^[a-z]+:/.test(target))
  expect(relative.length).toBeGreaterThan(5)
  expect(relative.filter(({ path, target }) => !existsSync(join(root, dirname(path), target)))).toEqual([])
})

test('every make target that is named exists', () => {
  const targets = new Set(
    [...readText('Makefile').matchAll(/^([a-z0-9][a-z0-9 -]*):(?!=)/gm)].flatMap(
      ([, names]) => names?.split(' ') ?? [],
    ),
  )
  const named = documents().flatMap((path) =>
    [...readText(path).matchAll(/(?:^\s*|`)make ([a-z][a-z0-9-]*)/gm)].map(([, target]) => ({
      path,
      target: target ?? '',
    })),
  )
  expect(named.length).toBeGreaterThan(3)
  expect(named.filter(({ target }) => !targets.has(target))).toEqual([])
})

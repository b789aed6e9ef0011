// The direction of dependencies between the folders of src/, read from the import statements themselves.
import { globSync, readFileSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'
import ts from 'typescript'
import { describe, expect, it } from 'vitest'

const root = resolve(import.meta.dirname, '../..')
const src = join(root, 'src')

/** What a folder may import besides itself. A longer path is a stricter rule for a part of a folder. */
const allowed: Readonly<Record<string, readonly string[]>> = {
  lib: [],
  observe: ['lib'],
  api: ['lib'],
  'wire/libvirt': ['lib', 'observe'],
  'wire/ssh': ['lib', 'observe'],
  'wire/http-proxy': ['lib'],
  kube: ['lib', 'observe'],
  provider: ['lib', 'observe', 'api'],
  'provider/nocloud': ['lib'],
  'provider/libvirt': ['lib', 'observe', 'api', 'wire/libvirt', 'wire/ssh', 'provider', 'provider/nocloud'],
  // the schema of a provider's block lives with the provider
  config: ['lib', 'observe', 'api', 'provider', 'provider/libvirt'],
  reconcile: ['lib', 'observe', 'api', 'kube', 'provider', 'config'],
  // a probe is a request through a proxy, so its client is the one wire that a handler knows
  health: ['lib', 'observe', 'api', 'wire/http-proxy'],
  discovery: ['lib', 'observe', 'api'],
}

/** Files that may import everything below: the composition root, the process edge and its commands. */
const unrestricted = /^(app|main|options|providers|commands\/.*)\.ts$/

interface Import {
  readonly from: string
  readonly to: string
}

const files = globSync('**/*.ts', { cwd: src }).sort()
const imports: Import[] = files.flatMap((file) =>
  ts
    .preProcessFile(readFileSync(join(src, file), 'utf8'))
    .importedFiles.filter(({ fileName }) => fileName.startsWith('.'))
    .map(({ fileName }) => ({ from: file, to: relative(src, join(src, dirname(file), fileName)) })),
)

/** The most specific rule for a file. */
function layerOf(file: string): string | undefined {
  return Object.keys(allowed)
    .filter((layer) => file.startsWith(`${layer}/`))
    .sort((a, b) => b.length - a.length)[0]
}

describe('layers', () => {
  it('sees the whole source', () => {
    expect(files.length).toBeGreaterThan(80)
    expect(imports.length).toBeGreaterThan(200)
  })

  it('has a rule for every file', () => {
    expect(files.filter((file) => layerOf(file) === undefined && !unrestricted.test(file))).toEqual([])
  })

  it('points one way', () => {
    const wrong = imports.filter(({ from, to }) => {
      const layer = layerOf(from)
      if (layer === undefined) return false
      const target = layerOf(to)
      return target === undefined || (target !== layer && allowed[layer]?.includes(target) !== true)
    })
    expect(wrong).toEqual([])
  })

  it('keeps the framework, and the wish for a kubeconfig that comes with it, in one file', () => {
    const importing = files.filter((file) =>
      ts
        .preProcessFile(readFileSync(join(src, file), 'utf8'))
        .importedFiles.some(({ fileName }) => fileName === '@dot-i/k8s-operator'),
    )
    expect(importing).toEqual(['kube/host.ts'])
  })
})

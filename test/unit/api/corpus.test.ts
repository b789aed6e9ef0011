// The corpus judged by the schemas; test/e2e/crd.test.ts has the real API server judge the same.
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { parse } from 'yaml'
import { customResourceDefinitions } from '../../../src/api/crd.ts'
import { providerHealthKind } from '../../../src/api/group.ts'
import {
  defaultProxy,
  unknownProviderHealthFields,
  unknownProxyFields,
  validateProviderHealth,
  validateProxy,
  type FieldProblem,
} from '../../../src/api/validate.ts'
import { corpus, type CorpusEntry, type Json } from '../../support/corpus/index.ts'

/** As an API server answers with strict field validation. */
function judge(entry: CorpusEntry): FieldProblem[] {
  const isHealth = entry.kind === providerHealthKind.kind
  const unknown = isHealth ? unknownProviderHealthFields(entry.object) : unknownProxyFields(entry.object)
  const problems = isHealth ? validateProviderHealth(entry.object) : validateProxy(entry.object, entry.old)
  return [...unknown.map((field) => ({ field, message: 'unknown field' })), ...problems]
}

/** Messages of all `x-kubernetes-validations` below a node. */
function messagesIn(node: unknown): string[] {
  if (typeof node !== 'object' || node === null) return []
  const rules = 'x-kubernetes-validations' in node ? (node['x-kubernetes-validations'] as { message: string }[]) : []
  return [...rules.map(({ message }) => message), ...Object.values(node).flatMap(messagesIn)]
}

describe('corpus', () => {
  it('has unique names and both verdicts', () => {
    const good = corpus.filter((entry) => entry.verdict.kind === 'good').length
    expect(new Set(corpus.map((entry) => entry.name)).size).toBe(corpus.length)
    expect(corpus.length).toBeGreaterThan(100)
    expect(good).toBeGreaterThan(30)
  })

  it('breaks every rule that the CRDs state, each by an entry of its own', () => {
    const stated = customResourceDefinitions().flatMap((crd) => messagesIn(crd.spec))
    const broken = new Set(corpus.flatMap((entry) => judge(entry).map((problem) => problem.message)))
    expect(stated.length).toBeGreaterThan(25)
    expect(stated.filter((message) => !broken.has(message))).toEqual([])
  })

  it('takes the sample', async () => {
    const sample = parse(
      await readFile(join(import.meta.dirname, '../../../hack/samples/proxy_kvm2.yaml'), 'utf8'),
    ) as Json
    expect(unknownProxyFields(sample)).toEqual([])
    expect(validateProxy(sample)).toEqual([])
  })

  it.each(corpus.map((entry) => [entry.name, entry] as const))('%s', (_name, entry) => {
    const problems = judge(entry)
    if (entry.verdict.kind === 'good') {
      expect(problems).toEqual([])
      return
    }
    const { field, says } = entry.verdict
    const about = problems.filter((problem) => problem.field === field)
    expect(problems.map((problem) => problem.field)).toContain(field)
    if (says !== undefined) expect(about.map((problem) => problem.message).join('\n')).toContain(says)
  })

  it.each(corpus.flatMap((entry) => (entry.old === undefined ? [] : [[entry.name, entry.old] as const])))(
    'the old object of %s is good',
    (_name, old) => {
      expect(validateProxy(old)).toEqual([])
    },
  )

  it.each(corpus.filter((entry) => entry.verdict.kind === 'good').map((entry) => [entry.name, entry.object] as const))(
    'defaulting %s twice changes nothing more',
    (_name, object) => {
      const once = defaultProxy(object)
      expect(defaultProxy(once)).toEqual(once)
    },
  )
})

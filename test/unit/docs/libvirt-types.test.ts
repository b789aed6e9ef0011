// The documents of the types kvm2 and kvm against the code: what either has and the other has not fails here.
import { expect, test } from 'vitest'
import { z } from 'zod'
import { defaultBudgets } from '../../../src/provider/libvirt/budgets.ts'
import {
  defaultSocketPaths,
  kvm2BlockSchema,
  kvmBlockSchema,
  normaliseLibvirtBlock,
} from '../../../src/provider/libvirt/config.ts'
import { connectionRows, libvirtRows, sshRows, streamRows } from '../../../src/provider/libvirt/errors.ts'
import { flavours } from '../../../src/provider/libvirt/flavour.ts'
import { requireAcceptsNew, resolvePlacement } from '../../../src/provider/libvirt/placement.ts'
import { codes, readText, sourcesOf, table } from './markdown.ts'

const kvm2 = readText('docs/kvm2-provider.md')
const kvm = readText('docs/kvm-provider.md')
const sources = sourcesOf('src/provider/libvirt')

interface Field {
  readonly required: boolean
  readonly default: string
}

const nodeSchema = z.object({
  properties: z.record(z.string(), z.unknown()).optional(),
  required: z.array(z.string()).optional(),
  additionalProperties: z.unknown().optional(),
  items: z.unknown().optional(),
  default: z.unknown().optional(),
})

function fieldsOf(schema: unknown, prefix = ''): [string, Field][] {
  const node = nodeSchema.parse(schema)
  return Object.entries(node.properties ?? {}).flatMap(([key, child]): [string, Field][] => {
    const { default: value, additionalProperties, items } = nodeSchema.parse(child)
    const path = `${prefix}${key}`
    const own: Field = {
      required: node.required?.includes(key) === true,
      default: value === undefined ? '' : JSON.stringify(value),
    }
    return [
      [path, own],
      ...(typeof additionalProperties === 'object' ? fieldsOf(additionalProperties, `${path}.<key>.`) : []),
      ...(typeof items === 'object' ? fieldsOf(items, `${path}[].`) : []),
    ]
  })
}

test('the config reference has every field of the schema, whether it is required, and its default', () => {
  const documented = table(kvm2, 'Field').map(([name, required, value]): [string | undefined, Field] => [
    codes(name)[0],
    { required: required === 'yes', default: codes(value)[0] ?? '' },
  ])
  expect(Object.fromEntries(documented)).toEqual(
    Object.fromEntries(fieldsOf(z.toJSONSchema(kvm2BlockSchema, { io: 'input' }))),
  )
  const [, , , socket] = table(kvm2, 'Field').find(([name]) => name === '`hosts[].socket`') ?? []
  expect(codes(socket)).toEqual([...defaultSocketPaths])
})

test('kvm has the fields of kvm2 without adoptFrom', () => {
  const fields = (schema: z.ZodType) => fieldsOf(z.toJSONSchema(schema, { io: 'input' })).map(([name]) => name)
  expect(fields(kvmBlockSchema)).toEqual(fields(kvm2BlockSchema).filter((name) => name !== 'adoptFrom'))
})

test.each([
  ['kvm2', kvm2],
  ['kvm', kvm],
] as const)('the reasons of the health check of %s are all there, and no others', (name, text) => {
  const documented = table(text, 'Reason').flatMap(([reason]) => codes(reason))
  expect(documented.toSorted()).toEqual(
    [...new Set(['Reachable', ...Object.values(flavours[name].reasons)])].toSorted(),
  )
  const { capacity, available } = flavours[name].poolDetails
  for (const detail of [capacity, available]) expect(text).toContain(`\`${detail}\``)
})

test('the messages about placements are those of the code', () => {
  const host = { address: 'kvm.example.net:22', user: 'u', bridge: 'br0' }
  const config = normaliseLibvirtBlock(
    kvm2BlockSchema.parse({
      sshKeyFile: '/k',
      knownHostsFile: '/h',
      images: { 'debian-13': { url: 'https://images.example.net/d.qcow2' } },
      machineTypes: { small: { vcpus: 1, memoryMiB: 1024 } },
      hosts: [
        { ...host, name: 'kvm-1' },
        { ...host, name: 'kvm-2', drain: true },
      ],
    }),
  )
  const right = { zone: 'kvm-2', machineType: 'small', image: 'debian-13' }
  const { zone, machineType, image } = right
  const wrong = [
    { machineType, image },
    { ...right, zone: 'x' },
    { zone, image },
    { ...right, machineType: 'x' },
    { zone, machineType },
    { ...right, image: 'x' },
  ]
  const messages = [
    ...wrong.map((placement) => messageOf(() => resolvePlacement('kvm2', config, placement))),
    messageOf(() => {
      requireAcceptsNew('kvm2', resolvePlacement('kvm2', config, right).host)
    }),
  ]
  const [, block = ''] = /```text\n([^`]*)\n```/.exec(kvm2) ?? []
  expect(block.split('\n')).toEqual(messages)
})

function messageOf(work: () => unknown): string {
  try {
    work()
  } catch (thrown) {
    if (thrown instanceof Error) return thrown.message
  }
  throw new Error('nothing was refused')
}

test('every budget is there with its time', () => {
  const documented = table(kvm2, 'Budget').map(([name, time]) => [codes(name)[0], time])
  expect(Object.fromEntries(documented)).toEqual(
    Object.fromEntries(Object.entries(defaultBudgets).map(([name, ms]: [string, number]) => [name, `${ms / 1000} s`])),
  )
})

test('every code is there under its kind', () => {
  const pairs = (rows: readonly (readonly [string, string])[]) =>
    [...new Set(rows.map(([kind, code]) => `${kind} ${code}`))].toSorted()
  const documented = table(kvm2, 'Kind').flatMap(([kind, list]) =>
    codes(list).map((code) => [codes(kind)[0] ?? '', code] as const),
  )
  const all = [libvirtRows, sshRows, connectionRows, streamRows].flatMap((rows) => Object.values(rows))
  expect(pairs(documented)).toEqual(pairs(all.map(({ kind, code }) => [kind, code] as const)))
})

test('every line of the log is there with its level', () => {
  const documented = table(kvm2, 'Line').map(([line, level]): [string | undefined, string | undefined] => [
    codes(line)[0],
    codes(level)[0],
  ])
  const written = new Map<string, string>()
  for (const [, level = '', , message = ''] of sources.matchAll(/log\.(warn|info|debug|trace)\(\s*(['`])(.*?)\2/gs)) {
    const line = message.replace(/\$\{(engine\.)?flavour\.subject\}/, flavours.kvm2.subject)
    if (written.get(line) !== 'debug') written.set(line, level === 'trace' ? '2' : level)
  }
  expect(Object.fromEntries(documented)).toEqual(Object.fromEntries(written))
})

test('every span is there with its attributes', () => {
  const documented = table(kvm2, 'Span').map(([span, , attributes]) => [codes(span)[0], ...codes(attributes)])
  const names = [...sources.matchAll(/withSpan\(`\$\{flavour\}\.([^`]+)`/g)].map(([, name = '']) => name)
  expect(documented.map(([span]) => span).toSorted()).toEqual(
    names.map((name) => `kvm2.${name === '${method}' ? '<Method>' : name}`).toSorted(),
  )
  const attributes = [...sources.matchAll(/`\$\{flavour\}\.([a-z_\d]+)`(?=\]|, )/g)].map(
    ([, name = '']) => `kvm2.${name}`,
  )
  const told = documented.flatMap(([, ...rest]) => rest)
  const spans = new Set(documented.map(([span]) => span))
  expect([...new Set(told)].toSorted()).toEqual([...new Set(attributes)].filter((name) => !spans.has(name)).toSorted())
})

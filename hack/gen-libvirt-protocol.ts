// Writes src/wire/libvirt/protocol.gen.ts from protocol.json beside it; with --check it only says whether they agree.
import { readFileSync, writeFileSync } from 'node:fs'

type Fields = Readonly<Record<string, string>>

interface Protocol {
  readonly programs: Readonly<Record<string, { readonly number: number; readonly version: number }>>
  readonly types: Readonly<Record<string, Fields>>
  readonly procedures: Readonly<
    Record<
      string,
      {
        readonly program?: string
        readonly number: number
        readonly args: Fields | null
        readonly ret: Fields | null
        readonly stream?: string
      }
    >
  >
  readonly events: Readonly<
    Record<
      string,
      { readonly number: number; readonly family: string; readonly eventID?: number; readonly msg: Fields }
    >
  >
}

const primitives: Readonly<Record<string, { readonly ts: string; readonly xdr: string }>> = {
  char: { ts: 'number', xdr: 'int' },
  int: { ts: 'number', xdr: 'int' },
  uchar: { ts: 'number', xdr: 'uint' },
  ushort: { ts: 'number', xdr: 'uint' },
  uint: { ts: 'number', xdr: 'uint' },
  hyper: { ts: 'bigint', xdr: 'hyper' },
  uhyper: { ts: 'bigint', xdr: 'uhyper' },
  double: { ts: 'number', xdr: 'double' },
  string: { ts: 'string', xdr: 'string' },
  uuid: { ts: 'string', xdr: 'uuid' },
  TypedValue: { ts: 'TypedValue', xdr: 'typedValue' },
}

/** Text of the generated module. Throws on a type expression it does not know. */
export function generate(protocol: Protocol): string {
  const translate = (expression: string): { ts: string; xdr: string } => {
    const optional = /^(.+)\?$/.exec(expression)
    if (optional?.[1] !== undefined) {
      const of = translate(optional[1])
      return { ts: `${of.ts} | null`, xdr: `{ kind: 'optional', of: ${of.xdr} }` }
    }
    const array = /^(.+)<(\d+)>$/.exec(expression)
    if (array?.[1] !== undefined && array[2] !== undefined) {
      const of = translate(array[1])
      return { ts: `readonly ${of.ts}[]`, xdr: `{ kind: 'array', of: ${of.xdr}, max: ${array[2]} }` }
    }
    const chars = /^char\[(\d+)\]$/.exec(expression)
    if (chars?.[1] !== undefined) return { ts: 'string', xdr: `{ kind: 'chars', length: ${chars[1]} }` }
    const primitive = primitives[expression]
    if (primitive !== undefined) return { ts: primitive.ts, xdr: `{ kind: '${primitive.xdr}' }` }
    if (protocol.types[expression] !== undefined) return { ts: expression, xdr: constant(expression) }
    throw new Error(`unknown type ${expression}`)
  }
  const tsFields = (fields: Fields | null): string =>
    fields === null
      ? 'null'
      : `{ ${Object.entries(fields)
          .map(([name, type]) => `readonly ${name}: ${translate(type).ts}`)
          .join('; ')} }`
  const xdrFields = (fields: Fields | null): string =>
    fields === null
      ? 'null'
      : `{ kind: 'struct', fields: [${Object.entries(fields)
          .map(([name, type]) => `{ name: '${name}', type: ${translate(type).xdr} }`)
          .join(', ')}] }`

  const lines = [
    "// Generated from protocol.json by hack/gen-libvirt-protocol.ts: procedures, structs and events of libvirt's RPC; not edited by hand.",
    "import type { EventDescription, ProcedureDescription, TypedValue, XdrStruct } from './schema.ts'",
    '',
    'export const programs = {',
    ...Object.entries(protocol.programs).map(
      ([name, p]) => `  ${name}: { number: 0x${p.number.toString(16)}, version: ${p.version} },`,
    ),
    '} as const',
    '',
  ]
  for (const [name, fields] of Object.entries(protocol.types)) {
    lines.push(`export interface ${name} ${tsFields(fields)}`, '')
    lines.push(`export const ${constant(name)}: XdrStruct = ${xdrFields(fields)}`, '')
  }
  lines.push('/** Arguments and result by procedure. */', 'export interface Procedures {')
  for (const [name, p] of Object.entries(protocol.procedures)) {
    lines.push(`  readonly ${name}: { readonly args: ${tsFields(p.args)}; readonly ret: ${tsFields(p.ret)} }`)
  }
  lines.push('}', '', 'export type ProcedureName = keyof Procedures', '')
  lines.push('export const procedures: { readonly [P in ProcedureName]: ProcedureDescription } = {')
  for (const [name, p] of Object.entries(protocol.procedures)) {
    const stream = p.stream === undefined ? 'null' : `'${p.stream}'`
    lines.push(
      `  ${name}: { program: '${p.program ?? 'REMOTE'}', number: ${p.number}, args: ${xdrFields(p.args)}, ret: ${xdrFields(p.ret)}, stream: ${stream} },`,
    )
  }
  lines.push('}', '', '/** Message by event. */', 'export interface Events {')
  for (const [name, e] of Object.entries(protocol.events)) lines.push(`  readonly ${name}: ${tsFields(e.msg)}`)
  lines.push('}', '', 'export type EventName = keyof Events', '')
  lines.push('export const events: { readonly [E in EventName]: EventDescription } = {')
  for (const [name, e] of Object.entries(protocol.events)) {
    lines.push(
      `  ${name}: { number: ${e.number}, family: '${e.family}', eventID: ${e.eventID ?? 'null'}, msg: ${xdrFields(e.msg)} },`,
    )
  }
  lines.push('}', '')
  return lines.join('\n')
}

function constant(typeName: string): string {
  return `${typeName.charAt(0).toLowerCase()}${typeName.slice(1)}Struct`
}

if (import.meta.main) {
  const folder = new URL('../src/wire/libvirt/', import.meta.url)
  const text = generate(JSON.parse(readFileSync(new URL('protocol.json', folder), 'utf8')) as Protocol)
  const target = new URL('protocol.gen.ts', folder)
  if (process.argv.includes('--check')) {
    if (readFileSync(target, 'utf8') !== text) {
      console.error('src/wire/libvirt/protocol.gen.ts is out of date: run node hack/gen-libvirt-protocol.ts')
      process.exitCode = 1
    }
  } else {
    writeFileSync(target, text)
  }
}

// Descriptions of XDR types and the two interpreters that read and write values by them; not the protocol's own table.
import { exhaustive } from '../../lib/exhaustive.ts'
import { XdrError, type XdrReader, type XdrWriter } from './xdr.ts'

export interface XdrField {
  readonly name: string
  readonly type: XdrType
}

export interface XdrStruct {
  readonly kind: 'struct'
  readonly fields: readonly XdrField[]
}

export type XdrType =
  | { readonly kind: 'int' | 'uint' | 'hyper' | 'uhyper' | 'double' | 'string' | 'uuid' | 'typedValue' }
  | { readonly kind: 'chars'; readonly length: number }
  | { readonly kind: 'optional'; readonly of: XdrType }
  | { readonly kind: 'array'; readonly of: XdrType; readonly max: number }
  | XdrStruct

/** Value of a typed parameter (remote_protocol.x: remote_typed_param_value). */
export type TypedValue =
  | { readonly kind: 'int'; readonly value: number }
  | { readonly kind: 'uint'; readonly value: number }
  | { readonly kind: 'hyper'; readonly value: bigint }
  | { readonly kind: 'uhyper'; readonly value: bigint }
  | { readonly kind: 'double'; readonly value: number }
  | { readonly kind: 'boolean'; readonly value: boolean }
  | { readonly kind: 'string'; readonly value: string }

/** Which calls, replies and event a number stands for. */
export interface ProcedureDescription {
  readonly program: 'REMOTE' | 'QEMU'
  readonly number: number
  readonly args: XdrStruct | null
  readonly ret: XdrStruct | null
  /** Direction of the data that follows a successful reply, or null when nothing does. */
  readonly stream: 'upload' | 'download' | null
}

export interface EventDescription {
  readonly number: number
  /** Whose callback numbers the message carries: domains and pools count on their own. */
  readonly family: 'domain' | 'storagePool' | 'connection'
  /** Number to register with; null for the one that is not registered by number. */
  readonly eventID: number | null
  readonly msg: XdrStruct
}

/** Reads one value of `type`. Throws {@link XdrError}. */
export function readValue(reader: XdrReader, type: XdrType): unknown {
  switch (type.kind) {
    case 'int':
      return reader.int()
    case 'uint':
      return reader.uint()
    case 'hyper':
      return reader.hyper()
    case 'uhyper':
      return reader.uhyper()
    case 'double':
      return reader.double()
    case 'string':
      return reader.string()
    case 'uuid':
      return reader.uuid()
    case 'typedValue':
      return readTypedValue(reader)
    case 'chars':
      return reader.chars(type.length)
    case 'optional':
      return reader.present() ? readValue(reader, type.of) : null
    case 'array': {
      const count = reader.count(type.max)
      const values: unknown[] = []
      for (let i = 0; i < count; i++) values.push(readValue(reader, type.of))
      return values
    }
    case 'struct': {
      const value: Record<string, unknown> = {}
      for (const field of type.fields) value[field.name] = readValue(reader, field.type)
      return value
    }
    default:
      return exhaustive(type)
  }
}

/** Writes `value` as `type`. Throws {@link XdrError} when it is not one. */
export function writeValue(writer: XdrWriter, type: XdrType, value: unknown): void {
  switch (type.kind) {
    case 'int':
      writer.int(asNumber(value))
      return
    case 'uint':
      writer.uint(asNumber(value))
      return
    case 'hyper':
      writer.hyper(asBigint(value))
      return
    case 'uhyper':
      writer.uhyper(asBigint(value))
      return
    case 'double':
      writer.double(asNumber(value))
      return
    case 'string':
      writer.string(asString(value))
      return
    case 'uuid':
      writer.uuid(asString(value))
      return
    case 'typedValue':
      writeTypedValue(writer, value)
      return
    case 'chars':
      writer.chars(asString(value), type.length)
      return
    case 'optional':
      writer.present(value !== null)
      if (value !== null) writeValue(writer, type.of, value)
      return
    case 'array': {
      if (!Array.isArray(value)) throw wrongType('an array', value)
      writer.count(value.length, type.max)
      for (const element of value) writeValue(writer, type.of, element)
      return
    }
    case 'struct': {
      const record = asRecord(value)
      for (const field of type.fields) writeValue(writer, field.type, record[field.name])
      return
    }
    default:
      return exhaustive(type)
  }
}

function readTypedValue(reader: XdrReader): TypedValue {
  const arm = reader.int()
  switch (arm) {
    case 1:
      return { kind: 'int', value: reader.int() }
    case 2:
      return { kind: 'uint', value: reader.uint() }
    case 3:
      return { kind: 'hyper', value: reader.hyper() }
    case 4:
      return { kind: 'uhyper', value: reader.uhyper() }
    case 5:
      return { kind: 'double', value: reader.double() }
    case 6:
      return { kind: 'boolean', value: reader.int() !== 0 }
    case 7:
      return { kind: 'string', value: reader.string() }
    default:
      throw new XdrError('UNION', `typed parameter of unknown type ${arm}`)
  }
}

function writeTypedValue(writer: XdrWriter, typed: unknown): void {
  const { kind, value } = asRecord(typed)
  switch (kind) {
    case 'int':
      writer.int(1)
      {
        writer.int(asNumber(value))
        return
      }
    case 'uint':
      writer.int(2)
      {
        writer.uint(asNumber(value))
        return
      }
    case 'hyper':
      writer.int(3)
      {
        writer.hyper(asBigint(value))
        return
      }
    case 'uhyper':
      writer.int(4)
      {
        writer.uhyper(asBigint(value))
        return
      }
    case 'double':
      writer.int(5)
      {
        writer.double(asNumber(value))
        return
      }
    case 'boolean':
      if (typeof value !== 'boolean') throw wrongType('a boolean', value)
      writer.int(6)
      {
        writer.int(value ? 1 : 0)
        return
      }
    case 'string':
      writer.int(7)
      {
        writer.string(asString(value))
        return
      }
    default:
      throw wrongType('a typed value', typed)
  }
}

function asNumber(value: unknown): number {
  if (typeof value !== 'number') throw wrongType('a number', value)
  return value
}

function asBigint(value: unknown): bigint {
  if (typeof value !== 'bigint') throw wrongType('a bigint', value)
  return value
}

function asString(value: unknown): string {
  if (typeof value !== 'string') throw wrongType('a string', value)
  return value
}

function asRecord(value: unknown): Readonly<Record<string, unknown>> {
  if (typeof value !== 'object' || value === null) throw wrongType('a struct', value)
  return { ...value }
}

function wrongType(wanted: string, value: unknown): XdrError {
  return new XdrError('TYPE', `${wanted} wanted, got ${value === null ? 'null' : typeof value}`)
}

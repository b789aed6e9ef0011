// Reads the recorded conversations of test/fixtures/libvirt; it judges nothing.
import { readdirSync, readFileSync } from 'node:fs'

const folder = new URL('../../../fixtures/libvirt/', import.meta.url)

/** A packet as recorded. Long payloads are kept as size, first and last 32 bytes and digest. */
export interface RecordedPacket {
  readonly kind: 'packet'
  readonly where: string
  readonly conn: number
  readonly dir: 'c2s' | 's2c'
  readonly header: Buffer
  readonly fields: readonly number[]
  readonly struct: string | undefined
  readonly meaning: unknown
  /** The payload is wrong on purpose, so it has no meaning. */
  readonly malformed: boolean
  readonly payload:
    | { readonly kind: 'whole'; readonly bytes: Buffer }
    | {
        readonly kind: 'digest'
        readonly size: number
        readonly head: Buffer
        readonly tail: Buffer
        readonly sha256: string
      }
}

/** What else happened: a connect, an end, a reset, or bytes that are no packet. */
export interface RecordedEvent {
  readonly kind: 'event'
  readonly where: string
  readonly conn: number
  readonly dir: 'c2s' | 's2c'
  readonly event: string
  readonly bytes: Buffer
}

export interface Conversation {
  readonly name: string
  readonly records: readonly (RecordedPacket | RecordedEvent)[]
}

interface Line {
  readonly conversation?: string
  readonly conn: number
  readonly dir: 'c2s' | 's2c'
  readonly event?: string
  readonly header?: string
  readonly fields?: readonly number[]
  readonly struct?: string
  readonly meaning?: unknown
  readonly malformed?: boolean
  readonly payload?: string
  readonly size?: number
  readonly head?: string
  readonly tail?: string
  readonly sha256?: string
}

/** Every recorded conversation, in order of name. */
export function readConversations(): readonly Conversation[] {
  return readdirSync(folder)
    .filter((name) => name.endsWith('.jsonl'))
    .sort()
    .map((name) => readConversation(name.slice(0, -'.jsonl'.length)))
}

/** One conversation by its name, for example `05-upload-abort`. */
export function readConversation(name: string): Conversation {
  const [head, ...rest] = readFileSync(new URL(`${name}.jsonl`, folder), 'utf8')
    .trimEnd()
    .split('\n')
  const { conversation } = parse(head ?? '{}')
  if (conversation !== name) throw new Error(`${name}.jsonl says it is ${conversation ?? 'nothing'}`)
  return { name, records: rest.map((text, index) => toRecord(parse(text), `${name}:${index + 2}`)) }
}

function toRecord(line: Line, where: string): RecordedPacket | RecordedEvent {
  const { conn, dir } = line
  if (line.event !== undefined) {
    return { kind: 'event', where, conn, dir, event: line.event, bytes: Buffer.from(line.payload ?? '', 'hex') }
  }
  if (line.header === undefined || line.fields === undefined) throw new Error(`${where} is neither packet nor event`)
  return {
    kind: 'packet',
    where,
    conn,
    dir,
    header: Buffer.from(line.header, 'hex'),
    fields: line.fields,
    struct: line.struct,
    meaning: line.meaning ?? null,
    malformed: line.malformed ?? false,
    payload:
      line.size === undefined
        ? { kind: 'whole', bytes: Buffer.from(line.payload ?? '', 'hex') }
        : {
            kind: 'digest',
            size: line.size,
            head: Buffer.from(line.head ?? '', 'hex'),
            tail: Buffer.from(line.tail ?? '', 'hex'),
            sha256: line.sha256 ?? '',
          },
  }
}

/** 64-bit numbers stand in the files as decimal digits and an `n`. */
function parse(text: string): Line {
  return JSON.parse(text, (_key, value: unknown) =>
    typeof value === 'string' && /^-?\d+n$/.test(value) ? BigInt(value.slice(0, -1)) : value,
  ) as Line
}

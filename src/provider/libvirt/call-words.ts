// What the log says of a call besides what was asked: its results, and the names of libvirt's errors; when a line is written is in rpc.ts.
import type { LogFields } from '../../observe/logger.ts'
import type { ProcedureName, Procedures } from '../../wire/libvirt/protocol.gen.ts'
import { poolStateWord } from './pool-space.ts'

/** `brief` is a word or a number, `full` all there is to read. */
export interface ResultWords {
  readonly brief: LogFields
  readonly full: LogFields
}

type Words = { readonly [P in ProcedureName]?: (result: Procedures[P]['ret']) => Partial<ResultWords> }

/** virDomainState, by number. */
const domainStates = ['nostate', 'running', 'blocked', 'paused', 'shutdown', 'shutoff', 'crashed', 'pmsuspended']

const words: Words = {
  DOMAIN_GET_STATE: ({ state, reason }) => ({
    brief: { state: domainStates[state] ?? String(state) },
    full: { stateReason: reason },
  }),
  DOMAIN_INTERFACE_ADDRESSES: ({ ifaces }) => ({ brief: { interfaces: ifaces.length }, full: { addresses: ifaces } }),
  DOMAIN_GET_XML_DESC: ({ xml }) => ({ full: { xml } }),
  DOMAIN_GET_METADATA: ({ metadata }) => ({ full: { metadata } }),
  CONNECT_LIST_ALL_DOMAINS: ({ domains }) => ({ full: { names: domains.map(({ name }) => name) } }),
  CONNECT_GET_ALL_DOMAIN_STATS: ({ retStats }) => ({ full: { names: retStats.map(({ dom }) => dom.name) } }),
  STORAGE_POOL_GET_INFO: ({ state, capacity, allocation, available }) => ({
    brief: { state: poolStateWord(state) },
    full: {
      capacityBytes: Number(capacity),
      allocationBytes: Number(allocation),
      availableBytes: Number(available),
    },
  }),
  STORAGE_VOL_GET_PATH: ({ name }) => ({ brief: { path: name } }),
  STORAGE_VOL_GET_XML_DESC: ({ xml }) => ({ full: { xml } }),
}

/** Of a procedure without words of its own everything is `full`, as one field `result`. */
export function resultWords<P extends ProcedureName>(procedure: P, result: Procedures[P]['ret']): ResultWords {
  const told = words[procedure]?.(result) ?? { full: result === null ? {} : { result: plain(result) } }
  return { brief: {}, full: {}, ...told }
}

/** Transferred bytes are counted only. */
export function transferWords(result: unknown): ResultWords {
  return { brief: {}, full: result instanceof Uint8Array ? { bytes: result.byteLength } : {} }
}

const acronyms: ReadonlySet<string> = new Set(['CPU', 'HTTP', 'RPC', 'XML'])

/** `NO_DOMAIN` → `ErrNoDomain` */
export function errorName(codeName: string): string {
  const camel = codeName
    .split('_')
    .map((word) => (acronyms.has(word) ? word : word.charAt(0) + word.slice(1).toLowerCase()))
  return `Err${camel.join('')}`
}

function plain(result: unknown): unknown {
  return JSON.parse(
    JSON.stringify(result, (_key, value: unknown) => (typeof value === 'bigint' ? value.toString() : value)),
  )
}

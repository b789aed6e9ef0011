// Generated from protocol.json by hack/gen-libvirt-protocol.ts: procedures, structs and events of libvirt's RPC; not edited by hand.
import type { EventDescription, ProcedureDescription, TypedValue, XdrStruct } from './schema.ts'

export const programs = {
  REMOTE: { number: 0x20008086, version: 1 },
  QEMU: { number: 0x20008087, version: 1 },
  KEEPALIVE: { number: 0x6b656570, version: 1 },
} as const

export interface Domain { readonly name: string; readonly uuid: string; readonly id: number }

export const domainStruct: XdrStruct = { kind: 'struct', fields: [{ name: 'name', type: { kind: 'string' } }, { name: 'uuid', type: { kind: 'uuid' } }, { name: 'id', type: { kind: 'int' } }] }

export interface Network { readonly name: string; readonly uuid: string }

export const networkStruct: XdrStruct = { kind: 'struct', fields: [{ name: 'name', type: { kind: 'string' } }, { name: 'uuid', type: { kind: 'uuid' } }] }

export interface StoragePool { readonly name: string; readonly uuid: string }

export const storagePoolStruct: XdrStruct = { kind: 'struct', fields: [{ name: 'name', type: { kind: 'string' } }, { name: 'uuid', type: { kind: 'uuid' } }] }

export interface StorageVol { readonly pool: string; readonly name: string; readonly key: string }

export const storageVolStruct: XdrStruct = { kind: 'struct', fields: [{ name: 'pool', type: { kind: 'string' } }, { name: 'name', type: { kind: 'string' } }, { name: 'key', type: { kind: 'string' } }] }

export interface DomainIpAddress { readonly type: number; readonly addr: string; readonly prefix: number }

export const domainIpAddressStruct: XdrStruct = { kind: 'struct', fields: [{ name: 'type', type: { kind: 'int' } }, { name: 'addr', type: { kind: 'string' } }, { name: 'prefix', type: { kind: 'uint' } }] }

export interface DomainInterface { readonly name: string; readonly hwaddr: string | null; readonly addrs: readonly DomainIpAddress[] }

export const domainInterfaceStruct: XdrStruct = { kind: 'struct', fields: [{ name: 'name', type: { kind: 'string' } }, { name: 'hwaddr', type: { kind: 'optional', of: { kind: 'string' } } }, { name: 'addrs', type: { kind: 'array', of: domainIpAddressStruct, max: 2048 } }] }

export interface TypedParam { readonly field: string; readonly value: TypedValue }

export const typedParamStruct: XdrStruct = { kind: 'struct', fields: [{ name: 'field', type: { kind: 'string' } }, { name: 'value', type: { kind: 'typedValue' } }] }

export interface DomainStatsRecord { readonly dom: Domain; readonly params: readonly TypedParam[] }

export const domainStatsRecordStruct: XdrStruct = { kind: 'struct', fields: [{ name: 'dom', type: domainStruct }, { name: 'params', type: { kind: 'array', of: typedParamStruct, max: 262144 } }] }

export interface DomainLifecycle { readonly dom: Domain; readonly event: number; readonly detail: number }

export const domainLifecycleStruct: XdrStruct = { kind: 'struct', fields: [{ name: 'dom', type: domainStruct }, { name: 'event', type: { kind: 'int' } }, { name: 'detail', type: { kind: 'int' } }] }

export interface DomainReboot { readonly dom: Domain }

export const domainRebootStruct: XdrStruct = { kind: 'struct', fields: [{ name: 'dom', type: domainStruct }] }

export interface DomainIoError { readonly dom: Domain; readonly srcPath: string; readonly devAlias: string; readonly action: number }

export const domainIoErrorStruct: XdrStruct = { kind: 'struct', fields: [{ name: 'dom', type: domainStruct }, { name: 'srcPath', type: { kind: 'string' } }, { name: 'devAlias', type: { kind: 'string' } }, { name: 'action', type: { kind: 'int' } }] }

export interface DomainControlError { readonly dom: Domain }

export const domainControlErrorStruct: XdrStruct = { kind: 'struct', fields: [{ name: 'dom', type: domainStruct }] }

export interface RemoteError { readonly code: number; readonly domain: number; readonly message: string | null; readonly level: number; readonly dom: Domain | null; readonly str1: string | null; readonly str2: string | null; readonly str3: string | null; readonly int1: number; readonly int2: number; readonly net: Network | null }

export const remoteErrorStruct: XdrStruct = { kind: 'struct', fields: [{ name: 'code', type: { kind: 'int' } }, { name: 'domain', type: { kind: 'int' } }, { name: 'message', type: { kind: 'optional', of: { kind: 'string' } } }, { name: 'level', type: { kind: 'int' } }, { name: 'dom', type: { kind: 'optional', of: domainStruct } }, { name: 'str1', type: { kind: 'optional', of: { kind: 'string' } } }, { name: 'str2', type: { kind: 'optional', of: { kind: 'string' } } }, { name: 'str3', type: { kind: 'optional', of: { kind: 'string' } } }, { name: 'int1', type: { kind: 'int' } }, { name: 'int2', type: { kind: 'int' } }, { name: 'net', type: { kind: 'optional', of: networkStruct } }] }

export interface StreamHole { readonly length: bigint; readonly flags: number }

export const streamHoleStruct: XdrStruct = { kind: 'struct', fields: [{ name: 'length', type: { kind: 'hyper' } }, { name: 'flags', type: { kind: 'uint' } }] }

/** Arguments and result by procedure. */
export interface Procedures {
  readonly CONNECT_OPEN: { readonly args: { readonly name: string | null; readonly flags: number }; readonly ret: null }
  readonly CONNECT_CLOSE: { readonly args: null; readonly ret: null }
  readonly CONNECT_GET_TYPE: { readonly args: null; readonly ret: { readonly type: string } }
  readonly CONNECT_GET_VERSION: { readonly args: null; readonly ret: { readonly hv_ver: bigint } }
  readonly CONNECT_GET_MAX_VCPUS: { readonly args: { readonly type: string | null }; readonly ret: { readonly max_vcpus: number } }
  readonly NODE_GET_INFO: { readonly args: null; readonly ret: { readonly model: string; readonly memory: bigint; readonly cpus: number; readonly mhz: number; readonly nodes: number; readonly sockets: number; readonly cores: number; readonly threads: number } }
  readonly CONNECT_GET_CAPABILITIES: { readonly args: null; readonly ret: { readonly capabilities: string } }
  readonly DOMAIN_CREATE: { readonly args: { readonly dom: Domain }; readonly ret: null }
  readonly DOMAIN_CREATE_XML: { readonly args: { readonly xml_desc: string; readonly flags: number }; readonly ret: { readonly dom: Domain } }
  readonly DOMAIN_DEFINE_XML: { readonly args: { readonly xml: string }; readonly ret: { readonly dom: Domain } }
  readonly DOMAIN_DESTROY: { readonly args: { readonly dom: Domain }; readonly ret: null }
  readonly DOMAIN_GET_XML_DESC: { readonly args: { readonly dom: Domain; readonly flags: number }; readonly ret: { readonly xml: string } }
  readonly DOMAIN_GET_AUTOSTART: { readonly args: { readonly dom: Domain }; readonly ret: { readonly autostart: number } }
  readonly DOMAIN_GET_INFO: { readonly args: { readonly dom: Domain }; readonly ret: { readonly state: number; readonly maxMem: bigint; readonly memory: bigint; readonly nrVirtCpu: number; readonly cpuTime: bigint } }
  readonly DOMAIN_LOOKUP_BY_ID: { readonly args: { readonly id: number }; readonly ret: { readonly dom: Domain } }
  readonly DOMAIN_LOOKUP_BY_NAME: { readonly args: { readonly name: string }; readonly ret: { readonly dom: Domain } }
  readonly DOMAIN_LOOKUP_BY_UUID: { readonly args: { readonly uuid: string }; readonly ret: { readonly dom: Domain } }
  readonly DOMAIN_REBOOT: { readonly args: { readonly dom: Domain; readonly flags: number }; readonly ret: null }
  readonly DOMAIN_RESUME: { readonly args: { readonly dom: Domain }; readonly ret: null }
  readonly DOMAIN_SET_AUTOSTART: { readonly args: { readonly dom: Domain; readonly autostart: number }; readonly ret: null }
  readonly DOMAIN_SHUTDOWN: { readonly args: { readonly dom: Domain }; readonly ret: null }
  readonly DOMAIN_SUSPEND: { readonly args: { readonly dom: Domain }; readonly ret: null }
  readonly DOMAIN_UNDEFINE: { readonly args: { readonly dom: Domain }; readonly ret: null }
  readonly CONNECT_LIST_DOMAINS: { readonly args: { readonly maxids: number }; readonly ret: { readonly ids: readonly number[] } }
  readonly NETWORK_LOOKUP_BY_NAME: { readonly args: { readonly name: string }; readonly ret: { readonly net: Network } }
  readonly CONNECT_NUM_OF_DOMAINS: { readonly args: null; readonly ret: { readonly num: number } }
  readonly CONNECT_GET_HOSTNAME: { readonly args: null; readonly ret: { readonly hostname: string } }
  readonly CONNECT_SUPPORTS_FEATURE: { readonly args: { readonly feature: number }; readonly ret: { readonly supported: number } }
  readonly AUTH_LIST: { readonly args: null; readonly ret: { readonly types: readonly number[] } }
  readonly AUTH_POLKIT: { readonly args: null; readonly ret: { readonly complete: number } }
  readonly STORAGE_POOL_DEFINE_XML: { readonly args: { readonly xml: string; readonly flags: number }; readonly ret: { readonly pool: StoragePool } }
  readonly STORAGE_POOL_CREATE: { readonly args: { readonly pool: StoragePool; readonly flags: number }; readonly ret: null }
  readonly STORAGE_POOL_DESTROY: { readonly args: { readonly pool: StoragePool }; readonly ret: null }
  readonly STORAGE_POOL_UNDEFINE: { readonly args: { readonly pool: StoragePool }; readonly ret: null }
  readonly STORAGE_POOL_REFRESH: { readonly args: { readonly pool: StoragePool; readonly flags: number }; readonly ret: null }
  readonly STORAGE_POOL_LOOKUP_BY_NAME: { readonly args: { readonly name: string }; readonly ret: { readonly pool: StoragePool } }
  readonly STORAGE_POOL_LOOKUP_BY_UUID: { readonly args: { readonly uuid: string }; readonly ret: { readonly pool: StoragePool } }
  readonly STORAGE_POOL_LOOKUP_BY_VOLUME: { readonly args: { readonly vol: StorageVol }; readonly ret: { readonly pool: StoragePool } }
  readonly STORAGE_POOL_GET_INFO: { readonly args: { readonly pool: StoragePool }; readonly ret: { readonly state: number; readonly capacity: bigint; readonly allocation: bigint; readonly available: bigint } }
  readonly STORAGE_POOL_GET_XML_DESC: { readonly args: { readonly pool: StoragePool; readonly flags: number }; readonly ret: { readonly xml: string } }
  readonly STORAGE_POOL_GET_AUTOSTART: { readonly args: { readonly pool: StoragePool }; readonly ret: { readonly autostart: number } }
  readonly STORAGE_POOL_SET_AUTOSTART: { readonly args: { readonly pool: StoragePool; readonly autostart: number }; readonly ret: null }
  readonly STORAGE_POOL_NUM_OF_VOLUMES: { readonly args: { readonly pool: StoragePool }; readonly ret: { readonly num: number } }
  readonly STORAGE_POOL_LIST_VOLUMES: { readonly args: { readonly pool: StoragePool; readonly maxnames: number }; readonly ret: { readonly names: readonly string[] } }
  readonly STORAGE_VOL_CREATE_XML: { readonly args: { readonly pool: StoragePool; readonly xml: string; readonly flags: number }; readonly ret: { readonly vol: StorageVol } }
  readonly STORAGE_VOL_DELETE: { readonly args: { readonly vol: StorageVol; readonly flags: number }; readonly ret: null }
  readonly STORAGE_VOL_LOOKUP_BY_NAME: { readonly args: { readonly pool: StoragePool; readonly name: string }; readonly ret: { readonly vol: StorageVol } }
  readonly STORAGE_VOL_LOOKUP_BY_KEY: { readonly args: { readonly key: string }; readonly ret: { readonly vol: StorageVol } }
  readonly STORAGE_VOL_LOOKUP_BY_PATH: { readonly args: { readonly path: string }; readonly ret: { readonly vol: StorageVol } }
  readonly STORAGE_VOL_GET_INFO: { readonly args: { readonly vol: StorageVol }; readonly ret: { readonly type: number; readonly capacity: bigint; readonly allocation: bigint } }
  readonly STORAGE_VOL_GET_XML_DESC: { readonly args: { readonly vol: StorageVol; readonly flags: number }; readonly ret: { readonly xml: string } }
  readonly STORAGE_VOL_GET_PATH: { readonly args: { readonly vol: StorageVol }; readonly ret: { readonly name: string } }
  readonly NODE_GET_FREE_MEMORY: { readonly args: null; readonly ret: { readonly freeMem: bigint } }
  readonly CONNECT_GET_URI: { readonly args: null; readonly ret: { readonly uri: string } }
  readonly STORAGE_VOL_CREATE_XML_FROM: { readonly args: { readonly pool: StoragePool; readonly xml: string; readonly clonevol: StorageVol; readonly flags: number }; readonly ret: { readonly vol: StorageVol } }
  readonly CONNECT_IS_SECURE: { readonly args: null; readonly ret: { readonly secure: number } }
  readonly DOMAIN_IS_ACTIVE: { readonly args: { readonly dom: Domain }; readonly ret: { readonly active: number } }
  readonly DOMAIN_IS_PERSISTENT: { readonly args: { readonly dom: Domain }; readonly ret: { readonly persistent: number } }
  readonly NETWORK_IS_ACTIVE: { readonly args: { readonly net: Network }; readonly ret: { readonly active: number } }
  readonly STORAGE_POOL_IS_ACTIVE: { readonly args: { readonly pool: StoragePool }; readonly ret: { readonly active: number } }
  readonly STORAGE_POOL_IS_PERSISTENT: { readonly args: { readonly pool: StoragePool }; readonly ret: { readonly persistent: number } }
  readonly CONNECT_GET_LIB_VERSION: { readonly args: null; readonly ret: { readonly lib_ver: bigint } }
  readonly DOMAIN_CREATE_WITH_FLAGS: { readonly args: { readonly dom: Domain; readonly flags: number }; readonly ret: { readonly dom: Domain } }
  readonly DOMAIN_IS_UPDATED: { readonly args: { readonly dom: Domain }; readonly ret: { readonly updated: number } }
  readonly STORAGE_VOL_UPLOAD: { readonly args: { readonly vol: StorageVol; readonly offset: bigint; readonly length: bigint; readonly flags: number }; readonly ret: null }
  readonly STORAGE_VOL_DOWNLOAD: { readonly args: { readonly vol: StorageVol; readonly offset: bigint; readonly length: bigint; readonly flags: number }; readonly ret: null }
  readonly DOMAIN_GET_STATE: { readonly args: { readonly dom: Domain; readonly flags: number }; readonly ret: { readonly state: number; readonly reason: number } }
  readonly DOMAIN_UNDEFINE_FLAGS: { readonly args: { readonly dom: Domain; readonly flags: number }; readonly ret: null }
  readonly DOMAIN_DESTROY_FLAGS: { readonly args: { readonly dom: Domain; readonly flags: number }; readonly ret: null }
  readonly DOMAIN_RESET: { readonly args: { readonly dom: Domain; readonly flags: number }; readonly ret: null }
  readonly DOMAIN_SHUTDOWN_FLAGS: { readonly args: { readonly dom: Domain; readonly flags: number }; readonly ret: null }
  readonly STORAGE_VOL_RESIZE: { readonly args: { readonly vol: StorageVol; readonly capacity: bigint; readonly flags: number }; readonly ret: null }
  readonly DOMAIN_SET_METADATA: { readonly args: { readonly dom: Domain; readonly type: number; readonly metadata: string | null; readonly key: string | null; readonly uri: string | null; readonly flags: number }; readonly ret: null }
  readonly DOMAIN_GET_METADATA: { readonly args: { readonly dom: Domain; readonly type: number; readonly uri: string | null; readonly flags: number }; readonly ret: { readonly metadata: string } }
  readonly CONNECT_LIST_ALL_DOMAINS: { readonly args: { readonly need_results: number; readonly flags: number }; readonly ret: { readonly domains: readonly Domain[]; readonly ret: number } }
  readonly DOMAIN_GET_HOSTNAME: { readonly args: { readonly dom: Domain; readonly flags: number }; readonly ret: { readonly hostname: string } }
  readonly CONNECT_LIST_ALL_STORAGE_POOLS: { readonly args: { readonly need_results: number; readonly flags: number }; readonly ret: { readonly pools: readonly StoragePool[]; readonly ret: number } }
  readonly STORAGE_POOL_LIST_ALL_VOLUMES: { readonly args: { readonly pool: StoragePool; readonly need_results: number; readonly flags: number }; readonly ret: { readonly vols: readonly StorageVol[]; readonly ret: number } }
  readonly CONNECT_DOMAIN_EVENT_CALLBACK_REGISTER_ANY: { readonly args: { readonly eventID: number; readonly dom: Domain | null }; readonly ret: { readonly callbackID: number } }
  readonly CONNECT_DOMAIN_EVENT_CALLBACK_DEREGISTER_ANY: { readonly args: { readonly callbackID: number }; readonly ret: null }
  readonly DOMAIN_GET_TIME: { readonly args: { readonly dom: Domain; readonly flags: number }; readonly ret: { readonly seconds: bigint; readonly nseconds: number } }
  readonly CONNECT_GET_DOMAIN_CAPABILITIES: { readonly args: { readonly emulatorbin: string | null; readonly arch: string | null; readonly machine: string | null; readonly virttype: string | null; readonly flags: number }; readonly ret: { readonly capabilities: string } }
  readonly CONNECT_GET_ALL_DOMAIN_STATS: { readonly args: { readonly doms: readonly Domain[]; readonly stats: number; readonly flags: number }; readonly ret: { readonly retStats: readonly DomainStatsRecord[] } }
  readonly DOMAIN_DEFINE_XML_FLAGS: { readonly args: { readonly xml: string; readonly flags: number }; readonly ret: { readonly dom: Domain } }
  readonly DOMAIN_INTERFACE_ADDRESSES: { readonly args: { readonly dom: Domain; readonly source: number; readonly flags: number }; readonly ret: { readonly ifaces: readonly DomainInterface[] } }
  readonly CONNECT_REGISTER_CLOSE_CALLBACK: { readonly args: null; readonly ret: null }
  readonly CONNECT_UNREGISTER_CLOSE_CALLBACK: { readonly args: null; readonly ret: null }
  readonly CONNECT_STORAGE_POOL_EVENT_REGISTER_ANY: { readonly args: { readonly eventID: number; readonly pool: StoragePool | null }; readonly ret: { readonly callbackID: number } }
  readonly CONNECT_STORAGE_POOL_EVENT_DEREGISTER_ANY: { readonly args: { readonly callbackID: number }; readonly ret: null }
  readonly STORAGE_VOL_GET_INFO_FLAGS: { readonly args: { readonly vol: StorageVol; readonly flags: number }; readonly ret: { readonly type: number; readonly capacity: bigint; readonly allocation: bigint } }
  readonly DOMAIN_GET_GUEST_INFO: { readonly args: { readonly dom: Domain; readonly types: number; readonly flags: number }; readonly ret: { readonly params: readonly TypedParam[] } }
  readonly DOMAIN_AGENT_SET_RESPONSE_TIMEOUT: { readonly args: { readonly dom: Domain; readonly timeout: number; readonly flags: number }; readonly ret: { readonly result: number } }
  readonly DOMAIN_AGENT_COMMAND: { readonly args: { readonly dom: Domain; readonly cmd: string; readonly timeout: number; readonly flags: number }; readonly ret: { readonly result: string | null } }
}

export type ProcedureName = keyof Procedures

export const procedures: { readonly [P in ProcedureName]: ProcedureDescription } = {
  CONNECT_OPEN: { program: 'REMOTE', number: 1, args: { kind: 'struct', fields: [{ name: 'name', type: { kind: 'optional', of: { kind: 'string' } } }, { name: 'flags', type: { kind: 'uint' } }] }, ret: null, stream: null },
  CONNECT_CLOSE: { program: 'REMOTE', number: 2, args: null, ret: null, stream: null },
  CONNECT_GET_TYPE: { program: 'REMOTE', number: 3, args: null, ret: { kind: 'struct', fields: [{ name: 'type', type: { kind: 'string' } }] }, stream: null },
  CONNECT_GET_VERSION: { program: 'REMOTE', number: 4, args: null, ret: { kind: 'struct', fields: [{ name: 'hv_ver', type: { kind: 'uhyper' } }] }, stream: null },
  CONNECT_GET_MAX_VCPUS: { program: 'REMOTE', number: 5, args: { kind: 'struct', fields: [{ name: 'type', type: { kind: 'optional', of: { kind: 'string' } } }] }, ret: { kind: 'struct', fields: [{ name: 'max_vcpus', type: { kind: 'int' } }] }, stream: null },
  NODE_GET_INFO: { program: 'REMOTE', number: 6, args: null, ret: { kind: 'struct', fields: [{ name: 'model', type: { kind: 'chars', length: 32 } }, { name: 'memory', type: { kind: 'uhyper' } }, { name: 'cpus', type: { kind: 'int' } }, { name: 'mhz', type: { kind: 'int' } }, { name: 'nodes', type: { kind: 'int' } }, { name: 'sockets', type: { kind: 'int' } }, { name: 'cores', type: { kind: 'int' } }, { name: 'threads', type: { kind: 'int' } }] }, stream: null },
  CONNECT_GET_CAPABILITIES: { program: 'REMOTE', number: 7, args: null, ret: { kind: 'struct', fields: [{ name: 'capabilities', type: { kind: 'string' } }] }, stream: null },
  DOMAIN_CREATE: { program: 'REMOTE', number: 9, args: { kind: 'struct', fields: [{ name: 'dom', type: domainStruct }] }, ret: null, stream: null },
  DOMAIN_CREATE_XML: { program: 'REMOTE', number: 10, args: { kind: 'struct', fields: [{ name: 'xml_desc', type: { kind: 'string' } }, { name: 'flags', type: { kind: 'uint' } }] }, ret: { kind: 'struct', fields: [{ name: 'dom', type: domainStruct }] }, stream: null },
  DOMAIN_DEFINE_XML: { program: 'REMOTE', number: 11, args: { kind: 'struct', fields: [{ name: 'xml', type: { kind: 'string' } }] }, ret: { kind: 'struct', fields: [{ name: 'dom', type: domainStruct }] }, stream: null },
  DOMAIN_DESTROY: { program: 'REMOTE', number: 12, args: { kind: 'struct', fields: [{ name: 'dom', type: domainStruct }] }, ret: null, stream: null },
  DOMAIN_GET_XML_DESC: { program: 'REMOTE', number: 14, args: { kind: 'struct', fields: [{ name: 'dom', type: domainStruct }, { name: 'flags', type: { kind: 'uint' } }] }, ret: { kind: 'struct', fields: [{ name: 'xml', type: { kind: 'string' } }] }, stream: null },
  DOMAIN_GET_AUTOSTART: { program: 'REMOTE', number: 15, args: { kind: 'struct', fields: [{ name: 'dom', type: domainStruct }] }, ret: { kind: 'struct', fields: [{ name: 'autostart', type: { kind: 'int' } }] }, stream: null },
  DOMAIN_GET_INFO: { program: 'REMOTE', number: 16, args: { kind: 'struct', fields: [{ name: 'dom', type: domainStruct }] }, ret: { kind: 'struct', fields: [{ name: 'state', type: { kind: 'uint' } }, { name: 'maxMem', type: { kind: 'uhyper' } }, { name: 'memory', type: { kind: 'uhyper' } }, { name: 'nrVirtCpu', type: { kind: 'uint' } }, { name: 'cpuTime', type: { kind: 'uhyper' } }] }, stream: null },
  DOMAIN_LOOKUP_BY_ID: { program: 'REMOTE', number: 22, args: { kind: 'struct', fields: [{ name: 'id', type: { kind: 'int' } }] }, ret: { kind: 'struct', fields: [{ name: 'dom', type: domainStruct }] }, stream: null },
  DOMAIN_LOOKUP_BY_NAME: { program: 'REMOTE', number: 23, args: { kind: 'struct', fields: [{ name: 'name', type: { kind: 'string' } }] }, ret: { kind: 'struct', fields: [{ name: 'dom', type: domainStruct }] }, stream: null },
  DOMAIN_LOOKUP_BY_UUID: { program: 'REMOTE', number: 24, args: { kind: 'struct', fields: [{ name: 'uuid', type: { kind: 'uuid' } }] }, ret: { kind: 'struct', fields: [{ name: 'dom', type: domainStruct }] }, stream: null },
  DOMAIN_REBOOT: { program: 'REMOTE', number: 27, args: { kind: 'struct', fields: [{ name: 'dom', type: domainStruct }, { name: 'flags', type: { kind: 'uint' } }] }, ret: null, stream: null },
  DOMAIN_RESUME: { program: 'REMOTE', number: 28, args: { kind: 'struct', fields: [{ name: 'dom', type: domainStruct }] }, ret: null, stream: null },
  DOMAIN_SET_AUTOSTART: { program: 'REMOTE', number: 29, args: { kind: 'struct', fields: [{ name: 'dom', type: domainStruct }, { name: 'autostart', type: { kind: 'int' } }] }, ret: null, stream: null },
  DOMAIN_SHUTDOWN: { program: 'REMOTE', number: 33, args: { kind: 'struct', fields: [{ name: 'dom', type: domainStruct }] }, ret: null, stream: null },
  DOMAIN_SUSPEND: { program: 'REMOTE', number: 34, args: { kind: 'struct', fields: [{ name: 'dom', type: domainStruct }] }, ret: null, stream: null },
  DOMAIN_UNDEFINE: { program: 'REMOTE', number: 35, args: { kind: 'struct', fields: [{ name: 'dom', type: domainStruct }] }, ret: null, stream: null },
  CONNECT_LIST_DOMAINS: { program: 'REMOTE', number: 37, args: { kind: 'struct', fields: [{ name: 'maxids', type: { kind: 'int' } }] }, ret: { kind: 'struct', fields: [{ name: 'ids', type: { kind: 'array', of: { kind: 'int' }, max: 16384 } }] }, stream: null },
  NETWORK_LOOKUP_BY_NAME: { program: 'REMOTE', number: 46, args: { kind: 'struct', fields: [{ name: 'name', type: { kind: 'string' } }] }, ret: { kind: 'struct', fields: [{ name: 'net', type: networkStruct }] }, stream: null },
  CONNECT_NUM_OF_DOMAINS: { program: 'REMOTE', number: 51, args: null, ret: { kind: 'struct', fields: [{ name: 'num', type: { kind: 'int' } }] }, stream: null },
  CONNECT_GET_HOSTNAME: { program: 'REMOTE', number: 59, args: null, ret: { kind: 'struct', fields: [{ name: 'hostname', type: { kind: 'string' } }] }, stream: null },
  CONNECT_SUPPORTS_FEATURE: { program: 'REMOTE', number: 60, args: { kind: 'struct', fields: [{ name: 'feature', type: { kind: 'int' } }] }, ret: { kind: 'struct', fields: [{ name: 'supported', type: { kind: 'int' } }] }, stream: null },
  AUTH_LIST: { program: 'REMOTE', number: 66, args: null, ret: { kind: 'struct', fields: [{ name: 'types', type: { kind: 'array', of: { kind: 'int' }, max: 20 } }] }, stream: null },
  AUTH_POLKIT: { program: 'REMOTE', number: 70, args: null, ret: { kind: 'struct', fields: [{ name: 'complete', type: { kind: 'int' } }] }, stream: null },
  STORAGE_POOL_DEFINE_XML: { program: 'REMOTE', number: 77, args: { kind: 'struct', fields: [{ name: 'xml', type: { kind: 'string' } }, { name: 'flags', type: { kind: 'uint' } }] }, ret: { kind: 'struct', fields: [{ name: 'pool', type: storagePoolStruct }] }, stream: null },
  STORAGE_POOL_CREATE: { program: 'REMOTE', number: 78, args: { kind: 'struct', fields: [{ name: 'pool', type: storagePoolStruct }, { name: 'flags', type: { kind: 'uint' } }] }, ret: null, stream: null },
  STORAGE_POOL_DESTROY: { program: 'REMOTE', number: 80, args: { kind: 'struct', fields: [{ name: 'pool', type: storagePoolStruct }] }, ret: null, stream: null },
  STORAGE_POOL_UNDEFINE: { program: 'REMOTE', number: 82, args: { kind: 'struct', fields: [{ name: 'pool', type: storagePoolStruct }] }, ret: null, stream: null },
  STORAGE_POOL_REFRESH: { program: 'REMOTE', number: 83, args: { kind: 'struct', fields: [{ name: 'pool', type: storagePoolStruct }, { name: 'flags', type: { kind: 'uint' } }] }, ret: null, stream: null },
  STORAGE_POOL_LOOKUP_BY_NAME: { program: 'REMOTE', number: 84, args: { kind: 'struct', fields: [{ name: 'name', type: { kind: 'string' } }] }, ret: { kind: 'struct', fields: [{ name: 'pool', type: storagePoolStruct }] }, stream: null },
  STORAGE_POOL_LOOKUP_BY_UUID: { program: 'REMOTE', number: 85, args: { kind: 'struct', fields: [{ name: 'uuid', type: { kind: 'uuid' } }] }, ret: { kind: 'struct', fields: [{ name: 'pool', type: storagePoolStruct }] }, stream: null },
  STORAGE_POOL_LOOKUP_BY_VOLUME: { program: 'REMOTE', number: 86, args: { kind: 'struct', fields: [{ name: 'vol', type: storageVolStruct }] }, ret: { kind: 'struct', fields: [{ name: 'pool', type: storagePoolStruct }] }, stream: null },
  STORAGE_POOL_GET_INFO: { program: 'REMOTE', number: 87, args: { kind: 'struct', fields: [{ name: 'pool', type: storagePoolStruct }] }, ret: { kind: 'struct', fields: [{ name: 'state', type: { kind: 'uint' } }, { name: 'capacity', type: { kind: 'uhyper' } }, { name: 'allocation', type: { kind: 'uhyper' } }, { name: 'available', type: { kind: 'uhyper' } }] }, stream: null },
  STORAGE_POOL_GET_XML_DESC: { program: 'REMOTE', number: 88, args: { kind: 'struct', fields: [{ name: 'pool', type: storagePoolStruct }, { name: 'flags', type: { kind: 'uint' } }] }, ret: { kind: 'struct', fields: [{ name: 'xml', type: { kind: 'string' } }] }, stream: null },
  STORAGE_POOL_GET_AUTOSTART: { program: 'REMOTE', number: 89, args: { kind: 'struct', fields: [{ name: 'pool', type: storagePoolStruct }] }, ret: { kind: 'struct', fields: [{ name: 'autostart', type: { kind: 'int' } }] }, stream: null },
  STORAGE_POOL_SET_AUTOSTART: { program: 'REMOTE', number: 90, args: { kind: 'struct', fields: [{ name: 'pool', type: storagePoolStruct }, { name: 'autostart', type: { kind: 'int' } }] }, ret: null, stream: null },
  STORAGE_POOL_NUM_OF_VOLUMES: { program: 'REMOTE', number: 91, args: { kind: 'struct', fields: [{ name: 'pool', type: storagePoolStruct }] }, ret: { kind: 'struct', fields: [{ name: 'num', type: { kind: 'int' } }] }, stream: null },
  STORAGE_POOL_LIST_VOLUMES: { program: 'REMOTE', number: 92, args: { kind: 'struct', fields: [{ name: 'pool', type: storagePoolStruct }, { name: 'maxnames', type: { kind: 'int' } }] }, ret: { kind: 'struct', fields: [{ name: 'names', type: { kind: 'array', of: { kind: 'string' }, max: 16384 } }] }, stream: null },
  STORAGE_VOL_CREATE_XML: { program: 'REMOTE', number: 93, args: { kind: 'struct', fields: [{ name: 'pool', type: storagePoolStruct }, { name: 'xml', type: { kind: 'string' } }, { name: 'flags', type: { kind: 'uint' } }] }, ret: { kind: 'struct', fields: [{ name: 'vol', type: storageVolStruct }] }, stream: null },
  STORAGE_VOL_DELETE: { program: 'REMOTE', number: 94, args: { kind: 'struct', fields: [{ name: 'vol', type: storageVolStruct }, { name: 'flags', type: { kind: 'uint' } }] }, ret: null, stream: null },
  STORAGE_VOL_LOOKUP_BY_NAME: { program: 'REMOTE', number: 95, args: { kind: 'struct', fields: [{ name: 'pool', type: storagePoolStruct }, { name: 'name', type: { kind: 'string' } }] }, ret: { kind: 'struct', fields: [{ name: 'vol', type: storageVolStruct }] }, stream: null },
  STORAGE_VOL_LOOKUP_BY_KEY: { program: 'REMOTE', number: 96, args: { kind: 'struct', fields: [{ name: 'key', type: { kind: 'string' } }] }, ret: { kind: 'struct', fields: [{ name: 'vol', type: storageVolStruct }] }, stream: null },
  STORAGE_VOL_LOOKUP_BY_PATH: { program: 'REMOTE', number: 97, args: { kind: 'struct', fields: [{ name: 'path', type: { kind: 'string' } }] }, ret: { kind: 'struct', fields: [{ name: 'vol', type: storageVolStruct }] }, stream: null },
  STORAGE_VOL_GET_INFO: { program: 'REMOTE', number: 98, args: { kind: 'struct', fields: [{ name: 'vol', type: storageVolStruct }] }, ret: { kind: 'struct', fields: [{ name: 'type', type: { kind: 'int' } }, { name: 'capacity', type: { kind: 'uhyper' } }, { name: 'allocation', type: { kind: 'uhyper' } }] }, stream: null },
  STORAGE_VOL_GET_XML_DESC: { program: 'REMOTE', number: 99, args: { kind: 'struct', fields: [{ name: 'vol', type: storageVolStruct }, { name: 'flags', type: { kind: 'uint' } }] }, ret: { kind: 'struct', fields: [{ name: 'xml', type: { kind: 'string' } }] }, stream: null },
  STORAGE_VOL_GET_PATH: { program: 'REMOTE', number: 100, args: { kind: 'struct', fields: [{ name: 'vol', type: storageVolStruct }] }, ret: { kind: 'struct', fields: [{ name: 'name', type: { kind: 'string' } }] }, stream: null },
  NODE_GET_FREE_MEMORY: { program: 'REMOTE', number: 102, args: null, ret: { kind: 'struct', fields: [{ name: 'freeMem', type: { kind: 'uhyper' } }] }, stream: null },
  CONNECT_GET_URI: { program: 'REMOTE', number: 110, args: null, ret: { kind: 'struct', fields: [{ name: 'uri', type: { kind: 'string' } }] }, stream: null },
  STORAGE_VOL_CREATE_XML_FROM: { program: 'REMOTE', number: 125, args: { kind: 'struct', fields: [{ name: 'pool', type: storagePoolStruct }, { name: 'xml', type: { kind: 'string' } }, { name: 'clonevol', type: storageVolStruct }, { name: 'flags', type: { kind: 'uint' } }] }, ret: { kind: 'struct', fields: [{ name: 'vol', type: storageVolStruct }] }, stream: null },
  CONNECT_IS_SECURE: { program: 'REMOTE', number: 149, args: null, ret: { kind: 'struct', fields: [{ name: 'secure', type: { kind: 'int' } }] }, stream: null },
  DOMAIN_IS_ACTIVE: { program: 'REMOTE', number: 150, args: { kind: 'struct', fields: [{ name: 'dom', type: domainStruct }] }, ret: { kind: 'struct', fields: [{ name: 'active', type: { kind: 'int' } }] }, stream: null },
  DOMAIN_IS_PERSISTENT: { program: 'REMOTE', number: 151, args: { kind: 'struct', fields: [{ name: 'dom', type: domainStruct }] }, ret: { kind: 'struct', fields: [{ name: 'persistent', type: { kind: 'int' } }] }, stream: null },
  NETWORK_IS_ACTIVE: { program: 'REMOTE', number: 152, args: { kind: 'struct', fields: [{ name: 'net', type: networkStruct }] }, ret: { kind: 'struct', fields: [{ name: 'active', type: { kind: 'int' } }] }, stream: null },
  STORAGE_POOL_IS_ACTIVE: { program: 'REMOTE', number: 154, args: { kind: 'struct', fields: [{ name: 'pool', type: storagePoolStruct }] }, ret: { kind: 'struct', fields: [{ name: 'active', type: { kind: 'int' } }] }, stream: null },
  STORAGE_POOL_IS_PERSISTENT: { program: 'REMOTE', number: 155, args: { kind: 'struct', fields: [{ name: 'pool', type: storagePoolStruct }] }, ret: { kind: 'struct', fields: [{ name: 'persistent', type: { kind: 'int' } }] }, stream: null },
  CONNECT_GET_LIB_VERSION: { program: 'REMOTE', number: 157, args: null, ret: { kind: 'struct', fields: [{ name: 'lib_ver', type: { kind: 'uhyper' } }] }, stream: null },
  DOMAIN_CREATE_WITH_FLAGS: { program: 'REMOTE', number: 196, args: { kind: 'struct', fields: [{ name: 'dom', type: domainStruct }, { name: 'flags', type: { kind: 'uint' } }] }, ret: { kind: 'struct', fields: [{ name: 'dom', type: domainStruct }] }, stream: null },
  DOMAIN_IS_UPDATED: { program: 'REMOTE', number: 202, args: { kind: 'struct', fields: [{ name: 'dom', type: domainStruct }] }, ret: { kind: 'struct', fields: [{ name: 'updated', type: { kind: 'int' } }] }, stream: null },
  STORAGE_VOL_UPLOAD: { program: 'REMOTE', number: 208, args: { kind: 'struct', fields: [{ name: 'vol', type: storageVolStruct }, { name: 'offset', type: { kind: 'uhyper' } }, { name: 'length', type: { kind: 'uhyper' } }, { name: 'flags', type: { kind: 'uint' } }] }, ret: null, stream: 'upload' },
  STORAGE_VOL_DOWNLOAD: { program: 'REMOTE', number: 209, args: { kind: 'struct', fields: [{ name: 'vol', type: storageVolStruct }, { name: 'offset', type: { kind: 'uhyper' } }, { name: 'length', type: { kind: 'uhyper' } }, { name: 'flags', type: { kind: 'uint' } }] }, ret: null, stream: 'download' },
  DOMAIN_GET_STATE: { program: 'REMOTE', number: 212, args: { kind: 'struct', fields: [{ name: 'dom', type: domainStruct }, { name: 'flags', type: { kind: 'uint' } }] }, ret: { kind: 'struct', fields: [{ name: 'state', type: { kind: 'int' } }, { name: 'reason', type: { kind: 'int' } }] }, stream: null },
  DOMAIN_UNDEFINE_FLAGS: { program: 'REMOTE', number: 231, args: { kind: 'struct', fields: [{ name: 'dom', type: domainStruct }, { name: 'flags', type: { kind: 'uint' } }] }, ret: null, stream: null },
  DOMAIN_DESTROY_FLAGS: { program: 'REMOTE', number: 234, args: { kind: 'struct', fields: [{ name: 'dom', type: domainStruct }, { name: 'flags', type: { kind: 'uint' } }] }, ret: null, stream: null },
  DOMAIN_RESET: { program: 'REMOTE', number: 245, args: { kind: 'struct', fields: [{ name: 'dom', type: domainStruct }, { name: 'flags', type: { kind: 'uint' } }] }, ret: null, stream: null },
  DOMAIN_SHUTDOWN_FLAGS: { program: 'REMOTE', number: 258, args: { kind: 'struct', fields: [{ name: 'dom', type: domainStruct }, { name: 'flags', type: { kind: 'uint' } }] }, ret: null, stream: null },
  STORAGE_VOL_RESIZE: { program: 'REMOTE', number: 260, args: { kind: 'struct', fields: [{ name: 'vol', type: storageVolStruct }, { name: 'capacity', type: { kind: 'uhyper' } }, { name: 'flags', type: { kind: 'uint' } }] }, ret: null, stream: null },
  DOMAIN_SET_METADATA: { program: 'REMOTE', number: 264, args: { kind: 'struct', fields: [{ name: 'dom', type: domainStruct }, { name: 'type', type: { kind: 'int' } }, { name: 'metadata', type: { kind: 'optional', of: { kind: 'string' } } }, { name: 'key', type: { kind: 'optional', of: { kind: 'string' } } }, { name: 'uri', type: { kind: 'optional', of: { kind: 'string' } } }, { name: 'flags', type: { kind: 'uint' } }] }, ret: null, stream: null },
  DOMAIN_GET_METADATA: { program: 'REMOTE', number: 265, args: { kind: 'struct', fields: [{ name: 'dom', type: domainStruct }, { name: 'type', type: { kind: 'int' } }, { name: 'uri', type: { kind: 'optional', of: { kind: 'string' } } }, { name: 'flags', type: { kind: 'uint' } }] }, ret: { kind: 'struct', fields: [{ name: 'metadata', type: { kind: 'string' } }] }, stream: null },
  CONNECT_LIST_ALL_DOMAINS: { program: 'REMOTE', number: 273, args: { kind: 'struct', fields: [{ name: 'need_results', type: { kind: 'int' } }, { name: 'flags', type: { kind: 'uint' } }] }, ret: { kind: 'struct', fields: [{ name: 'domains', type: { kind: 'array', of: domainStruct, max: 16384 } }, { name: 'ret', type: { kind: 'uint' } }] }, stream: null },
  DOMAIN_GET_HOSTNAME: { program: 'REMOTE', number: 277, args: { kind: 'struct', fields: [{ name: 'dom', type: domainStruct }, { name: 'flags', type: { kind: 'uint' } }] }, ret: { kind: 'struct', fields: [{ name: 'hostname', type: { kind: 'string' } }] }, stream: null },
  CONNECT_LIST_ALL_STORAGE_POOLS: { program: 'REMOTE', number: 281, args: { kind: 'struct', fields: [{ name: 'need_results', type: { kind: 'int' } }, { name: 'flags', type: { kind: 'uint' } }] }, ret: { kind: 'struct', fields: [{ name: 'pools', type: { kind: 'array', of: storagePoolStruct, max: 16384 } }, { name: 'ret', type: { kind: 'uint' } }] }, stream: null },
  STORAGE_POOL_LIST_ALL_VOLUMES: { program: 'REMOTE', number: 282, args: { kind: 'struct', fields: [{ name: 'pool', type: storagePoolStruct }, { name: 'need_results', type: { kind: 'int' } }, { name: 'flags', type: { kind: 'uint' } }] }, ret: { kind: 'struct', fields: [{ name: 'vols', type: { kind: 'array', of: storageVolStruct, max: 16384 } }, { name: 'ret', type: { kind: 'uint' } }] }, stream: null },
  CONNECT_DOMAIN_EVENT_CALLBACK_REGISTER_ANY: { program: 'REMOTE', number: 316, args: { kind: 'struct', fields: [{ name: 'eventID', type: { kind: 'int' } }, { name: 'dom', type: { kind: 'optional', of: domainStruct } }] }, ret: { kind: 'struct', fields: [{ name: 'callbackID', type: { kind: 'int' } }] }, stream: null },
  CONNECT_DOMAIN_EVENT_CALLBACK_DEREGISTER_ANY: { program: 'REMOTE', number: 317, args: { kind: 'struct', fields: [{ name: 'callbackID', type: { kind: 'int' } }] }, ret: null, stream: null },
  DOMAIN_GET_TIME: { program: 'REMOTE', number: 337, args: { kind: 'struct', fields: [{ name: 'dom', type: domainStruct }, { name: 'flags', type: { kind: 'uint' } }] }, ret: { kind: 'struct', fields: [{ name: 'seconds', type: { kind: 'hyper' } }, { name: 'nseconds', type: { kind: 'uint' } }] }, stream: null },
  CONNECT_GET_DOMAIN_CAPABILITIES: { program: 'REMOTE', number: 342, args: { kind: 'struct', fields: [{ name: 'emulatorbin', type: { kind: 'optional', of: { kind: 'string' } } }, { name: 'arch', type: { kind: 'optional', of: { kind: 'string' } } }, { name: 'machine', type: { kind: 'optional', of: { kind: 'string' } } }, { name: 'virttype', type: { kind: 'optional', of: { kind: 'string' } } }, { name: 'flags', type: { kind: 'uint' } }] }, ret: { kind: 'struct', fields: [{ name: 'capabilities', type: { kind: 'string' } }] }, stream: null },
  CONNECT_GET_ALL_DOMAIN_STATS: { program: 'REMOTE', number: 344, args: { kind: 'struct', fields: [{ name: 'doms', type: { kind: 'array', of: domainStruct, max: 16384 } }, { name: 'stats', type: { kind: 'uint' } }, { name: 'flags', type: { kind: 'uint' } }] }, ret: { kind: 'struct', fields: [{ name: 'retStats', type: { kind: 'array', of: domainStatsRecordStruct, max: 16384 } }] }, stream: null },
  DOMAIN_DEFINE_XML_FLAGS: { program: 'REMOTE', number: 350, args: { kind: 'struct', fields: [{ name: 'xml', type: { kind: 'string' } }, { name: 'flags', type: { kind: 'uint' } }] }, ret: { kind: 'struct', fields: [{ name: 'dom', type: domainStruct }] }, stream: null },
  DOMAIN_INTERFACE_ADDRESSES: { program: 'REMOTE', number: 353, args: { kind: 'struct', fields: [{ name: 'dom', type: domainStruct }, { name: 'source', type: { kind: 'uint' } }, { name: 'flags', type: { kind: 'uint' } }] }, ret: { kind: 'struct', fields: [{ name: 'ifaces', type: { kind: 'array', of: domainInterfaceStruct, max: 2048 } }] }, stream: null },
  CONNECT_REGISTER_CLOSE_CALLBACK: { program: 'REMOTE', number: 360, args: null, ret: null, stream: null },
  CONNECT_UNREGISTER_CLOSE_CALLBACK: { program: 'REMOTE', number: 361, args: null, ret: null, stream: null },
  CONNECT_STORAGE_POOL_EVENT_REGISTER_ANY: { program: 'REMOTE', number: 368, args: { kind: 'struct', fields: [{ name: 'eventID', type: { kind: 'int' } }, { name: 'pool', type: { kind: 'optional', of: storagePoolStruct } }] }, ret: { kind: 'struct', fields: [{ name: 'callbackID', type: { kind: 'int' } }] }, stream: null },
  CONNECT_STORAGE_POOL_EVENT_DEREGISTER_ANY: { program: 'REMOTE', number: 369, args: { kind: 'struct', fields: [{ name: 'callbackID', type: { kind: 'int' } }] }, ret: null, stream: null },
  STORAGE_VOL_GET_INFO_FLAGS: { program: 'REMOTE', number: 378, args: { kind: 'struct', fields: [{ name: 'vol', type: storageVolStruct }, { name: 'flags', type: { kind: 'uint' } }] }, ret: { kind: 'struct', fields: [{ name: 'type', type: { kind: 'int' } }, { name: 'capacity', type: { kind: 'uhyper' } }, { name: 'allocation', type: { kind: 'uhyper' } }] }, stream: null },
  DOMAIN_GET_GUEST_INFO: { program: 'REMOTE', number: 418, args: { kind: 'struct', fields: [{ name: 'dom', type: domainStruct }, { name: 'types', type: { kind: 'uint' } }, { name: 'flags', type: { kind: 'uint' } }] }, ret: { kind: 'struct', fields: [{ name: 'params', type: { kind: 'array', of: typedParamStruct, max: 2048 } }] }, stream: null },
  DOMAIN_AGENT_SET_RESPONSE_TIMEOUT: { program: 'REMOTE', number: 420, args: { kind: 'struct', fields: [{ name: 'dom', type: domainStruct }, { name: 'timeout', type: { kind: 'int' } }, { name: 'flags', type: { kind: 'uint' } }] }, ret: { kind: 'struct', fields: [{ name: 'result', type: { kind: 'int' } }] }, stream: null },
  DOMAIN_AGENT_COMMAND: { program: 'QEMU', number: 3, args: { kind: 'struct', fields: [{ name: 'dom', type: domainStruct }, { name: 'cmd', type: { kind: 'string' } }, { name: 'timeout', type: { kind: 'int' } }, { name: 'flags', type: { kind: 'uint' } }] }, ret: { kind: 'struct', fields: [{ name: 'result', type: { kind: 'optional', of: { kind: 'string' } } }] }, stream: null },
}

/** Message by event. */
export interface Events {
  readonly DOMAIN_EVENT_CALLBACK_LIFECYCLE: { readonly callbackID: number; readonly msg: DomainLifecycle }
  readonly DOMAIN_EVENT_CALLBACK_REBOOT: { readonly callbackID: number; readonly msg: DomainReboot }
  readonly DOMAIN_EVENT_CALLBACK_IO_ERROR: { readonly callbackID: number; readonly msg: DomainIoError }
  readonly DOMAIN_EVENT_CALLBACK_CONTROL_ERROR: { readonly callbackID: number; readonly msg: DomainControlError }
  readonly DOMAIN_EVENT_CALLBACK_AGENT_LIFECYCLE: { readonly callbackID: number; readonly dom: Domain; readonly state: number; readonly reason: number }
  readonly CONNECT_EVENT_CONNECTION_CLOSED: { readonly reason: number }
  readonly STORAGE_POOL_EVENT_LIFECYCLE: { readonly callbackID: number; readonly pool: StoragePool; readonly event: number; readonly detail: number }
  readonly STORAGE_POOL_EVENT_REFRESH: { readonly callbackID: number; readonly pool: StoragePool }
  readonly DOMAIN_EVENT_CALLBACK_METADATA_CHANGE: { readonly callbackID: number; readonly dom: Domain; readonly type: number; readonly nsuri: string | null }
}

export type EventName = keyof Events

export const events: { readonly [E in EventName]: EventDescription } = {
  DOMAIN_EVENT_CALLBACK_LIFECYCLE: { number: 318, family: 'domain', eventID: 0, msg: { kind: 'struct', fields: [{ name: 'callbackID', type: { kind: 'int' } }, { name: 'msg', type: domainLifecycleStruct }] } },
  DOMAIN_EVENT_CALLBACK_REBOOT: { number: 319, family: 'domain', eventID: 1, msg: { kind: 'struct', fields: [{ name: 'callbackID', type: { kind: 'int' } }, { name: 'msg', type: domainRebootStruct }] } },
  DOMAIN_EVENT_CALLBACK_IO_ERROR: { number: 322, family: 'domain', eventID: 4, msg: { kind: 'struct', fields: [{ name: 'callbackID', type: { kind: 'int' } }, { name: 'msg', type: domainIoErrorStruct }] } },
  DOMAIN_EVENT_CALLBACK_CONTROL_ERROR: { number: 325, family: 'domain', eventID: 7, msg: { kind: 'struct', fields: [{ name: 'callbackID', type: { kind: 'int' } }, { name: 'msg', type: domainControlErrorStruct }] } },
  DOMAIN_EVENT_CALLBACK_AGENT_LIFECYCLE: { number: 348, family: 'domain', eventID: 18, msg: { kind: 'struct', fields: [{ name: 'callbackID', type: { kind: 'int' } }, { name: 'dom', type: domainStruct }, { name: 'state', type: { kind: 'int' } }, { name: 'reason', type: { kind: 'int' } }] } },
  CONNECT_EVENT_CONNECTION_CLOSED: { number: 362, family: 'connection', eventID: null, msg: { kind: 'struct', fields: [{ name: 'reason', type: { kind: 'int' } }] } },
  STORAGE_POOL_EVENT_LIFECYCLE: { number: 370, family: 'storagePool', eventID: 0, msg: { kind: 'struct', fields: [{ name: 'callbackID', type: { kind: 'int' } }, { name: 'pool', type: storagePoolStruct }, { name: 'event', type: { kind: 'int' } }, { name: 'detail', type: { kind: 'int' } }] } },
  STORAGE_POOL_EVENT_REFRESH: { number: 373, family: 'storagePool', eventID: 1, msg: { kind: 'struct', fields: [{ name: 'callbackID', type: { kind: 'int' } }, { name: 'pool', type: storagePoolStruct }] } },
  DOMAIN_EVENT_CALLBACK_METADATA_CHANGE: { number: 379, family: 'domain', eventID: 23, msg: { kind: 'struct', fields: [{ name: 'callbackID', type: { kind: 'int' } }, { name: 'dom', type: domainStruct }, { name: 'type', type: { kind: 'int' } }, { name: 'nsuri', type: { kind: 'optional', of: { kind: 'string' } } }] } },
}

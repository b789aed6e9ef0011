// Procedures about the connection itself and the host.
import { fail } from '../model/errors.ts'
import type { Call, Handlers } from './handler.ts'

const keepaliveFeature = 10
/** Features that libvirtd 9.0 was heard to have. */
const features = new Set([9, keepaliveFeature, 14, 15, 16])
export const uri = 'qemu:///system'
const readOnlyFlag = 1

function requireOpen(call: Call): void {
  if (!call.open) throw fail.internal('hypervisor connection not open')
}

export const connectProcedures: Handlers = {
  AUTH_LIST: () => ({ types: [0] }),

  CONNECT_OPEN: (call, { name, flags }) => {
    if (call.open) {
      // The daemon drops the first one too.
      call.open = false
      throw fail.internal('connection already open')
    }
    if (name === null) throw fail.internal('connection not open')
    if (name !== uri) throw fail.noDriver(name)
    call.open = true
    call.readOnly = (flags & readOnlyFlag) !== 0
    return null
  },

  CONNECT_CLOSE: (call) => {
    call.hangUp()
    return null
  },

  CONNECT_SUPPORTS_FEATURE: (call, { feature }) => {
    if (feature === keepaliveFeature) {
      call.keepalive = true
      return { supported: 1 }
    }
    requireOpen(call)
    return { supported: features.has(feature) ? 1 : 0 }
  },

  CONNECT_GET_TYPE: () => ({ type: 'QEMU' }),
  CONNECT_GET_VERSION: () => ({ hv_ver: 7_002_022n }),
  CONNECT_GET_LIB_VERSION: () => ({ lib_ver: 9_000_000n }),
  CONNECT_GET_HOSTNAME: () => ({ hostname: 'libvirt-stub' }),
  CONNECT_GET_URI: () => ({ uri }),
  CONNECT_IS_SECURE: () => ({ secure: 1 }),
  CONNECT_GET_MAX_VCPUS: () => ({ max_vcpus: 16 }),
  CONNECT_REGISTER_CLOSE_CALLBACK: () => null,
  CONNECT_UNREGISTER_CLOSE_CALLBACK: () => null,
  NODE_GET_INFO: () => ({
    model: 'x86_64',
    memory: 16_777_216n,
    cpus: 4,
    mhz: 2600,
    nodes: 1,
    sockets: 1,
    cores: 4,
    threads: 1,
  }),
  NODE_GET_FREE_MEMORY: () => ({ freeMem: 8_589_934_592n }),
  NETWORK_LOOKUP_BY_NAME: (call, { name }) => {
    call.host.domains.activeNetwork(name)
    return { net: { name, uuid: '5b4e2e6c-0d6b-4f0e-9c0a-000000000001' } }
  },
  NETWORK_IS_ACTIVE: (call, { net }) => ({ active: call.host.domains.activeNetwork(net.name) ? 1 : 0 }),

  CONNECT_DOMAIN_EVENT_CALLBACK_REGISTER_ANY: (call, { eventID, dom }) => ({
    callbackID: call.host.events.register({
      family: 'domain',
      eventID,
      subject: dom?.uuid,
      owner: call.owner,
      deliver: (event, callbackID) => call.deliver(event, callbackID),
    }),
  }),
  CONNECT_DOMAIN_EVENT_CALLBACK_DEREGISTER_ANY: (call, { callbackID }) => {
    call.host.events.deregister('domain', callbackID, call.owner)
    return null
  },
  CONNECT_STORAGE_POOL_EVENT_REGISTER_ANY: (call, { eventID, pool }) => ({
    callbackID: call.host.events.register({
      family: 'storagePool',
      eventID,
      subject: pool?.uuid,
      owner: call.owner,
      deliver: (event, callbackID) => call.deliver(event, callbackID),
    }),
  }),
  CONNECT_STORAGE_POOL_EVENT_DEREGISTER_ANY: (call, { callbackID }) => {
    call.host.events.deregister('storagePool', callbackID, call.owner)
    return null
  },
}

/** Answered before CONNECT_OPEN, or by themselves checking for it. */
export const withoutOpen: ReadonlySet<string> = new Set([
  'AUTH_LIST',
  'CONNECT_OPEN',
  'CONNECT_CLOSE',
  'CONNECT_SUPPORTS_FEATURE',
])

// Procedures about domains.
import { sleep } from '../../../../src/lib/clock.ts'
import { ErrorDomain } from '../../../../src/wire/libvirt/error-codes.ts'
import type { Domain, DomainInterface, Procedures } from '../../../../src/wire/libvirt/protocol.gen.ts'
import { lifecycle, lifecycleEvent } from '../host.ts'
import { affect, handle, reason, state, type StubDomain } from '../model/domains.ts'
import { fail } from '../model/errors.ts'
import type { Call, Handlers } from './handler.ts'

const source = { lease: 0, agent: 1, arp: 2 } as const
const metadataElement = 2
const inactiveDocument = 2
const undefineFlags = 1 | 2 | 4 | 8 | 16 | 32 | 64
const nvramFlags = 4 | 8
const startPaused = 1
const statsState = 1
/** What a call to a frozen agent costs. */
const agentTimeoutMs = 5000

function domainOf(call: Call, { uuid, name }: Domain): StubDomain {
  return call.host.domains.byUuid(uuid, name)
}

function definitionOf(domain: StubDomain) {
  const definition = domain.live ?? domain.config
  if (definition === undefined) throw fail.domainInvalid('domain has no configuration')
  return definition
}

function start(call: Call, dom: Domain, paused: boolean): StubDomain {
  const { host } = call
  const domain = domainOf(call, dom)
  host.domains.start(domain)
  host.emitAgent(domain, 2, 1)
  if (paused) {
    domain.state = state.paused
    domain.reason = reason.paused.user
  } else {
    host.emitLifecycle(domain, lifecycle.resumed.event, lifecycle.resumed.unpaused)
  }
  host.emitLifecycle(domain, lifecycle.started.event, lifecycle.started.booted)
  if (!paused) host.boot(domain)
  return domain
}

function destroy(call: Call, dom: Domain): null {
  const { host } = call
  const domain = domainOf(call, dom)
  if (domain.live === undefined) throw fail.domainInvalid('domain is not running', ErrorDomain.DOMAIN)
  host.emitLifecycle(domain, lifecycle.shutdown.event, lifecycle.shutdown.host)
  host.cut(domain)
  host.domains.stop(domain, reason.shutoff.destroyed)
  call.emitAfterReply(lifecycleEvent(domain, lifecycle.stopped.event, lifecycle.stopped.destroyed))
  return null
}

function undefine(call: Call, dom: Domain, flags: number): null {
  const unknown = flags & ~undefineFlags
  if (unknown !== 0) throw fail.unsupportedFlags(unknown, 'qemuDomainUndefineFlags', ErrorDomain.QEMU)
  const domain = domainOf(call, dom)
  call.host.domains.undefine(domain, (flags & nvramFlags) !== 0)
  call.emitAfterReply(lifecycleEvent(domain, lifecycle.undefined.event, lifecycle.undefined.removed))
  return null
}

function define(call: Call, xml: string): Procedures['DOMAIN_DEFINE_XML']['ret'] {
  const { domain, updated } = call.host.domains.define(xml)
  const detail = updated ? lifecycle.defined.updated : lifecycle.defined.added
  call.emitAfterReply(lifecycleEvent(domain, lifecycle.defined.event, detail))
  return { dom: handle(domain) }
}

function shutdown(call: Call, dom: Domain): null {
  const { host } = call
  const domain = runningDomain(call, dom)
  const { id } = domain
  host.clock.after(host.knobs.shutdownDelayMs, () => {
    // It may have been destroyed, and even started again, meanwhile.
    if (domain.id === id) host.shutDown(domain, reason.shutoff.shutdown)
  })
  return null
}

function runningDomain(call: Call, dom: Domain): StubDomain {
  const domain = domainOf(call, dom)
  if (domain.state !== state.running) throw fail.domainInvalid('domain is not running')
  return domain
}

/** Fails as long as the domain's agent does not answer. */
async function requireAgent(call: Call, domain: StubDomain): Promise<void> {
  if (domain.live?.hasAgentChannel !== true) throw fail.noAgentChannel()
  if (!domain.agentConnected) throw fail.agent('QEMU guest agent is not connected')
  if (!call.host.knobs.frozenAgents.has(domain.name)) return
  await sleep(call.host.clock, agentTimeoutMs)
  throw fail.agent('Guest agent not available for now')
}

const loopbackInterface: DomainInterface = {
  name: 'lo',
  hwaddr: '00:00:00:00:00:00',
  addrs: [
    { type: 0, addr: '127.0.0.1', prefix: 8 },
    { type: 1, addr: '::1', prefix: 128 },
  ],
}

async function interfaceAddresses(call: Call, dom: Domain, from: number): Promise<DomainInterface[]> {
  const { host } = call
  const domain = runningDomain(call, dom)
  const guest = host.guest(domain)
  const [nic] = domain.live?.nics ?? []
  const address = guest?.address
  switch (from) {
    case source.lease: {
      if (nic?.network === undefined || address === undefined) return []
      const [name = ''] = domain.interfaceNames
      return [{ name, hwaddr: nic.mac, addrs: [{ type: 0, addr: address, prefix: 8 }] }]
    }
    case source.agent: {
      await requireAgent(call, domain)
      if (nic === undefined) return [loopbackInterface]
      // The agent is there before DHCP is done.
      const addrs = address === undefined ? [] : [{ type: 0, addr: address, prefix: 8 }]
      return [loopbackInterface, { name: 'eth0', hwaddr: nic.mac, addrs: [...addrs, linkLocal(nic.mac)] }]
    }
    case source.arp: {
      if (host.knobs.arpBroken) throw fail.internal('wrong nlmsg len', ErrorDomain.NONE)
      const [name] = domain.interfaceNames
      if (nic === undefined || address === undefined || name === undefined) return []
      return [{ name, hwaddr: nic.mac, addrs: [{ type: 0, addr: address, prefix: 0 }] }]
    }
    default:
      throw fail.notSupported(`unknown interface address source ${from}`)
  }
}

/** RFC 4291, appendix A. */
function linkLocal(mac: string): DomainInterface['addrs'][number] {
  const [a = 0, b = 0, c = 0, d = 0, e = 0, f = 0] = mac.split(':').map((part) => Number.parseInt(part, 16))
  const hex = (high: number, low: number) => ((high << 8) | low).toString(16)
  return { type: 1, addr: `fe80::${hex(a ^ 2, b)}:${hex(c, 0xff)}:${hex(0xfe, d)}:${hex(e, f)}`, prefix: 64 }
}

/** libvirt-domain.h: virConnectListAllDomainsFlags; flags of one group widen, groups narrow. */
function isListed(domain: StubDomain, flags: number): boolean {
  const group = (bits: number, own: number) => (flags & bits) === 0 || (flags & own) !== 0
  const states: Record<number, number> = { [state.running]: 16, [state.paused]: 32, [state.shutoff]: 64 }
  return (
    group(3, domain.live === undefined ? 2 : 1) &&
    group(12, domain.config === undefined ? 8 : 4) &&
    group(240, states[domain.state] ?? 128) &&
    group(3072, domain.autostart ? 1024 : 2048)
  )
}

export const domainProcedures: Handlers = {
  DOMAIN_LOOKUP_BY_NAME: (call, { name }) => ({ dom: handle(call.host.domains.byName(name)) }),
  DOMAIN_LOOKUP_BY_UUID: (call, { uuid }) => ({ dom: handle(call.host.domains.byUuid(uuid)) }),
  DOMAIN_LOOKUP_BY_ID: (call, { id }) => ({ dom: handle(call.host.domains.byId(id)) }),
  CONNECT_LIST_ALL_DOMAINS: (call, { need_results, flags }) => {
    const domains = call.host.domains.all().filter((domain) => isListed(domain, flags))
    return { domains: need_results === 0 ? [] : domains.map(handle), ret: domains.length }
  },
  CONNECT_NUM_OF_DOMAINS: (call) => ({ num: call.host.domains.all().filter(({ live }) => live !== undefined).length }),
  CONNECT_LIST_DOMAINS: (call, { maxids }) => ({
    ids: call.host.domains
      .all()
      .flatMap(({ id }) => (id === -1 ? [] : [id]))
      .slice(0, maxids),
  }),
  CONNECT_GET_ALL_DOMAIN_STATS: (call, { doms, stats, flags }) => {
    const wanted =
      doms.length === 0
        ? call.host.domains.all().filter((domain) => isListed(domain, flags))
        : doms.flatMap(({ uuid }) => call.host.domains.all().filter((domain) => domain.uuid === uuid))
    const withState = stats === 0 || (stats & statsState) !== 0
    return {
      retStats: wanted.map((domain) => ({
        dom: handle(domain),
        params: withState
          ? [
              { field: 'state.state', value: { kind: 'int', value: domain.state } as const },
              { field: 'state.reason', value: { kind: 'int', value: domain.reason } as const },
            ]
          : [],
      })),
    }
  },

  DOMAIN_DEFINE_XML: (call, { xml }) => define(call, xml),
  DOMAIN_DEFINE_XML_FLAGS: (call, { xml, flags }) => {
    const unknown = flags & ~1
    if (unknown !== 0) throw fail.unsupportedFlags(unknown, 'qemuDomainDefineXMLFlags', ErrorDomain.QEMU)
    return define(call, xml)
  },
  DOMAIN_UNDEFINE: (call, { dom }) => undefine(call, dom, 0),
  DOMAIN_UNDEFINE_FLAGS: (call, { dom, flags }) => undefine(call, dom, flags),

  DOMAIN_CREATE: (call, { dom }) => {
    start(call, dom, false)
    return null
  },
  DOMAIN_CREATE_WITH_FLAGS: (call, { dom, flags }) => ({
    dom: handle(start(call, dom, (flags & startPaused) !== 0)),
  }),
  DOMAIN_DESTROY: (call, { dom }) => destroy(call, dom),
  DOMAIN_DESTROY_FLAGS: (call, { dom }) => destroy(call, dom),
  DOMAIN_SHUTDOWN: (call, { dom }) => shutdown(call, dom),
  DOMAIN_SHUTDOWN_FLAGS: async (call, { dom, flags }) => {
    if ((flags & 2) !== 0) await requireAgent(call, runningDomain(call, dom))
    return shutdown(call, dom)
  },
  DOMAIN_REBOOT: (call, { dom }) => {
    const domain = runningDomain(call, dom)
    domain.agentConnected = false
    call.host.cut(domain)
    call.host.boot(domain)
    return null
  },
  DOMAIN_SUSPEND: (call, { dom }) => {
    const domain = runningDomain(call, dom)
    domain.state = state.paused
    domain.reason = reason.paused.user
    call.host.emitLifecycle(domain, lifecycle.suspended.event, lifecycle.suspended.paused)
    return null
  },
  DOMAIN_RESUME: (call, { dom }) => {
    const domain = domainOf(call, dom)
    if (domain.live === undefined) throw fail.domainInvalid('domain is not running')
    domain.state = state.running
    domain.reason = reason.running.unpaused
    if (call.host.guest(domain) === undefined) call.host.boot(domain)
    call.host.emitLifecycle(domain, lifecycle.resumed.event, lifecycle.resumed.unpaused)
    return null
  },

  DOMAIN_GET_STATE: (call, { dom }) => {
    const domain = domainOf(call, dom)
    return { state: domain.state, reason: domain.reason }
  },
  DOMAIN_GET_INFO: (call, { dom }) => {
    const domain = domainOf(call, dom)
    const { memoryKiB, vcpus } = definitionOf(domain)
    const memory = BigInt(memoryKiB)
    return { state: domain.state, maxMem: memory, memory, nrVirtCpu: vcpus, cpuTime: 0n }
  },
  DOMAIN_GET_XML_DESC: (call, { dom, flags }) => ({
    xml: call.host.domains.document(domainOf(call, dom), (flags & inactiveDocument) !== 0),
  }),
  DOMAIN_IS_ACTIVE: (call, { dom }) => ({ active: domainOf(call, dom).live === undefined ? 0 : 1 }),
  DOMAIN_IS_PERSISTENT: (call, { dom }) => ({ persistent: domainOf(call, dom).config === undefined ? 0 : 1 }),
  DOMAIN_IS_UPDATED: (call, { dom }) => {
    domainOf(call, dom)
    return { updated: 0 }
  },
  DOMAIN_GET_AUTOSTART: (call, { dom }) => ({ autostart: domainOf(call, dom).autostart ? 1 : 0 }),
  DOMAIN_SET_AUTOSTART: (call, { dom, autostart }) => {
    domainOf(call, dom).autostart = autostart !== 0
    return null
  },
  DOMAIN_SET_METADATA: (call, { dom, type, metadata, key, uri, flags }) => {
    const domain = domainOf(call, dom)
    if (type !== metadataElement) throw fail.notSupported('metadata other than elements')
    call.host.domains.setMetadata(
      domain,
      uri ?? '',
      key ?? '',
      metadata ?? undefined,
      flags & (affect.live | affect.config),
    )
    call.emitAfterReply({
      name: 'DOMAIN_EVENT_CALLBACK_METADATA_CHANGE',
      subject: domain.uuid,
      message: { dom: handle(domain), type, nsuri: uri },
    })
    return null
  },
  DOMAIN_GET_METADATA: (call, { dom, type, uri, flags }) => {
    const domain = domainOf(call, dom)
    if (type !== metadataElement) throw fail.noMetadata()
    return { metadata: call.host.domains.metadata(domain, uri ?? '', flags & (affect.live | affect.config)) }
  },
  DOMAIN_INTERFACE_ADDRESSES: async (call, { dom, source: from }) => {
    const ifaces = await interfaceAddresses(call, dom, from)
    return { ifaces: call.host.knobs.addresses.get(from)?.(ifaces) ?? ifaces }
  },
  DOMAIN_GET_HOSTNAME: async (call, { dom }) => {
    const domain = runningDomain(call, dom)
    await requireAgent(call, domain)
    return { hostname: domain.name }
  },
  DOMAIN_AGENT_SET_RESPONSE_TIMEOUT: (call, { dom }) => {
    domainOf(call, dom)
    return { result: 0 }
  },
}

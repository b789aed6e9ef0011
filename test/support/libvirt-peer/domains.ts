// Domain documents for the peer suites.
import { ErrorCode } from '../../../src/wire/libvirt/error-codes.ts'
import { LibvirtError } from '../../../src/wire/libvirt/errors.ts'
import type { LibvirtConnection } from '../../../src/wire/libvirt/connection.ts'
import { callOptions, prefix } from './peer.ts'

export const domainName = `${prefix}domain`
export const domainUuid = '8f8e8d8c-0001-4002-8003-000000000001'
export const markUri = 'https://example.org/peer-suite/1'

export interface DomainParts {
  readonly name?: string
  readonly uuid?: string
  readonly metadata?: string
  readonly devices?: string
  /** Everything between name and devices. */
  readonly body?: string
}

export const plainBody =
  "<memory unit='MiB'>64</memory><vcpu>1</vcpu><os><type arch='x86_64' machine='q35'>hvm</type><boot dev='hd'/></os>" +
  '<features><acpi/></features>'

export function domainXml(parts: DomainParts = {}): string {
  const { name = domainName, uuid = domainUuid, metadata, devices = '', body = plainBody } = parts
  const element = metadata === undefined ? '' : `<metadata>${metadata}</metadata>`
  return `<domain type='kvm'><name>${name}</name><uuid>${uuid}</uuid>${element}${body}<devices>${devices}</devices></domain>`
}

export function diskXml(path: string, format: 'raw' | 'qcow2' = 'raw'): string {
  return `<disk type='file' device='disk'><driver name='qemu' type='${format}'/><source file='${path}'/><target dev='vda' bus='virtio'/></disk>`
}

export function nicXml(bridge: string, mac = '52:54:00:5e:ed:01'): string {
  return `<interface type='bridge'><mac address='${mac}'/><source bridge='${bridge}'/><model type='virtio'/></interface>`
}

export const agentXml = "<channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>"

/** Ends and undefines what this suite, or an earlier run of it, has left. */
export async function clearDomains(libvirt: LibvirtConnection): Promise<void> {
  const { domains } = await libvirt.call('CONNECT_LIST_ALL_DOMAINS', { need_results: 1, flags: 0 }, callOptions)
  for (const dom of domains.filter(({ name }) => name.startsWith(prefix))) {
    if (dom.id !== -1) await gone(libvirt.call('DOMAIN_DESTROY', { dom }, callOptions))
    await gone(libvirt.call('DOMAIN_UNDEFINE_FLAGS', { dom, flags: 7 }, callOptions))
  }
}

/** A transient domain goes with its process. */
async function gone(call: Promise<unknown>): Promise<void> {
  try {
    await call
  } catch (error) {
    const code = error instanceof LibvirtError ? error.code : undefined
    if (code !== ErrorCode.NO_DOMAIN && code !== ErrorCode.OPERATION_INVALID) throw error
  }
}

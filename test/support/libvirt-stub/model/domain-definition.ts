// One domain document: what libvirtd refuses in it, what it fills in, and how it gives it back. It starts nothing.
import { randomBytes, randomUUID } from 'node:crypto'
import { ErrorDomain } from '../../../../src/wire/libvirt/error-codes.ts'
import { fail, xmlDomain } from './errors.ts'
import { cloneNode, element, elements, isProblem, node, parseXmlTree, printXml, textOf, type XmlNode } from './xml.ts'

export interface DomainDisk {
  readonly device: string
  readonly target: string
  readonly file: string | undefined
  /** Driver's format. */
  readonly format: string
  readonly readonly: boolean
}

export interface DomainNic {
  readonly mac: string
  readonly bridge: string | undefined
  readonly network: string | undefined
}

/** A parsed document; `tree` is the document itself and is changed only by metadata. */
export interface DomainDefinition {
  readonly name: string
  readonly uuid: string
  readonly type: string
  readonly tree: XmlNode
  readonly memoryKiB: number
  readonly vcpus: number
  readonly firmware: 'efi' | 'bios'
  readonly disks: readonly DomainDisk[]
  readonly nics: readonly DomainNic[]
  readonly hasAgentChannel: boolean
}

const domainTypes = new Set(['kvm', 'qemu', 'xen', 'lxc', 'test', 'vmware', 'hyperv', 'bhyve', 'vz'])
const buses = new Set(['ide', 'fdc', 'scsi', 'virtio', 'xen', 'usb', 'uml', 'sata', 'sd'])

export function parseDomain(xml: string): DomainDefinition {
  const root = parseXmlTree(xml)
  if (isProblem(root)) throw fail.xmlDetail(`(domain_definition):${root.line}: ${root.message}`)
  if (root.name !== 'domain') {
    throw fail.domainXml(`expecting root element of 'domain', not '${root.name}'`, xmlDomain)
  }
  const type = root.attributes.get('type') ?? ''
  if (!domainTypes.has(type)) throw fail.unsupportedConfig(`invalid domain type ${type}`, ErrorDomain.DOMAIN)
  const name = textOf(element(root, 'name')) ?? ''
  if (name === '') throw fail.domainXml('missing domain name information')
  if (name.includes('/')) throw fail.domainXml(`name ${name} cannot contain '/'`)
  const memoryKiB = toKiB(element(root, 'memory'))
  if (memoryKiB === undefined) {
    throw fail.domainXml('Memory size must be specified via <memory> or in the <numa> configuration')
  }
  const uuid = textOf(element(root, 'uuid')) ?? randomUUID()
  const devices = element(root, 'devices')
  const definition: DomainDefinition = {
    name,
    uuid,
    type,
    tree: root,
    memoryKiB,
    vcpus: Number(textOf(element(root, 'vcpu')) ?? '1'),
    firmware: element(root, 'os')?.attributes.get('firmware') === 'efi' ? 'efi' : 'bios',
    disks: devices === undefined ? [] : elements(devices, 'disk').map(readDisk),
    nics: devices === undefined ? [] : elements(devices, 'interface').map(readNic),
    hasAgentChannel:
      devices !== undefined &&
      elements(devices, 'channel').some(
        (channel) => element(channel, 'target')?.attributes.get('name') === 'org.qemu.guest_agent.0',
      ),
  }
  refuseDuplicateTargets(definition.disks)
  fillIn(definition)
  return definition
}

function readDisk(disk: XmlNode): DomainDisk {
  const target = element(disk, 'target')
  const bus = target?.attributes.get('bus')
  if (bus !== undefined && !buses.has(bus)) {
    throw fail.domainXml(`Invalid value for attribute 'bus' in element 'target': '${bus}'.`, xmlDomain)
  }
  return {
    device: disk.attributes.get('device') ?? 'disk',
    target: target?.attributes.get('dev') ?? '',
    file: element(disk, 'source')?.attributes.get('file'),
    format: element(disk, 'driver')?.attributes.get('type') ?? 'raw',
    readonly: element(disk, 'readonly') !== undefined || disk.attributes.get('device') === 'cdrom',
  }
}

function readNic(nic: XmlNode): DomainNic {
  const source = element(nic, 'source')
  const [bridge, network] = [source?.attributes.get('bridge'), source?.attributes.get('network')]
  const address = element(nic, 'mac')?.attributes.get('address')
  if (address === undefined) {
    const generated = `52:54:00:${randomBytes(3)
      .toString('hex')
      .replace(/(..)(..)(..)/, '$1:$2:$3')}`
    nic.children.unshift(node('mac', { address: generated }))
    return { mac: generated, bridge, network }
  }
  if (!/^([0-9a-f]{2}:){5}[0-9a-f]{2}$/i.test(address)) {
    throw fail.domainXml(`unable to parse mac address '${address}'`)
  }
  if (Number.parseInt(address.slice(0, 2), 16) % 2 === 1) {
    throw fail.domainXml(`expected unicast mac address, found multicast '${address}'`)
  }
  return { mac: address.toLowerCase(), bridge, network }
}

function refuseDuplicateTargets(disks: readonly DomainDisk[]): void {
  for (const [index, disk] of disks.entries()) {
    const earlier = disks.slice(0, index).find(({ target }) => target === disk.target)
    if (earlier === undefined) continue
    throw fail.domainXml(
      `target '${disk.target}' duplicated for disk sources '${earlier.file ?? '(null)'}' and '${disk.file ?? '(null)'}'`,
    )
  }
}

/** What the daemon adds to every document it takes. */
function fillIn({ tree, uuid, memoryKiB }: DomainDefinition): void {
  const replace = (name: string, fresh: XmlNode, after: string) => {
    const index = tree.children.findIndex((child) => typeof child !== 'string' && child.name === name)
    if (index >= 0) tree.children[index] = fresh
    else {
      const at = tree.children.findIndex((child) => typeof child !== 'string' && child.name === after)
      tree.children.splice(at + 1, 0, fresh)
    }
  }
  replace('uuid', node('uuid', {}, [uuid]), 'name')
  replace('memory', node('memory', { unit: 'KiB' }, [String(memoryKiB)]), 'uuid')
  replace('currentMemory', node('currentMemory', { unit: 'KiB' }, [String(memoryKiB)]), 'memory')
}

const unitKiB: Readonly<Record<string, number>> = {
  b: 1 / 1024,
  KiB: 1,
  k: 1,
  MiB: 1024,
  M: 1024,
  GiB: 2 ** 20,
  G: 2 ** 20,
}

function toKiB(memory: XmlNode | undefined): number | undefined {
  const text = textOf(memory)
  if (memory === undefined || text === undefined || text === '') return undefined
  return Math.ceil(Number(text) * (unitKiB[memory.attributes.get('unit') ?? 'KiB'] ?? 1))
}

export function cloneDefinition(definition: DomainDefinition): DomainDefinition {
  return { ...definition, tree: cloneNode(definition.tree) }
}

export interface LiveFacts {
  readonly id: number
  /** Host side of the NICs. */
  readonly interfaceNames: readonly string[]
  readonly agentConnected: boolean
}

/** The document as DOMAIN_GET_XML_DESC gives it; `live` for that of a running domain. */
export function domainDocument(definition: DomainDefinition, live?: LiveFacts): string {
  const root = cloneNode(definition.tree)
  if (live !== undefined) {
    root.attributes.set('id', String(live.id))
    describeFirmware(root, definition)
    for (const [index, nic] of elements(element(root, 'devices') ?? root, 'interface').entries()) {
      nic.children.push(
        node('target', { dev: live.interfaceNames[index] ?? 'vnet0' }),
        node('alias', { name: `net${index}` }),
      )
    }
    for (const channel of elements(element(root, 'devices') ?? root, 'channel')) {
      element(channel, 'target')?.attributes.set('state', live.agentConnected ? 'connected' : 'disconnected')
    }
  }
  return printXml(root)
}

/** In a running domain the wish for a firmware has become files. */
function describeFirmware(root: XmlNode, definition: DomainDefinition): void {
  const os = element(root, 'os')
  if (os === undefined || definition.firmware !== 'efi') return
  os.attributes.delete('firmware')
  os.children.push(
    node('loader', { readonly: 'yes', type: 'pflash' }, ['/usr/share/OVMF/OVMF_CODE_4M.fd']),
    node('nvram', { template: '/usr/share/OVMF/OVMF_VARS_4M.fd' }, [
      `/var/lib/libvirt/qemu/nvram/${definition.name}_VARS.fd`,
    ]),
  )
}

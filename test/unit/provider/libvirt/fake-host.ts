// A libvirt host in memory behind the engine's seam: volumes, domains, and a crash at any call that changes something. No wire.
import type { AddressSource } from '../../../../src/provider/libvirt/addresses.ts'
import type {
  Domain,
  DomainInterface,
  HostApi,
  MutationGuard,
  StorageVol,
} from '../../../../src/provider/libvirt/host-api.ts'
import { kvmFlavour } from '../../../../src/provider/libvirt/flavour.ts'
import type { HostSession } from '../../../../src/provider/libvirt/hosts.ts'
import { markXml, readMark } from '../../../../src/provider/libvirt/mark.ts'
import { requireMutable } from '../../../../src/provider/libvirt/rpc.ts'
import { parseXml } from '../../../../src/provider/libvirt/xml.ts'
import { LibvirtConnectionError, LibvirtError } from '../../../../src/wire/libvirt/errors.ts'
import type { ProcedureName } from '../../../../src/wire/libvirt/protocol.gen.ts'

export interface FakeVolume {
  content: Buffer
  capacity: number
  readonly backing: string | undefined
  /** Milliseconds since the epoch, by the host's clock. */
  modifiedMs: number
}

export interface FakeDomain {
  readonly uuid: string
  name: string
  readonly xml: string
  metadata: string | undefined
  /** In the namespace of type kvm. */
  oldMark: string | undefined
  state: number
  reason: number
  autostart: boolean
  started: boolean
}

const dir = '/pool'

/** The change, counted from 0, at which the operator dies: nothing reaches the host any more, not even to tidy up. */
export interface Crash {
  readonly index: number
  /** Before or after the change had its effect. */
  readonly moment: 'before' | 'after'
}

export class FakeHost {
  readonly volumes = new Map<string, FakeVolume>()
  /** By UUID. */
  readonly domains = new Map<string, FakeDomain>()
  poolState = 2
  availableBytes = 1n << 40n
  /** The host's clock, milliseconds since the epoch. */
  nowMs: () => number = () => Date.now()
  /** Calls that changed something or were about to, in order. */
  readonly changes: string[] = []
  /** State and reason of a domain after each start, in turn; running (1) once the list is empty. */
  readonly afterStart: (readonly [state: number, reason: number])[] = []
  /** What the sources of addresses answer, or throw. */
  readonly sources: Record<AddressSource, () => readonly DomainInterface[]> = {
    agent: () => [],
    lease: () => [],
    arp: () => [],
  }
  /** Of events, in the order of their registration. */
  readonly listeners: ((domain: Domain) => void)[] = []
  #crashAt: Crash | undefined
  #gone = false

  crashAt(crash: Crash): void {
    this.#crashAt = crash
  }

  /** A new operator can reach the host again. */
  recover(): void {
    this.#crashAt = undefined
    this.#gone = false
  }

  session(): HostSession {
    const { promise, resolve } = Promise.withResolvers<undefined>()
    const end = () => resolve(undefined)
    return {
      api: this.#api(end),
      closed: promise,
      close: () => Promise.resolve().then(end),
      destroy: end,
    }
  }

  addDomain(domain: Pick<FakeDomain, 'uuid' | 'name'> & Partial<FakeDomain>): FakeDomain {
    const full = {
      xml: '<domain/>',
      metadata: undefined,
      oldMark: undefined,
      state: 1,
      reason: 0,
      autostart: false,
      started: false,
      ...domain,
    }
    this.domains.set(full.uuid, full)
    return full
  }

  addVolume(name: string, content: Buffer, backing?: string): void {
    this.volumes.set(name, { content, capacity: content.byteLength, backing, modifiedMs: this.nowMs() })
  }

  #change<T>(what: string, guard: MutationGuard, end: () => void, effect: () => T): T {
    requireMutable(guard, 'fake')
    this.#reach()
    const index = this.changes.length
    this.changes.push(what)
    const crash = () => {
      this.#gone = true
      end()
      throw new LibvirtConnectionError('CLOSED', `crash at ${what}`)
    }
    if (this.#crashAt?.index === index && this.#crashAt.moment === 'before') crash()
    const result = effect()
    if (this.#crashAt?.index === index) crash()
    return result
  }

  #reach(): void {
    if (this.#gone) throw new LibvirtConnectionError('CLOSED', 'the host is out of reach')
  }

  #volume(vol: StorageVol): FakeVolume {
    return this.volumes.get(vol.name) ?? fail('STORAGE_VOL_GET_INFO', 50, `no storage vol ${vol.name}`)
  }

  #domain(uuid: string): FakeDomain {
    return this.domains.get(uuid) ?? fail('DOMAIN_GET_STATE', 42, `no domain ${uuid}`)
  }

  #api(end: () => void): HostApi {
    const change = <T>(what: string, guard: MutationGuard, effect: () => T) =>
      Promise.resolve().then(() => this.#change(what, guard, end, effect))
    const read = <T>(look: () => T) =>
      Promise.resolve().then(() => {
        this.#reach()
        return look()
      })
    const handle = (domain: FakeDomain) => ({ name: domain.name, uuid: domain.uuid, id: domain.state === 1 ? 1 : -1 })
    const volume = (name: string): StorageVol => ({ pool: 'default', name, key: `${dir}/${name}` })
    return {
      libVersion: () => read(() => 9_000_000n),
      hostname: () => read(() => 'fake'),
      findDomain: (by) =>
        read(() => {
          const all = [...this.domains.values()]
          const found = all.find((domain) => ('uuid' in by ? domain.uuid === by.uuid : domain.name === by.name))
          return found === undefined ? undefined : handle(found)
        }),
      listDomains: () => read(() => [...this.domains.values()].map(handle)),
      allStates: () =>
        read(() =>
          [...this.domains.values()].map((domain) => ({
            domain: handle(domain),
            status: { state: domain.state, reason: 0 },
          })),
        ),
      watchDomains: (listener) =>
        read(() => {
          this.listeners.push(listener)
          return true
        }),
      domainStatus: ({ uuid }) =>
        read(() => {
          const domain = this.#domain(uuid)
          const next = domain.started ? this.afterStart.shift() : undefined
          if (next !== undefined) [domain.state, domain.reason] = next
          return { state: domain.state, reason: domain.reason }
        }),
      domainXml: ({ uuid }) => read(() => this.#domain(uuid).xml),
      metadata: ({ uuid }, namespace) =>
        read(() => {
          const { metadata, oldMark } = this.#domain(uuid)
          return namespace === kvmFlavour.markNamespace ? oldMark : metadata
        }),
      interfaceAddresses: (_domain, source) => read(() => this.sources[source]()),
      defineDomain: (xml, guard) =>
        change('define', guard, () => {
          const root = parseXml(xml)?.child('domain')
          const uuid = root?.child('uuid')?.text ?? ''
          const name = root?.child('name')?.text ?? ''
          const instance = root?.child('metadata')?.child('instance')
          const fields = [
            'uid',
            'installation',
            'namespace',
            'name',
            'specHash',
            'image',
            'imageDigest',
            'createdAt',
          ] as const
          const mark = Object.fromEntries(fields.map((field) => [field, instance?.child(field)?.text]))
          if ([...this.domains.values()].some((domain) => domain.name === name && domain.uuid !== uuid))
            fail('DOMAIN_DEFINE_XML', 9, `domain '${name}' already exists`)
          return handle(this.addDomain({ uuid, name, xml, metadata: markXml(mark), state: 5 }))
        }),
      setMark: ({ uuid }, mark, _live, guard) =>
        change('setMark', guard, () => {
          this.#domain(uuid).metadata = markXml(mark)
        }),
      removeMetadata: ({ uuid }, namespace, _live, guard) =>
        change('removeMetadata', guard, () => {
          if (namespace === kvmFlavour.markNamespace) this.#domain(uuid).oldMark = undefined
          else this.#domain(uuid).metadata = undefined
        }),
      setAutostart: ({ uuid }, guard) =>
        change('autostart', guard, () => {
          this.#domain(uuid).autostart = true
        }),
      startDomain: ({ uuid }, guard) =>
        change('start', guard, () => {
          const domain = this.#domain(uuid)
          if (domain.state === 1) fail('DOMAIN_CREATE', 55, 'domain is already running')
          if (!this.volumes.has(`${domain.name}.qcow2`)) fail('DOMAIN_CREATE', 38, 'Cannot access storage file', 2)
          domain.state = 1
          domain.started = true
        }),
      destroyDomain: ({ uuid }, guard) =>
        change('destroy', guard, () => {
          const domain = this.#domain(uuid)
          if (domain.state === 5) fail('DOMAIN_DESTROY', 55, 'domain is not running')
          domain.state = 5
        }),
      undefineDomain: ({ uuid }, guard) =>
        change('undefine', guard, () => {
          this.#domain(uuid)
          this.domains.delete(uuid)
        }),
      isNetworkActive: () => read(() => true),
      findPool: (name) => read(() => ({ name, uuid: '00000000-0000-0000-0000-000000000001' })),
      poolInfo: () =>
        read(() => ({ state: this.poolState, capacityBytes: 1n << 41n, availableBytes: this.availableBytes })),
      refreshPool: (_pool, guard) => change('refresh', guard, () => undefined),
      findVolume: (_pool, name) => read(() => (this.volumes.has(name) ? volume(name) : undefined)),
      listVolumes: () =>
        read(() => {
          if (this.poolState !== 2) fail('STORAGE_POOL_LIST_ALL_VOLUMES', 55, "storage pool 'default' is not active")
          return [...this.volumes.keys()].map(volume)
        }),
      volumePath: (vol) => read(() => (this.#volume(vol), `${dir}/${vol.name}`)),
      volumeXml: (vol) =>
        read(() => {
          const { backing, modifiedMs } = this.#volume(vol)
          const store = backing === undefined ? '' : `<backingStore><path>${backing}</path></backingStore>`
          const times = `<timestamps><mtime>${(modifiedMs / 1000).toFixed(9)}</mtime></timestamps>`
          return `<volume><name>${vol.name}</name><target>${times}</target>${store}</volume>`
        }),
      volumeCapacity: (vol) => read(() => BigInt(this.#volume(vol).capacity)),
      createVolume: (_pool, xml, guard) =>
        change(`create ${kindOf(nameIn(xml))}`, guard, () => {
          const root = parseXml(xml)?.child('volume')
          const name = nameIn(xml)
          if (this.volumes.has(name)) fail('STORAGE_VOL_CREATE_XML', 90, `storage volume '${name}' exists already`)
          const capacity = Number(root?.child('capacity')?.text)
          const backing = root?.child('backingStore')?.child('path')?.text
          const content = Buffer.alloc(backing === undefined ? capacity : 0)
          this.volumes.set(name, { content, capacity, backing, modifiedMs: this.nowMs() })
          return volume(name)
        }),
      growVolume: (vol, capacity, guard) =>
        change('grow', guard, () => {
          const found = this.#volume(vol)
          if (capacity < found.capacity)
            fail('STORAGE_VOL_RESIZE', 8, "can't shrink capacity below existing allocation")
          found.capacity = capacity
          found.content = Buffer.concat([found.content, Buffer.alloc(capacity)]).subarray(0, capacity)
        }),
      deleteVolume: (vol, guard) =>
        change(`delete ${kindOf(vol.name)}`, guard, () => {
          this.#volume(vol)
          this.volumes.delete(vol.name)
        }),
      readVolume: (vol, offset, length) => read(() => this.#volume(vol).content.subarray(offset, offset + length)),
      writeVolume: async (vol, content, guard) => {
        // Two halves: a crash after the first leaves what a cut-off upload leaves.
        const half = Math.floor(content.byteLength / 2)
        await change('upload first half', guard, () => this.#write(vol, 0, content.subarray(0, half)))
        await change('upload rest', guard, () => this.#write(vol, half, content.subarray(half)))
      },
      uploadVolume: async (vol, source, _timeoutMs, guard) => {
        let offset = 0
        for await (const chunk of source.data) {
          const at = offset
          await change('upload chunk', guard, () => this.#write(vol, at, chunk))
          offset += chunk.byteLength
        }
      },
    }
  }

  /** The file grows where it is too small. */
  #write(vol: StorageVol, at: number, data: Uint8Array): void {
    const volume = this.#volume(vol)
    const missing = Math.max(0, at + data.byteLength - volume.content.byteLength)
    volume.content = Buffer.concat([volume.content, Buffer.alloc(missing)])
    volume.capacity = Math.max(volume.capacity, volume.content.byteLength)
    volume.content.set(data, at)
    volume.modifiedMs = this.nowMs()
  }

  /** The mark of a domain as it can be read. */
  markOf(uuid: string) {
    return readMark(this.domains.get(uuid)?.metadata)
  }
}

function nameIn(volumeXml: string): string {
  return parseXml(volumeXml)?.child('volume')?.child('name')?.text ?? ''
}

/** What is behind the name of the instance or the image: `-seed.iso`, `.qcow2`, `.sha256`, `.claim.1`. */
function kindOf(name: string): string {
  return name.replace(/^.*(?=-seed)|^.*(?=\.claim\.)|^.*(?=\.time\.)|^.*(?=\.[^.]*$)/, '')
}

/** What a daemon answers. */
export function fail(procedure: ProcedureName, code: number, message: string, int1 = -1): never {
  const nothing = { str1: null, str2: null, str3: null, dom: null, net: null }
  throw new LibvirtError(procedure, { code, domain: 0, message, level: 2, int1, int2: -1, ...nothing })
}

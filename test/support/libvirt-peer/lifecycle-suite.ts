// Domains that run, what cannot start, and the events of both.
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import type { LibvirtConnection } from '../../../src/wire/libvirt/connection.ts'
import { ErrorCode } from '../../../src/wire/libvirt/error-codes.ts'
import type { LibvirtEvent } from '../../../src/wire/libvirt/events.ts'
import type { Domain, StoragePool } from '../../../src/wire/libvirt/protocol.gen.ts'
import { eventually } from '../eventually.ts'
import { agentXml, clearDomains, diskXml, domainUuid, domainXml, markUri, nicXml } from './domains.ts'
import { callOptions, Ending, openLibvirt, prefix, refusal, type LibvirtPeer } from './peer.ts'
import { clearVolumes, createVolume, rawVolume } from './volumes.ts'

const running = { state: 1, reason: 1 }
const destroyed = { state: 5, reason: 2 }
const agentSource = 1

export function suiteOfLifecycles(open: () => Promise<LibvirtPeer>): void {
  describe('lifecycles', () => {
    const ending = new Ending()
    let peer: LibvirtPeer
    let libvirt: LibvirtConnection
    let pool: StoragePool
    let disk: string
    beforeAll(async () => {
      peer = await open()
      ending.add(() => peer.close())
      libvirt = await openLibvirt(peer)
      ending.add(() => libvirt.close())
      pool = (await libvirt.call('STORAGE_POOL_LOOKUP_BY_NAME', { name: peer.pool }, callOptions)).pool
      await clearDomains(libvirt)
      await clearVolumes(libvirt, pool)
    })
    beforeEach(async () => {
      const vol = await createVolume(libvirt, pool, rawVolume(`${prefix}disk.qcow2`, 2 ** 24, 'qcow2'))
      disk = vol.key
    })
    afterEach(async () => {
      await clearDomains(libvirt)
      await clearVolumes(libvirt, pool)
    })
    afterAll(() => ending.run())

    async function define(devices: string): Promise<Domain> {
      return (await libvirt.call('DOMAIN_DEFINE_XML', { xml: domainXml({ devices }) }, callOptions)).dom
    }
    const start = (dom: Domain) => libvirt.call('DOMAIN_CREATE', { dom }, callOptions)
    const destroy = (dom: Domain) => libvirt.call('DOMAIN_DESTROY', { dom }, callOptions)
    const undefine = (dom: Domain) => libvirt.call('DOMAIN_UNDEFINE_FLAGS', { dom, flags: 7 }, callOptions)
    const stateOf = (dom: Domain) => libvirt.call('DOMAIN_GET_STATE', { dom, flags: 0 }, callOptions)
    const addresses = (dom: Domain, source: number) =>
      libvirt.call('DOMAIN_INTERFACE_ADDRESSES', { dom, source, flags: 0 }, { ...callOptions, slow: true })

    it('run after a start until they are ended, with an id meanwhile', async () => {
      const dom = await define(diskXml(disk, 'qcow2') + nicXml(peer.bridge) + agentXml)
      await start(dom)
      expect(await stateOf(dom)).toEqual(running)
      const found = (await libvirt.call('DOMAIN_LOOKUP_BY_UUID', { uuid: domainUuid }, callOptions)).dom
      expect(found.id).toBeGreaterThan(0)
      const { xml } = await libvirt.call('DOMAIN_GET_XML_DESC', { dom, flags: 0 }, callOptions)
      expect(xml).toMatch(new RegExp(`^<domain type='kvm' id='${found.id}'`))
      expect(xml).toMatch(/<target dev='vnet\d+'\/>/)
      const inactive = await libvirt.call('DOMAIN_GET_XML_DESC', { dom, flags: 2 }, callOptions)
      expect(inactive.xml).toMatch(/^<domain type='kvm'>/)
      const twice = await refusal(start(dom))
      expect(twice.code).toBe(ErrorCode.OPERATION_INVALID)
      expect(twice.message).toBe('Requested operation is not valid: domain is already running')

      await destroy(dom)
      expect(await stateOf(dom)).toEqual(destroyed)
      expect((await libvirt.call('DOMAIN_LOOKUP_BY_UUID', { uuid: domainUuid }, callOptions)).dom.id).toBe(-1)
      expect((await refusal(destroy(dom))).message).toBe('Requested operation is not valid: domain is not running')
    })

    it('keep live and stored metadata apart', async () => {
      const dom = await define(diskXml(disk, 'qcow2'))
      await start(dom)
      const set = (metadata: string, flags: number) =>
        libvirt.call('DOMAIN_SET_METADATA', { dom, type: 2, metadata, key: 'p', uri: markUri, flags }, callOptions)
      const get = async (flags: number) =>
        (await libvirt.call('DOMAIN_GET_METADATA', { dom, type: 2, uri: markUri, flags }, callOptions)).metadata
      await set("<m id='both'/>", 1 | 2)
      await set("<m id='live'/>", 1)
      expect([await get(0), await get(1), await get(2)]).toEqual(['<m id="live"/>', '<m id="live"/>', '<m id="both"/>'])
      await destroy(dom)
      expect(await get(0)).toBe('<m id="both"/>')
    })

    it('go on as transient ones when undefined while running, and vanish at their end', async () => {
      const dom = await define(diskXml(disk, 'qcow2'))
      await start(dom)
      await undefine(dom)
      expect(await stateOf(dom)).toEqual(running)
      expect(await libvirt.call('DOMAIN_IS_PERSISTENT', { dom }, callOptions)).toEqual({ persistent: 0 })
      await destroy(dom)
      expect((await refusal(stateOf(dom))).code).toBe(ErrorCode.NO_DOMAIN)
    })

    it('do not start without their disk, and name it', async () => {
      const missing = `${peer.poolDir}/${prefix}missing.qcow2`
      const error = await refusal(start(await define(diskXml(missing, 'qcow2'))))
      expect(error).toMatchObject({ code: ErrorCode.SYSTEM_ERROR, int1: 2 })
      expect(error.message).toMatch(/^Cannot access storage file '.*missing.qcow2'.*: No such file or directory$/)
    })

    it('do not start without their bridge, and name it', async () => {
      const error = await refusal(start(await define(diskXml(disk, 'qcow2') + nicXml('nobr'))))
      expect(error).toMatchObject({ code: ErrorCode.SYSTEM_ERROR, int1: 19 })
      expect(error.message).toBe("Cannot get interface MTU on 'nobr': No such device")
    })

    it('do not start on a disk that another one writes to', async () => {
      await start(await define(diskXml(disk, 'qcow2')))
      const other = domainXml({
        name: `${prefix}two`,
        uuid: '8f8e8d8c-0001-4002-8003-0000000000ff',
        devices: diskXml(disk, 'qcow2'),
      })
      const { dom } = await libvirt.call('DOMAIN_DEFINE_XML', { xml: other }, callOptions)
      const error = await refusal(start(dom))
      expect(error.code).toBe(ErrorCode.INTERNAL_ERROR)
      expect(error.message).toContain('Failed to get "write" lock')
    })

    it('do not start on a disk that is no qcow2 although it should be', async () => {
      const vol = await createVolume(libvirt, pool, rawVolume(`${prefix}plain.img`, 65_536))
      const error = await refusal(start(await define(diskXml(vol.key, 'qcow2'))))
      expect(error.code).toBe(ErrorCode.INTERNAL_ERROR)
      expect(error.message).toContain('Image is not in qcow2 format')
    })

    it('answer about addresses by what they have: no channel, no lease, not running', async () => {
      const dom = await define(diskXml(disk, 'qcow2') + nicXml(peer.bridge))
      expect((await refusal(addresses(dom, agentSource))).code).toBe(ErrorCode.OPERATION_INVALID)
      await start(dom)
      const noChannel = await refusal(addresses(dom, agentSource))
      expect(noChannel.code).toBe(ErrorCode.ARGUMENT_UNSUPPORTED)
      expect(noChannel.message).toBe('argument unsupported: QEMU guest agent is not configured')
      expect(await addresses(dom, 0)).toEqual({ ifaces: [] })
    })

    it('are not told about their volumes: one in use can be deleted', async () => {
      await start(await define(diskXml(disk, 'qcow2')))
      const { vol } = await libvirt.call('STORAGE_VOL_LOOKUP_BY_PATH', { path: disk }, callOptions)
      await libvirt.call('STORAGE_VOL_DELETE', { vol, flags: 0 }, callOptions)
      expect((await refusal(libvirt.call('STORAGE_VOL_LOOKUP_BY_PATH', { path: disk }, callOptions))).code).toBe(
        ErrorCode.NO_STORAGE_VOL,
      )
    })

    it('are told of in events, in the daemon’s own order, before or after the replies', async () => {
      const seen: string[] = []
      const registration = await libvirt.registerDomainEvents('DOMAIN_EVENT_CALLBACK_LIFECYCLE', callOptions)
      const stop = libvirt.onEvent((event) => {
        if (registration.matches(event)) seen.push(lifecycleOf(event))
      })
      const dom = await define(diskXml(disk, 'qcow2'))
      await start(dom)
      await destroy(dom)
      await undefine(dom)
      const all = ['defined 0', 'resumed 0', 'started 0', 'shutdown 2', 'stopped 1', 'undefined 0']
      await eventually('all events', 60_000, () => Promise.resolve(seen.length >= all.length || undefined))
      expect(seen).toEqual(all)
      await registration.deregister(callOptions)
      await define(diskXml(disk, 'qcow2'))
      await libvirt.call('CONNECT_GET_HOSTNAME', null, callOptions)
      expect(seen).toEqual(all)
      stop()
    })
  })
}

const names = ['defined', 'undefined', 'started', 'suspended', 'resumed', 'stopped', 'shutdown']

function lifecycleOf(event: LibvirtEvent): string {
  if (event.kind !== 'DOMAIN_EVENT_CALLBACK_LIFECYCLE') return event.kind
  const { event: what, detail } = event.message.msg
  return `${names[what] ?? what} ${detail}`
}

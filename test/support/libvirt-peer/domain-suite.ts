// Domains that do not run: definitions, handles, metadata, lists.
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import type { LibvirtConnection } from '../../../src/wire/libvirt/connection.ts'
import { ErrorCode } from '../../../src/wire/libvirt/error-codes.ts'
import type { Domain } from '../../../src/wire/libvirt/protocol.gen.ts'
import {
  clearDomains,
  diskXml,
  domainName,
  domainUuid,
  domainXml,
  markUri,
  nicXml,
  plainBody,
  type DomainParts,
} from './domains.ts'
import { callOptions, Ending, openLibvirt, prefix, refusal, type LibvirtPeer } from './peer.ts'

const shutoff = 5
const elementMetadata = 2
const config = 2
const live = 1

export function suiteOfDomains(open: () => Promise<LibvirtPeer>): void {
  describe('domains', () => {
    const ending = new Ending()
    let peer: LibvirtPeer
    let libvirt: LibvirtConnection
    beforeAll(async () => {
      peer = await open()
      ending.add(() => peer.close())
      libvirt = await openLibvirt(peer)
      ending.add(() => libvirt.close())
      await clearDomains(libvirt)
    })
    afterEach(async () => {
      await clearDomains(libvirt)
    })
    afterAll(() => ending.run())

    const defineXml = async (xml: string) => (await libvirt.call('DOMAIN_DEFINE_XML', { xml }, callOptions)).dom
    const define = (parts: DomainParts = {}) => defineXml(domainXml(parts))
    const byUuid = (uuid: string) => libvirt.call('DOMAIN_LOOKUP_BY_UUID', { uuid }, callOptions)
    const stateOf = (dom: Domain) => libvirt.call('DOMAIN_GET_STATE', { dom, flags: 0 }, callOptions)
    const metadata = async (dom: Domain, flags = 0, uri: string | null = markUri) =>
      (await libvirt.call('DOMAIN_GET_METADATA', { dom, type: elementMetadata, uri, flags }, callOptions)).metadata
    const setMetadata = (dom: Domain, xml: string | null, flags = config) =>
      libvirt.call(
        'DOMAIN_SET_METADATA',
        { dom, type: elementMetadata, metadata: xml, key: 'peer', uri: markUri, flags },
        callOptions,
      )

    it('are found by name and UUID once defined', async () => {
      const dom = await define()
      expect(dom).toEqual({ name: domainName, uuid: domainUuid, id: -1 })
      expect((await libvirt.call('DOMAIN_LOOKUP_BY_NAME', { name: domainName }, callOptions)).dom).toEqual(dom)
      expect((await byUuid(domainUuid)).dom).toEqual(dom)
      expect(await stateOf(dom)).toEqual({ state: shutoff, reason: 0 })
      expect(await libvirt.call('DOMAIN_IS_ACTIVE', { dom }, callOptions)).toEqual({ active: 0 })
      expect(await libvirt.call('DOMAIN_IS_PERSISTENT', { dom }, callOptions)).toEqual({ persistent: 1 })
    })

    it('are not found otherwise', async () => {
      const byName = await refusal(libvirt.call('DOMAIN_LOOKUP_BY_NAME', { name: 'nope' }, callOptions))
      expect(byName.code).toBe(ErrorCode.NO_DOMAIN)
      expect(byName.message).toBe("Domain not found: no domain with matching name 'nope'")
      const uuid = '11111111-2222-3333-4444-555555555555'
      expect((await refusal(byUuid(uuid))).message).toBe(`Domain not found: no domain with matching uuid '${uuid}'`)
      const stale = await refusal(stateOf({ name: 'old', uuid, id: 3 }))
      expect(stale.message).toBe(`Domain not found: no domain with matching uuid '${uuid}' (old)`)
    })

    it('are known by their UUID alone, whatever name and id come with it', async () => {
      await define()
      expect((await stateOf({ name: 'other', uuid: domainUuid, id: 4711 })).state).toBe(shutoff)
    })

    it('get a UUID and MAC addresses when the document has none', async () => {
      const xml = domainXml({ devices: nicXml(peer.bridge).replace(/<mac[^>]*>/, '') }).replace(/<uuid>.*<\/uuid>/, '')
      const dom = await defineXml(xml)
      expect(dom.uuid).toMatch(/^[0-9a-f-]{36}$/)
      const described = (await libvirt.call('DOMAIN_GET_XML_DESC', { dom, flags: 0 }, callOptions)).xml
      expect(described).toContain(`<uuid>${dom.uuid}</uuid>`)
      expect(described).toMatch(/<mac address='52:54:00:[0-9a-f:]{8}'\/>/)
      expect(described).toContain("<memory unit='KiB'>65536</memory>")
    })

    it('are updated by another definition with the same name and UUID', async () => {
      await define()
      await define({ body: plainBody.replace('64', '96') })
      const { domains } = await libvirt.call('CONNECT_LIST_ALL_DOMAINS', { need_results: 1, flags: 0 }, callOptions)
      expect(domains.filter(({ name }) => name === domainName)).toHaveLength(1)
      const [dom] = domains.filter(({ name }) => name === domainName)
      if (dom === undefined) throw new Error('not listed')
      const described = await libvirt.call('DOMAIN_GET_XML_DESC', { dom, flags: 0 }, callOptions)
      expect(described.xml).toContain("<memory unit='KiB'>98304</memory>")
    })

    it('keep name and UUID to themselves', async () => {
      await define()
      const sameName = await refusal(define({ uuid: '8f8e8d8c-0001-4002-8003-000000000002' }))
      expect(sameName.code).toBe(ErrorCode.OPERATION_FAILED)
      expect(sameName.message).toBe(`operation failed: domain '${domainName}' already exists with uuid ${domainUuid}`)
      const sameUuid = await refusal(define({ name: `${prefix}other` }))
      expect(sameUuid.code).toBe(ErrorCode.OPERATION_FAILED)
      expect(sameUuid.message).toBe(
        `operation failed: domain '${domainName}' is already defined with uuid ${domainUuid}`,
      )
    })

    it.each([
      ['another root', '<foo/>', ErrorCode.XML_ERROR, "XML error: expecting root element of 'domain', not 'foo'"],
      [
        'an unknown type',
        domainXml().replace("type='kvm'", "type='bogus'"),
        ErrorCode.CONFIG_UNSUPPORTED,
        'unsupported configuration: invalid domain type bogus',
      ],
      [
        'no memory',
        domainXml({ body: plainBody.replace(/<memory.*<\/memory>/, '') }),
        ErrorCode.XML_ERROR,
        'XML error: Memory size must be specified via <memory> or in the <numa> configuration',
      ],
      [
        'a slash in its name',
        domainXml({ name: 'a/b' }),
        ErrorCode.XML_ERROR,
        "XML error: name a/b cannot contain '/'",
      ],
      [
        'a MAC that is none',
        domainXml({ devices: nicXml('br0', 'zz') }),
        ErrorCode.XML_ERROR,
        "XML error: unable to parse mac address 'zz'",
      ],
      [
        'a multicast MAC',
        domainXml({ devices: nicXml('br0', '01:00:00:00:00:01') }),
        ErrorCode.XML_ERROR,
        "XML error: expected unicast mac address, found multicast '01:00:00:00:00:01'",
      ],
      [
        'an unknown bus',
        domainXml({ devices: diskXml('/x').replace("bus='virtio'", "bus='bogus'") }),
        ErrorCode.XML_ERROR,
        "XML error: Invalid value for attribute 'bus' in element 'target': 'bogus'.",
      ],
      [
        'one target twice',
        domainXml({ devices: diskXml('/x') + diskXml('/y') }),
        ErrorCode.XML_ERROR,
        "XML error: target 'vda' duplicated for disk sources '/x' and '/y'",
      ],
    ])('are refused with %s', async (_what, xml, code, message) => {
      const error = await refusal(defineXml(xml))
      expect({ code: error.code, message: error.message }).toEqual({ code, message })
    })

    it('are refused when the document is not well-formed', async () => {
      const error = await refusal(defineXml('<domain><name>x'))
      expect(error.code).toBe(ErrorCode.XML_DETAIL)
      expect(error.message).toContain('(domain_definition):1:')
    })

    it('carry one metadata element per namespace, given back without it', async () => {
      const dom = await define({
        metadata: `<mark xmlns='${markUri}'><uid>a&amp;b</uid></mark><o:other xmlns:o='https://example.org/o' id='1'/>`,
      })
      expect((await metadata(dom)).replaceAll(/\s+/g, '')).toBe('<mark><uid>a&amp;b</uid></mark>')
      expect(await metadata(dom, 0, 'https://example.org/o')).toBe('<other id="1"/>')
      expect((await refusal(metadata(dom, 0, 'https://example.org/none'))).code).toBe(ErrorCode.NO_DOMAIN_METADATA)
    })

    it('have their metadata set, replaced and removed', async () => {
      const dom = await define()
      expect((await refusal(metadata(dom))).code).toBe(ErrorCode.NO_DOMAIN_METADATA)
      await setMetadata(dom, "<mark id='1'><uid>u</uid></mark>")
      expect((await metadata(dom)).replaceAll(/\s+/g, ' ')).toMatch(/^<mark id="1">\s?<uid>u<\/uid>\s?<\/mark>$/)
      await setMetadata(dom, "<mark id='2'/>")
      expect(await metadata(dom, config)).toBe('<mark id="2"/>')
      const described = await libvirt.call('DOMAIN_GET_XML_DESC', { dom, flags: 0 }, callOptions)
      expect(described.xml).toMatch(
        /<peer:mark xmlns:peer=["']https:\/\/example.org\/peer-suite\/1["'] id=["']2["']\/>/,
      )
      await setMetadata(dom, null)
      expect((await refusal(metadata(dom))).code).toBe(ErrorCode.NO_DOMAIN_METADATA)
      const malformed = await refusal(setMetadata(dom, '<mark'))
      expect(malformed.code).toBe(ErrorCode.XML_DETAIL)
      expect(malformed.message).toContain('(metadata_xml):1:')
      expect((await refusal(setMetadata(dom, '<mark/>', live))).code).toBe(ErrorCode.OPERATION_INVALID)
    })

    it('remember whether they start with the host', async () => {
      const dom = await define()
      expect(await libvirt.call('DOMAIN_GET_AUTOSTART', { dom }, callOptions)).toEqual({ autostart: 0 })
      await libvirt.call('DOMAIN_SET_AUTOSTART', { dom, autostart: 1 }, callOptions)
      expect(await libvirt.call('DOMAIN_GET_AUTOSTART', { dom }, callOptions)).toEqual({ autostart: 1 })
    })

    it('are listed by what they are', async () => {
      const dom = await define()
      const list = async (flags: number, need = 1) =>
        libvirt.call('CONNECT_LIST_ALL_DOMAINS', { need_results: need, flags }, callOptions)
      for (const flags of [0, 2, 4, 64, 1 | 2]) expect((await list(flags)).domains).toContainEqual(dom)
      for (const flags of [1, 8, 16, 32]) expect((await list(flags)).domains).not.toContainEqual(dom)
      const counted = await list(0, 0)
      expect(counted.domains).toEqual([])
      expect(counted.ret).toBeGreaterThan(0)
      const { retStats } = await libvirt.call(
        'CONNECT_GET_ALL_DOMAIN_STATS',
        { doms: [], stats: 1, flags: 0 },
        callOptions,
      )
      const record = retStats.find((entry) => entry.dom.uuid === domainUuid)
      expect(record?.params).toContainEqual({ field: 'state.state', value: { kind: 'int', value: shutoff } })
    })

    it('are gone once undefined, and can be neither ended nor asked', async () => {
      const dom = await define()
      const stopped = await refusal(libvirt.call('DOMAIN_DESTROY', { dom }, callOptions))
      expect(stopped.code).toBe(ErrorCode.OPERATION_INVALID)
      expect(stopped.message).toBe('Requested operation is not valid: domain is not running')
      const unknownFlag = await refusal(libvirt.call('DOMAIN_UNDEFINE_FLAGS', { dom, flags: 0x100000 }, callOptions))
      expect(unknownFlag.code).toBe(ErrorCode.INVALID_ARG)
      await libvirt.call('DOMAIN_UNDEFINE_FLAGS', { dom, flags: 7 }, callOptions)
      expect((await refusal(byUuid(domainUuid))).code).toBe(ErrorCode.NO_DOMAIN)
      const again = await refusal(libvirt.call('DOMAIN_UNDEFINE_FLAGS', { dom, flags: 7 }, callOptions))
      expect(again.code).toBe(ErrorCode.NO_DOMAIN)
    })
  })
}

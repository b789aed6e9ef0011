// What reaches a guest over real RPC: the files of its seed and its domain document as the host keeps them, and what later edits of
// the config leave alone.
import { randomBytes } from 'node:crypto'
import { gzipSync } from 'node:zlib'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { Secret } from '../../../src/lib/secret.ts'
import { guestAgentScript } from '../../../src/provider/nocloud/vendor-data.ts'
import { readIso } from '../../support/iso-reader.ts'
import { context, createRequest, deleteRequest, failure, startWorld, type World } from './stub-world.ts'

const { instanceName: name } = createRequest()

let world: World
beforeEach(async () => {
  world = await startWorld()
})
afterEach(async () => {
  await world[Symbol.asyncDispose]()
})

const seedFiles = () => {
  const seed = world.stub.volume(`${name}-seed.iso`)
  if (seed === undefined) throw new Error('there is no seed')
  return readIso(seed.bytes()).files
}
const documentOf = () => {
  const { domains } = world.stub.host
  return domains.document(domains.byName(name), true)
}

describe('the seed on the host', () => {
  it.each<[string, Buffer]>([
    ['cloud-config', Buffer.from('#cloud-config\npackages: [ä]\n')],
    ['gzip', gzipSync('#cloud-config\npackages: [squid]\n')],
    ['a Jinja template', Buffer.from('## template: jinja\n#cloud-config\nhostname: {{ v1.instance_id }}\n')],
    [
      'a MIME archive',
      Buffer.from('MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary="b"\r\n\r\n--b--\r\n'),
    ],
    ['a script with Windows line ends and no last one', Buffer.from('#!/bin/sh\r\necho \0')],
    ['300 KiB of anything', randomBytes(300 * 1024)],
  ])('has user-data byte for byte: %s', async (_what, bytes) => {
    await world.provider().create(createRequest('a', { userData: new Secret(bytes) }), context())
    expect(seedFiles().get('user-data')?.equals(bytes)).toBe(true)
    expect(seedFiles().get('meta-data')?.toString()).toBe(`instance-id: ${name}\nlocal-hostname: ${name}\n`)
  })

  const own = '#cloud-config\nntp: {enabled: true}\n'
  it.each<[string, object, RegExp]>([
    ['the script', {}, /^#!\/bin\/sh\n/],
    ['nothing without the agent', { installGuestAgent: false }, /^$/],
    [
      'the document alone without the agent',
      { installGuestAgent: false, vendorData: own },
      /^#cloud-config\nntp: .*\n$/,
    ],
    [
      'both, with the document first',
      { vendorData: own },
      /^MIME-Version: 1\.0\n[^]*text\/plain[^]*text\/x-shellscript/,
    ],
  ])('has in its vendor-data %s', async (_what, block, expected) => {
    await world.provider(block).create(createRequest(), context())
    const text = seedFiles().get('vendor-data')?.toString() ?? 'none'
    expect(text).toMatch(expected)
    if (text.startsWith('#!')) expect(text).toBe(guestAgentScript)
  })
})

describe('the domain on the host', () => {
  it.each<['uefi' | 'bios']>([['uefi'], ['bios']])('boots from %s, and is deleted whole', async (firmware) => {
    const provider = world.provider({ images: { tiny: { url: world.images.url, firmware } } })
    await provider.create(createRequest(), context())
    const xml = documentOf()
    const efi = [/<os [^>]*firmware=['"]efi['"]/.test(xml), xml.includes('secure-boot')]
    expect(efi).toEqual(firmware === 'uefi' ? [true, true] : [false, false])
    expect(world.stub.domain(name)?.files).toEqual([
      world.stub.volume(`${name}.qcow2`)?.path,
      world.stub.volume(`${name}-seed.iso`)?.path,
    ])
    // The host refuses to undefine a domain of UEFI whose NVRAM would stay.
    await provider.delete(deleteRequest(), context())
    expect(world.stub.domains()).toEqual([])
  })
})

describe('an edit of the catalogue', () => {
  it('changes nothing for an instance that is there, and counts for the next one', async () => {
    await world.provider().create(createRequest('a'), context())
    const before = documentOf()
    const changing = [
      'DOMAIN_DEFINE_XML_FLAGS',
      'DOMAIN_DEFINE_XML',
      'DOMAIN_CREATE',
      'STORAGE_VOL_CREATE_XML',
    ] as const
    const changes = () => changing.map((procedure) => world.stub.calls(procedure))
    const made = changes()
    const edited = world.provider({
      diskSizeGb: 3,
      vendorData: '#cloud-config\n{}\n',
      images: { tiny: { url: `${world.images.url}?new`, firmware: 'bios' } },
      machineTypes: { small: { vcpus: 4, memoryMiB: 2048 } },
    })
    expect(await edited.create(createRequest('a'), context())).toBe(`hosts/lab/domains/${name}`)
    expect(changes()).toEqual(made)
    expect(documentOf()).toBe(before)
    const { instanceName: next } = createRequest('b')
    await edited.create(createRequest('b'), context())
    const { domains } = world.stub.host
    expect(domains.document(domains.byName(next), true)).toMatch(/<vcpu[^>]*>4<\/vcpu>/)
    expect(world.stub.volume(`${next}.qcow2`)?.capacity).toBe(3 * 1024 ** 3)
  })
})

describe('an image server that refuses HEAD', () => {
  it.each([
    [404, { kind: 'permanent', code: 'ImageNotAvailable' }],
    [410, { kind: 'permanent', code: 'ImageNotAvailable' }],
    [429, { kind: 'transient', code: 'ImageServerError' }],
    [503, { kind: 'transient', code: 'ImageServerError' }],
  ])('is judged by what it answers to GET: %i', async (status, refusal) => {
    world.images.answer = (request, response) => response.writeHead(request.method === 'HEAD' ? 405 : status).end()
    const error = await failure(world.provider().create(createRequest(), context()))
    expect(error).toMatchObject(refusal)
    expect(error.message).toContain(String(status))
    expect(world.images.requests.map((request) => request.split(' ')[0])).toEqual(['HEAD', 'GET'])
    expect([world.stub.domains(), world.stub.volumes()]).toEqual([[], []])
  })
})

// Pools, volumes and their data.
import { createHash, randomBytes } from 'node:crypto'
import { Readable } from 'node:stream'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { sleep, systemClock } from '../../../src/lib/clock.ts'
import type { LibvirtConnection } from '../../../src/wire/libvirt/connection.ts'
import { ErrorCode } from '../../../src/wire/libvirt/error-codes.ts'
import { MessageStatus } from '../../../src/wire/libvirt/frame.ts'
import type { StoragePool, StorageVol } from '../../../src/wire/libvirt/protocol.gen.ts'
import {
  callOptions,
  Ending,
  errorOf,
  openLibvirt,
  prefix,
  RawClient,
  refusal,
  streamPacket,
  type LibvirtPeer,
} from './peer.ts'
import { clearVolumes, createVolume, fakeQcow2, rawVolume } from './volumes.ts'

export function suiteOfStorage(open: () => Promise<LibvirtPeer>): void {
  describe('storage', () => {
    const ending = new Ending()
    let peer: LibvirtPeer
    let libvirt: LibvirtConnection
    let pool: StoragePool
    beforeAll(async () => {
      peer = await open()
      ending.add(() => peer.close())
      libvirt = await openLibvirt(peer)
      ending.add(() => libvirt.close())
      pool = (await libvirt.call('STORAGE_POOL_LOOKUP_BY_NAME', { name: peer.pool }, callOptions)).pool
      await clearVolumes(libvirt, pool)
    })
    afterEach(async () => {
      await clearVolumes(libvirt, pool)
    })
    afterAll(() => ending.run())

    const make = (xml: string) => createVolume(libvirt, pool, xml)
    const info = (vol: StorageVol) => libvirt.call('STORAGE_VOL_GET_INFO', { vol }, callOptions)
    const document = async (vol: StorageVol) =>
      (await libvirt.call('STORAGE_VOL_GET_XML_DESC', { vol, flags: 0 }, callOptions)).xml

    async function upload(vol: StorageVol, data: Buffer): Promise<void> {
      await libvirt.upload(vol, Readable.from([data]), { length: BigInt(data.length), timeoutMs: 120_000 })
    }

    async function download(vol: StorageVol, offset = 0n, length = 0n): Promise<Buffer> {
      return await libvirt.downloadAll(vol, { offset, length, maxBytes: 2 ** 24, timeoutMs: 120_000 })
    }

    it('finds a pool by name and UUID, whatever name comes with the UUID', async () => {
      const { uuid } = pool
      expect((await libvirt.call('STORAGE_POOL_LOOKUP_BY_UUID', { uuid }, callOptions)).pool).toEqual(pool)
      const facts = await libvirt.call('STORAGE_POOL_GET_INFO', { pool: { name: 'other', uuid } }, callOptions)
      expect(facts.state).toBe(2)
      expect(facts.capacity).toBeGreaterThan(0n)
      expect(facts.available).toBeLessThanOrEqual(facts.capacity)
      const { xml } = await libvirt.call('STORAGE_POOL_GET_XML_DESC', { pool, flags: 0 }, callOptions)
      expect(xml).toContain(`<path>${peer.poolDir}</path>`)
    })

    it('does not find other pools', async () => {
      const byName = await refusal(libvirt.call('STORAGE_POOL_LOOKUP_BY_NAME', { name: 'nope' }, callOptions))
      expect(byName.code).toBe(ErrorCode.NO_STORAGE_POOL)
      expect(byName.message).toBe("Storage pool not found: no storage pool with matching name 'nope'")
      const uuid = '11111111-2222-3333-4444-555555555555'
      const byUuid = await refusal(libvirt.call('STORAGE_POOL_GET_INFO', { pool: { name: 'x', uuid } }, callOptions))
      expect(byUuid.code).toBe(ErrorCode.NO_STORAGE_POOL)
      expect(byUuid.message).toContain(`no storage pool with matching uuid '${uuid}' (x)`)
    })

    it('creates a raw volume, finds it in every way, and deletes it once', async () => {
      const name = `${prefix}raw.img`
      const vol = await make(rawVolume(name, 1_048_576))
      const path = `${peer.poolDir}/${name}`
      expect(vol).toEqual({ pool: peer.pool, name, key: path })
      expect(await libvirt.call('STORAGE_VOL_GET_PATH', { vol }, callOptions)).toEqual({ name: path })
      expect(await info(vol)).toMatchObject({ type: 0, capacity: 1_048_576n })
      for (const found of [
        await libvirt.call('STORAGE_VOL_LOOKUP_BY_NAME', { pool, name }, callOptions),
        await libvirt.call('STORAGE_VOL_LOOKUP_BY_PATH', { path }, callOptions),
        await libvirt.call('STORAGE_VOL_LOOKUP_BY_KEY', { key: path }, callOptions),
      ]) {
        expect(found.vol).toEqual(vol)
      }
      expect(await document(vol)).toContain("<format type='raw'/>")
      const listed = await libvirt.call(
        'STORAGE_POOL_LIST_ALL_VOLUMES',
        { pool, need_results: 1, flags: 0 },
        callOptions,
      )
      expect(listed.vols).toContainEqual(vol)
      expect(listed.ret).toBe(listed.vols.length)
      // The key is not looked at.
      expect(await info({ ...vol, key: '/nope' })).toMatchObject({ capacity: 1_048_576n })

      const again = await refusal(make(rawVolume(name, 1)))
      expect(again.code).toBe(ErrorCode.STORAGE_VOL_EXIST)
      expect(again.message).toBe(`storage volume '${name}' exists already`)

      await libvirt.call('STORAGE_VOL_DELETE', { vol, flags: 0 }, callOptions)
      const gone = await refusal(libvirt.call('STORAGE_VOL_DELETE', { vol, flags: 0 }, callOptions))
      expect(gone.code).toBe(ErrorCode.NO_STORAGE_VOL)
      expect(gone.message).toBe(`Storage volume not found: no storage vol with matching name '${name}'`)
    })

    it.each([
      [
        'no name',
        '<volume><capacity>1</capacity></volume>',
        ErrorCode.XML_ERROR,
        'XML error: missing volume name element',
      ],
      [
        'an unknown format',
        `<volume><name>${prefix}x</name><capacity>1</capacity><target><format type='bogus'/></target></volume>`,
        ErrorCode.CONFIG_UNSUPPORTED,
        'unsupported configuration: unknown volume format type bogus',
      ],
      [
        'a slash in its name',
        '<volume><name>../x.img</name><capacity>1</capacity></volume>',
        ErrorCode.OPERATION_INVALID,
        "Requested operation is not valid: volume name '../x.img' cannot contain '/'",
      ],
      [
        'a backing file that is not there',
        `<volume><name>${prefix}o</name><capacity>1</capacity><target><format type='qcow2'/></target>` +
          `<backingStore><path>/nope.qcow2</path><format type='qcow2'/></backingStore></volume>`,
        ErrorCode.SYSTEM_ERROR,
        'inaccessible backing store volume /nope.qcow2: No such file or directory',
      ],
    ])('refuses a volume with %s', async (_what, xml, code, message) => {
      const error = await refusal(libvirt.call('STORAGE_VOL_CREATE_XML', { pool, xml, flags: 0 }, callOptions))
      expect({ code: error.code, message: error.message }).toEqual({ code, message })
    })

    it('takes data and gives it back, whole and in part', async () => {
      const data = randomBytes(700_001)
      const vol = await make(rawVolume(`${prefix}data.img`, data.length))
      await upload(vol, data)
      expect((await info(vol)).capacity).toBe(BigInt(data.length))
      const all = await download(vol)
      expect(createHash('sha256').update(all).digest('hex')).toBe(createHash('sha256').update(data).digest('hex'))
      expect(await download(vol, 300_000n, 1000n)).toEqual(data.subarray(300_000, 301_000))
      expect(await download(vol, 700_000n, 1000n)).toEqual(data.subarray(700_000))
    })

    it('reads a volume that was never written as zeros', async () => {
      const vol = await make(rawVolume(`${prefix}zero.img`, 5000))
      expect(await download(vol)).toEqual(Buffer.alloc(5000))
    })

    it('lets an empty volume grow with what is uploaded without a length', async () => {
      const image = fakeQcow2(3 * 2 ** 30)
      const vol = await make(rawVolume(`${prefix}chunked.qcow2`, 0))
      expect((await info(vol)).capacity).toBe(0n)
      await libvirt.upload(vol, Readable.from([image.subarray(0, 70_000), image.subarray(70_000)]), {
        timeoutMs: 120_000,
      })
      expect((await download(vol)).equals(image)).toBe(true)
      await libvirt.call('STORAGE_POOL_REFRESH', { pool, flags: 0 }, callOptions)
      expect((await info(vol)).capacity).toBe(3n * 2n ** 30n)
    })

    it('tells when a volume was last written, at once and without a refresh', async () => {
      const mtime = async () => Number(/<mtime>([0-9.]+)<\/mtime>/.exec(await document(vol))?.[1])
      const vol = await make(rawVolume(`${prefix}touched.img`, 0))
      const made = await mtime()
      expect(Math.abs(made - Date.now() / 1000)).toBeLessThan(3600)
      await sleep(systemClock, 20)
      await download(vol)
      expect(await mtime()).toBe(made)
      await upload(vol, Buffer.from('a'))
      const written = await mtime()
      expect(written).toBeGreaterThan(made)
      await sleep(systemClock, 20)
      await upload(vol, Buffer.from('a'))
      expect(await mtime()).toBeGreaterThan(written)
    })

    it('reads no more than there is, when more is asked for', async () => {
      const vol = await make(rawVolume(`${prefix}less.img`, 0))
      expect(await download(vol, 0n, 4096n)).toEqual(Buffer.alloc(0))
      await upload(vol, Buffer.from('abc'))
      expect((await download(vol, 0n, 4096n)).toString()).toBe('abc')
    })

    it('overwrites from the start and keeps the rest', async () => {
      const vol = await make(rawVolume(`${prefix}over.img`, 10))
      await upload(vol, Buffer.from('0123456789'))
      await upload(vol, Buffer.from('abc'))
      expect((await download(vol)).toString()).toBe('abc3456789')
    })

    it('learns format and size of an uploaded qcow2 image when the pool is refreshed', async () => {
      const image = fakeQcow2(3 * 2 ** 30)
      const vol = await make(rawVolume(`${prefix}base.qcow2`, image.length))
      await upload(vol, image)
      await libvirt.call('STORAGE_POOL_REFRESH', { pool, flags: 0 }, callOptions)
      expect((await info(vol)).capacity).toBe(3n * 2n ** 30n)
      expect(await document(vol)).toContain("<format type='qcow2'/>")
    })

    it('creates an overlay that names its backing file', async () => {
      const base = `${prefix}base2.qcow2`
      await make(rawVolume(base, 2 ** 20, 'qcow2'))
      const name = `${prefix}overlay.qcow2`
      const path = `${peer.poolDir}/${base}`
      const backing = `<backingStore><path>${path}</path><format type='qcow2'/></backingStore>`
      const vol = await make(rawVolume(name, 2 ** 30, 'qcow2').replace('</volume>', `${backing}</volume>`))
      expect((await info(vol)).capacity).toBe(2n ** 30n)
      expect((await info(vol)).allocation).toBeLessThan(2n ** 21n)
      expect((await document(vol)).replaceAll(/\s+/g, '')).toContain(`<backingStore><path>${path}</path>`)
    })

    it('grows a volume, and shrinks it only when told so', async () => {
      const vol = await make(rawVolume(`${prefix}grow.img`, 2 ** 20))
      await libvirt.call('STORAGE_VOL_RESIZE', { vol, capacity: 2n ** 21n, flags: 0 }, callOptions)
      expect((await info(vol)).capacity).toBe(2n ** 21n)
      const error = await refusal(libvirt.call('STORAGE_VOL_RESIZE', { vol, capacity: 4096n, flags: 0 }, callOptions))
      expect(error.code).toBe(ErrorCode.INVALID_ARG)
      await libvirt.call('STORAGE_VOL_RESIZE', { vol, capacity: 4096n, flags: 4 }, callOptions)
      expect((await info(vol)).capacity).toBe(4096n)
    })

    describe('streams by hand', () => {
      let client: RawClient
      afterEach(() => client.close())

      async function begin(name: string, length: bigint): Promise<StorageVol> {
        const vol = await make(rawVolume(name, 100))
        client = new RawClient(await peer.open())
        await client.call('CONNECT_OPEN', 1, { name: 'qemu:///system', flags: 0 })
        const reply = await client.call('STORAGE_VOL_UPLOAD', 2, { vol, offset: 0n, length, flags: 0 })
        expect(reply.status).toBe(MessageStatus.OK)
        return vol
      }

      const send = (status: keyof typeof MessageStatus, data?: Uint8Array) =>
        client.write(streamPacket('STORAGE_VOL_UPLOAD', 2, status, data))

      it('take less than was announced without a word', async () => {
        const vol = await begin(`${prefix}short.img`, 1000n)
        send('CONTINUE', Buffer.from('abc'))
        send('OK')
        expect((await client.streamEnd(2)).status).toBe(MessageStatus.OK)
        expect((await download(vol)).subarray(0, 4)).toEqual(Buffer.from('abc\0'))
      })

      it('end in what looks like a full disk when more than announced comes', async () => {
        await begin(`${prefix}long.img`, 10n)
        send('CONTINUE', Buffer.alloc(100_000, 'x'))
        const error = errorOf(await client.streamEnd(2))
        expect(error).toMatchObject({ code: ErrorCode.SYSTEM_ERROR, domain: 38, int1: 28 })
        expect(error.message).toBe('cannot write to stream: No space left on device')
        // The connection goes on.
        expect((await client.call('CONNECT_GET_HOSTNAME', 3, null)).status).toBe(MessageStatus.OK)
      })

      it('are given up by the client and keep what was written', async () => {
        const vol = await begin(`${prefix}abort.img`, 0n)
        send('CONTINUE', Buffer.from('kept'))
        // Queued data is lost by an abort; a call behind it shows that it was taken.
        await client.call('CONNECT_GET_HOSTNAME', 3, null)
        send('ERROR')
        expect((await client.streamEnd(2)).status).toBe(MessageStatus.OK)
        expect((await download(vol)).length).toBe(100)
      })

      it('are refused for a volume that is not there', async () => {
        const vol = await begin(`${prefix}refused.img`, 0n)
        send('OK')
        await client.streamEnd(2)
        const missing = { ...vol, name: 'nope' }
        const reply = await client.call('STORAGE_VOL_UPLOAD', 4, { vol: missing, offset: 0n, length: 0n, flags: 0 })
        expect(errorOf(reply).code).toBe(ErrorCode.NO_STORAGE_VOL)
      })
    })
  })
}

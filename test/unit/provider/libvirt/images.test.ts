// The image cache: what counts as whole, what is fetched again, and how a fetch that fails ends.
import { createHash } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { createMetrics } from '../../../../src/observe/metrics.ts'
import type { ImageServer } from '../../../../src/provider/libvirt/image-http.ts'
import { FakeHost } from './fake-host.ts'
import { context, createRequest, imageBytes, imageDigest, imageServer, name, operator } from './world.ts'

const base = 'base-debian.qcow2'
const url = 'https://images.example/d.qcow2'
const gib = 1n << 30n

const pinned = (sha256: string) => ({ images: { debian: { url, sha256 } } })
const volumesOf = (host: FakeHost) => [...host.volumes.keys()].filter((volume) => volume.startsWith('base-')).sort()

function cached(content = imageBytes, facts: object | null = { url }): FakeHost {
  const host = new FakeHost()
  host.addVolume(base, content)
  host.addVolume(`${base}.sha256`, Buffer.from(createHash('sha256').update(content).digest('hex')))
  if (facts !== null) host.addVolume(`${base}.info`, Buffer.from(JSON.stringify(facts)))
  return host
}

describe('a cached image', () => {
  it('is used without asking its server, with its facts or without', async () => {
    for (const facts of [{ url }, null]) {
      const server = imageServer()
      await operator(cached(imageBytes, facts), { imageServer: server }).create(createRequest(), context())
      expect(server.asked).toEqual([])
    }
  })

  it('is used when the configured digest is its own, whatever its URL was', async () => {
    const server = imageServer()
    const host = cached(imageBytes, { url: 'https://elsewhere.example/d' })
    await operator(host, { imageServer: server, block: pinned(imageDigest.toUpperCase()) }).create(
      createRequest(),
      context(),
    )
    expect(server.asked).toEqual([])
  })

  it.each<[string, (host: FakeHost) => void]>([
    ['without a marker', (host) => host.volumes.delete(`${base}.sha256`)],
    ['with a marker that is no digest', (host) => host.addVolume(`${base}.sha256`, Buffer.alloc(64))],
    ['with a marker cut off', (host) => host.addVolume(`${base}.sha256`, Buffer.from('abc'))],
    ['of another URL', (host) => host.addVolume(`${base}.info`, Buffer.from('{"url":"https://old.example/"}'))],
  ])('%s is fetched again in place', async (_what, damage) => {
    const host = cached(Buffer.from('old'))
    damage(host)
    await operator(host).create(createRequest(), context())
    expect(host.volumes.get(base)?.content.equals(imageBytes)).toBe(true)
    expect(host.volumes.get(`${base}.sha256`)?.content.toString()).toBe(imageDigest)
    expect(volumesOf(host)).toEqual([base, `${base}.info`, `${base}.sha256`])
  })

  it('is left alone while overlays stand on it, and the new one gets a name of its own, which is found again', async () => {
    const host = cached(Buffer.from('old'))
    host.addVolume('proxy-other.qcow2', Buffer.from('in use'), `/pool/${base}`)
    const deps = { block: pinned(imageDigest) }
    await operator(host, deps).create(createRequest(), context())
    const second = `base-debian-${imageDigest.slice(0, 12)}.qcow2`
    expect(host.volumes.get(base)?.content.toString()).toBe('old')
    expect(host.volumes.get(second)?.content.equals(imageBytes)).toBe(true)
    expect(host.volumes.get(`${name}.qcow2`)?.backing).toBe(`/pool/${second}`)
    host.domains.clear()
    const server = imageServer()
    await operator(host, { ...deps, imageServer: server }).create(createRequest(), context())
    expect(server.asked).toEqual([])
  })

  it('that is known is looked at again: another operator may have put another one in its place', async () => {
    const host = new FakeHost()
    const provider = operator(host, { block: pinned(imageDigest) })
    await provider.create(createRequest(), context())
    host.domains.clear()
    for (const volume of [...host.volumes.keys()]) if (volume.startsWith(name)) host.volumes.delete(volume)
    host.addVolume(base, Buffer.from('other'))
    host.addVolume(`${base}.sha256`, Buffer.from('b'.repeat(64)))
    await provider.create(createRequest(), context())
    expect(host.volumes.get(base)?.content.equals(imageBytes)).toBe(true)
    expect(host.markOf([...host.domains.keys()][0] ?? '')).toMatchObject({ mark: { imageDigest } })
  })

  it('has facts without the credentials of its URL', async () => {
    const host = new FakeHost()
    const image = 'https://user:secret@images.example/d.qcow2'
    const request = createRequest({ placement: { machineType: 'small', image } })
    await operator(host).create(request, context())
    const name = [...host.volumes.keys()].find((volume) => volume.endsWith('.info'))
    const facts = host.volumes.get(name ?? '')?.content.toString() ?? ''
    expect(JSON.parse(facts)).toMatchObject({ url, sizeBytes: 3000, format: 'qcow2', installation: 'home' })
    expect(facts).not.toContain('secret')
    const server = imageServer()
    host.domains.clear()
    await operator(host, { imageServer: server }).create(request, context())
    expect(server.asked).toEqual([])
  })
})

describe('a fetch', () => {
  const run = async (server: ImageServer, block = {}, image = 'debian') => {
    const host = new FakeHost()
    const error: unknown = await operator(host, { imageServer: server, block })
      .create(createRequest({ placement: { machineType: 'small', image } }), context())
      .catch((thrown: unknown) => thrown)
    expect(host.domains.size).toBe(0)
    expect([...host.volumes.keys()]).toEqual([])
    return error
  }

  it.each([
    [{ status: 404 }, 'permanent', 'ImageNotAvailable', /answered 404; correct kvm2\.images\.debian\.url/],
    [{ status: 403 }, 'permanent', 'ImageNotAvailable', /403/],
    [{ status: 429 }, 'transient', 'ImageServerError', /429/],
    [{ status: 503 }, 'transient', 'ImageServerError', /503/],
    [
      { length: undefined },
      'permanent',
      'ImageLengthUnknown',
      /neither a Content-Length nor chunks.*; point kvm2\.images\.debian\.url at another server, or set kvm2\.images\.debian\.sha256/,
    ],
    [{ encoding: 'gzip' }, 'permanent', 'ImageEncoded', /Content-Encoding gzip although none was asked for/],
    [
      { isDowngraded: true },
      'permanent',
      'ImageRedirectUnsafe',
      /redirects from https to http.*stays with https, or set kvm2\.images\.debian\.sha256/,
    ],
    [{ length: 0 }, 'permanent', 'ImageEmpty', /Content-Length 0; correct kvm2\.images\.debian\.url/],
    [{ body: imageBytes.subarray(0, 2500) }, 'transient', 'ImageDownloadFailed', /ended after 2500 of 3000 bytes/],
    [{ body: Buffer.alloc(4000) }, 'transient', 'ImageDownloadFailed', /more than the 3000 bytes/],
  ])('answered by %j leaves nothing behind', async (answer, kind, code, words) => {
    const error = await run(imageServer(answer))
    expect(error).toMatchObject({ kind, code, origin: kind === 'permanent' ? 'environment' : undefined })
    expect(String(error)).toMatch(words)
  })

  it('over a redirect from https to http is taken when its digest is known', async () => {
    const host = new FakeHost()
    const deps = { block: pinned(imageDigest), imageServer: imageServer({ isDowngraded: true }) }
    await operator(host, deps).create(createRequest(), context())
    expect(host.volumes.get(base)?.content.equals(imageBytes)).toBe(true)
  })

  it('clears away what questions for the time have left', async () => {
    const host = new FakeHost()
    host.addVolume(`${base}.time.1a2b`, Buffer.alloc(0))
    host.addVolume('base-other.qcow2.time.1a2b', Buffer.alloc(0))
    await operator(host).create(createRequest(), context())
    expect([...host.volumes.keys()].filter((volume) => volume.includes('.time.'))).toEqual([
      'base-other.qcow2.time.1a2b',
    ])
  })

  it('of the wrong bytes names both digests and the field', async () => {
    const error = await run(imageServer(), pinned('a'.repeat(64)))
    expect(error).toMatchObject({ kind: 'permanent', origin: 'environment', code: 'ImageDigestMismatch' })
    expect(String(error)).toContain(imageDigest)
    expect(String(error)).toContain(`kvm2.images.debian.sha256 is ${'a'.repeat(64)}`)
  })

  it('from a URL in the placement is the spec to blame, and its secrets are not shown', async () => {
    const error = await run(imageServer({ status: 404 }), {}, 'https://u:secret@x.example/i.qcow2?sig=secret')
    expect(error).toMatchObject({ kind: 'permanent', origin: 'spec' })
    expect(String(error)).toContain(
      'image https://x.example/i.qcow2 for host a: its server answered 404; correct placement.image',
    )
    expect(String(error)).not.toContain('secret')
  })

  it('that the network ends is transient', async () => {
    const server = { ...imageServer(), ask: () => Promise.reject(new Error('getaddrinfo ENOTFOUND')) }
    expect(await run(server)).toMatchObject({ kind: 'transient', code: 'ImageDownloadFailed' })
  })

  it('goes on by GET when HEAD is refused', async () => {
    const plain = imageServer()
    const server: ImageServer = {
      ...plain,
      ask: async (method, asked, signal) => ({
        ...(await plain.ask(method, asked, signal)),
        ...(method === 'HEAD' ? { status: 405, lengthBytes: undefined } : {}),
      }),
    }
    await operator(new FakeHost(), { imageServer: server }).create(createRequest(), context())
    expect(plain.asked).toEqual(['HEAD', 'GET', 'GET'])
  })

  it('says how far it is and counts its bytes', async () => {
    const metrics = createMetrics()
    const kept = context()
    await operator(new FakeHost(), { metrics }).create(createRequest(), kept)
    expect(kept.said[0]).toBe('downloading image debian to host a: 0 B of 2.9 KiB (0 %)')
    expect((await metrics.imageDownloadBytes.get()).values[0]?.value).toBe(imageBytes.byteLength)
  })
})

describe('room in the pool', () => {
  const needed = BigInt(imageBytes.byteLength) + gib + 16n * 1024n * 1024n

  it('is checked before anything is made: image, overlay and seed', async () => {
    const host = new FakeHost()
    host.availableBytes = needed - 1n
    const error: unknown = await operator(host)
      .create(createRequest(), context())
      .catch((thrown: unknown) => thrown)
    expect(error).toMatchObject({ kind: 'quotaExceeded', code: 'PoolSpace' })
    expect(String(error)).toContain(`storage pool default has ${needed - 1n} bytes available and ${needed} are needed`)
    expect(host.changes).toEqual([])
    host.availableBytes = needed
    await operator(host).create(createRequest(), context())
  })

  it('is checked without the image when that is cached', async () => {
    const host = cached()
    host.availableBytes = gib
    await expect(operator(host).create(createRequest(), context())).rejects.toMatchObject({ kind: 'quotaExceeded' })
    expect(host.changes).toEqual([])
    host.availableBytes = gib + 16n * 1024n * 1024n
    await operator(host).create(createRequest(), context())
  })

  it('is no matter to an instance that runs already, nor is the pool or the image', async () => {
    const host = new FakeHost()
    await operator(host).create(createRequest(), context())
    host.poolState = 0
    host.volumes.delete(`${base}.sha256`)
    host.changes.length = 0
    await operator(host).create(createRequest(), context())
    expect(host.changes).toEqual([])
  })

  it('is none in a pool that does not run', async () => {
    for (const host of [new FakeHost(), cached()]) {
      host.poolState = 0
      await expect(operator(host).create(createRequest(), context())).rejects.toMatchObject({
        kind: 'permanent',
        origin: 'environment',
        code: 'PoolNotActive',
        message: expect.stringContaining(
          'storage pool default is not running (inactive); on the host: virsh pool-start default',
        ) as string,
      })
      expect(host.changes).toEqual([])
    }
  })
})

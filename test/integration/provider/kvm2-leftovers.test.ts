// What instances leave behind on a host, and which of them are outdated, over real SSH and RPC.
import { createHash } from 'node:crypto'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { Leftover, Provider } from '../../../src/provider/contract.ts'
import {
  cachedImage,
  context,
  createRequest,
  deleteRequest,
  failure,
  imageBytes,
  startWorld,
  volumeNames,
  type World,
} from './stub-world.ts'

const { instanceName: name } = createRequest()
const providerID = `hosts/lab/domains/${name}`
const volumes = [`${name}-seed.iso`, `${name}.qcow2`]

let world: World
let provider: Provider
beforeEach(async () => {
  world = await startWorld()
  provider = world.provider()
})
afterEach(async () => {
  await world[Symbol.asyncDispose]()
})

/** Takes the domain away and leaves its volumes, as a hand on the host does. */
function loseDomain(instance = name): void {
  const { host } = world.stub
  const domain = host.domains.byName(instance)
  host.cut(domain)
  host.domains.stop(domain, 2)
  host.domains.undefine(domain, true)
}

function seedContent() {
  const seed = world.stub.pool().volumes.get(`${name}-seed.iso`)
  if (seed === undefined) throw new Error('there is no seed')
  return seed.content
}

async function onlyLeftover(): Promise<Leftover> {
  const [leftover, ...more] = await provider.leftovers(context())
  if (leftover === undefined || more.length > 0) throw new Error('there is not exactly one leftover')
  return leftover
}

describe('leftovers', () => {
  it('are volumes without their domain, with the Proxy they were for and their age, and can be removed', async () => {
    await provider.create(createRequest('a'), context())
    await provider.create(createRequest('b'), context())
    expect(await provider.leftovers(context())).toEqual([])
    loseDomain()
    const leftover = await onlyLeftover()
    expect(leftover).toMatchObject({ target: 'lab', instanceName: name, uid: 'uid-a' })
    expect([...leftover.volumes].sort()).toEqual(volumes)
    expect(leftover.ageMs).toBeGreaterThanOrEqual(0)
    expect(leftover.ageMs).toBeLessThan(60_000)
    await provider.remove(leftover, context())
    await provider.remove(leftover, context())
    expect(volumeNames(world).filter((volume) => volume.startsWith(name))).toEqual([])
    expect(await provider.leftovers(context())).toEqual([])
    await provider.delete(deleteRequest('b'), context())
    expect([world.stub.domains(), volumeNames(world)]).toEqual([[], cachedImage])
  })

  it('are a seed alone, too, and an overlay before its seed', async () => {
    await provider.create(createRequest(), context())
    loseDomain()
    const leftover = await onlyLeftover()
    world.stub.pool().volumes.delete(`${name}.qcow2`)
    expect((await onlyLeftover()).volumes).toEqual([`${name}-seed.iso`])
    await provider.remove(leftover, context())
    expect(volumeNames(world)).toEqual(cachedImage)
  })

  it.each<[string, () => void]>([
    ['an overlay without a seed', () => world.stub.pool().volumes.delete(`${name}-seed.iso`)],
    ['a seed that names nobody', () => seedContent().write(32_768, Buffer.alloc(2048))],
    [
      "another installation's",
      () => {
        const text = seedContent()
          .read(32_768, 2048)
          .toString('latin1')
          .replace('installation=home', 'installation=away')
        seedContent().write(32_768, Buffer.from(text.slice(0, 2048), 'latin1'))
      },
    ],
  ])('are not: %s', async (_what, change) => {
    await provider.create(createRequest(), context())
    loseDomain()
    const leftover = await onlyLeftover()
    change()
    const before = volumeNames(world)
    expect(await provider.leftovers(context())).toEqual([])
    await failure(provider.remove(leftover, context()))
    expect(volumeNames(world)).toEqual(before)
  })

  it('are not the volumes of a domain that was renamed, or of another one that uses them', async () => {
    await provider.create(createRequest(), context())
    const leftover: Leftover = { target: 'lab', instanceName: name, volumes, uid: 'uid-a', ageMs: 0 }
    Object.assign(world.stub.host.domains.byName(name), { name: 'by-hand' })
    expect(await provider.leftovers(context())).toEqual([])
    expect(await failure(provider.remove(leftover, context()))).toMatchObject({ code: 'LeftoverInUse' })
    Object.assign(world.stub.host.domains.byName('by-hand'), { name })
    const { path } = world.stub.pool().volumes.get(`${name}.qcow2`) ?? {}
    loseDomain()
    world.stub.host.domains.define(
      `<domain type="kvm"><name>rescue</name><memory>65536</memory><os><type>hvm</type></os><devices><disk type="file" device="disk"><source file="${path}"/><target dev="vda" bus="virtio"/></disk></devices></domain>`,
    )
    expect(await provider.leftovers(context())).toEqual([])
    expect(await failure(provider.remove(leftover, context()))).toMatchObject({
      kind: 'transient',
      code: 'LeftoverInUse',
    })
    expect(volumeNames(world)).toEqual(expect.arrayContaining(volumes) as string[])
  })

  it('are kept for a Proxy that lives, and taken up by its next create', async () => {
    await provider.create(createRequest(), context())
    loseDomain()
    const leftover = await onlyLeftover()
    const live = context({ isLive: () => Promise.resolve(true) })
    expect(await failure(provider.remove(leftover, live))).toMatchObject({ code: 'LeftoverInUse' })
    await provider.create(createRequest(), context())
    expect(await failure(provider.remove(leftover, context()))).toMatchObject({ code: 'LeftoverInUse' })
    expect(world.stub.domain(name)?.state).toBe('running')
  })

  it('wait for the create that is making them, and are none then', async () => {
    await provider.create(createRequest('warm'), context())
    const release = world.stub.knobs.hang('DOMAIN_DEFINE_XML')
    const reached = world.stub.nextCall('DOMAIN_DEFINE_XML')
    const create = provider.create(createRequest(), context())
    await reached
    const removed = failure(provider.remove(await onlyLeftover(), context()))
    release()
    await create
    expect(await removed).toMatchObject({ code: 'LeftoverInUse' })
    expect(world.stub.domain(name)?.state).toBe('running')
  })

  it('are an error, not a shorter list, when a host or its pool cannot be asked', async () => {
    world.stub.pool().active = false
    expect(await failure(provider.leftovers(context()))).toMatchObject({ code: 'PoolNotActive' })
    world.stub.knobs.refuseForwarding = true
    const other = world.provider()
    expect(await failure(other.leftovers(context()))).toMatchObject({ kind: 'transient', code: 'Unreachable' })
  })
})

describe('an outdated instance', () => {
  const digest = createHash('sha256').update(imageBytes).digest('hex')
  const other = 'ab'.repeat(32)
  const withImage = (image: object) => world.provider({ images: { tiny: { url: world.images.url, ...image } } })

  it('says that the configured digest is another one, and nothing while it is the same', async () => {
    await provider.create(createRequest(), context())
    expect(await provider.get(providerID, context())).not.toHaveProperty('outdated')
    expect(await withImage({ sha256: digest }).get(providerID, context())).not.toHaveProperty('outdated')
    const { outdated } = await withImage({ sha256: other }).get(providerID, context())
    expect(outdated).toContain(digest.slice(0, 12))
    expect(outdated).toContain(`the configured one has ${other.slice(0, 12)}`)
  })

  it('says that its image is not in the config any more', async () => {
    await provider.create(createRequest(), context())
    const { outdated } = await world.provider({ images: {} }).get(providerID, context())
    expect(outdated).toBe('image tiny, which it was made from, is not in the config any more')
  })

  it('says that the image on its host was fetched anew since, once a check has seen that', async () => {
    await provider.create(createRequest(), context())
    await provider.check(context())
    expect(await provider.get(providerID, context())).not.toHaveProperty('outdated')
    for (const volume of cachedImage) world.stub.pool().volumes.delete(volume)
    world.images.answer = (request, response) => {
      const body = Buffer.alloc(700_000, 'QFI newer image ')
      response.writeHead(200, { 'content-length': body.byteLength })
      response.end(request.method === 'HEAD' ? undefined : body)
    }
    const later = world.provider()
    await later.create(createRequest('b'), context())
    const [health] = await later.check(context())
    expect(health?.details['image.tiny']).toMatch(
      /^sha256 [0-9a-f]{12} fetched \d{4}-.*Z, from http:\/\/127\.0\.0\.1:\d+\/image\.qcow2$/,
    )
    const { instanceName } = createRequest('b')
    expect(await later.get(`hosts/lab/domains/${instanceName}`, context())).not.toHaveProperty('outdated')
    expect((await later.get(providerID, context())).outdated).toContain('the one on the host now has')
  })

  it('is none of a URL in the placement, or of the earlier implementation', async () => {
    const byUrl = createRequest('a', { placement: { machineType: 'small', image: world.images.url } })
    await provider.create(byUrl, context())
    expect(await world.provider({ images: {} }).get(providerID, context())).not.toHaveProperty('outdated')
  })
})

describe('the health check', () => {
  it('tells which images of the catalogue are on the host, without asking every time', async () => {
    expect((await provider.check(context()))[0]?.details['image.tiny']).toMatch(/^not cached yet; from http/)
    const listed = world.stub.calls('STORAGE_POOL_LIST_ALL_VOLUMES')
    await provider.check(context())
    expect(world.stub.calls('STORAGE_POOL_LIST_ALL_VOLUMES')).toBe(listed)
  })

  it('tells of instances on a host that was removed from the config, until they are let go of', async () => {
    const id = `hosts/old/domains/${name}`
    expect(await failure(provider.get(id, context()))).toMatchObject({ code: 'HostNotConfigured' })
    expect((await provider.check(context()))[0]).toMatchObject({
      ready: true,
      details: { removedHosts: 'old (1 instances)' },
    })
    expect(await provider.delete(deleteRequest('a', { intents: [], providerID: id }), context())).toEqual({
      abandoned: [{ target: 'old', instanceName: name }],
    })
    expect((await provider.check(context()))[0]?.details).not.toHaveProperty('removedHosts')
  })
})

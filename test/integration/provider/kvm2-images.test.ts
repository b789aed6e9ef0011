// Images from real HTTP servers of every kind into a pool over real SSH and RPC: what is taken for whole, what is refused, what is begun again.
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type AddressInfo } from 'node:net'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { defaultBudgets } from '../../../src/provider/libvirt/budgets.ts'
import { createImageServer } from '../../../src/provider/libvirt/image-http.ts'
import type { CreateContext, Provider } from '../../../src/provider/contract.ts'
import { eventually } from '../../support/eventually.ts'
import { qcow2Header } from '../../support/libvirt-stub/model/formats.ts'
import {
  cachedImage,
  context,
  createRequest,
  failure,
  startWorld,
  volumeNames,
  type Answer,
  type World,
} from './stub-world.ts'

const budgetMs = 30_000
const gib = 2 ** 30
/** Its disk is larger than what the sample gives an instance, so that it shows in the overlay. */
const image = Buffer.concat([qcow2Header({ capacity: 3 * gib }), Buffer.alloc(900_000, 'image')])
const digest = createHash('sha256').update(image).digest('hex')
const base = 'base-tiny.qcow2'

let world: World
beforeEach(async () => {
  world = await startWorld()
})
afterEach(async () => {
  await world[Symbol.asyncDispose]()
})

const until = <T>(what: string, look: () => T | undefined) => eventually(what, budgetMs, () => Promise.resolve(look()))

/** In three pieces, without a length. */
const inChunks: Answer = (request, response) => {
  response.writeHead(200)
  if (request.method === 'HEAD') {
    response.end()
    return
  }
  response.write(image.subarray(0, 300_000))
  response.write(image.subarray(300_000, 600_000))
  response.end(image.subarray(600_000))
}

const withLength: Answer = (request, response) => {
  response.writeHead(200, { 'content-length': image.byteLength })
  response.end(request.method === 'HEAD' ? undefined : image)
}

async function create(provider: Provider, change: Partial<CreateContext> = {}): Promise<string[]> {
  const said: string[] = []
  await provider.create(createRequest(), context({ progress: (text) => void said.push(text), ...change }))
  return said
}

function expectWhole(): void {
  expect(world.stub.volume(base)?.bytes().equals(image)).toBe(true)
  expect(world.stub.volume(`${base}.sha256`)?.bytes().toString()).toBe(digest)
  const facts: unknown = JSON.parse(world.stub.volume(`${base}.info`)?.bytes().toString() ?? '')
  expect(facts).toMatchObject({ url: world.images.url, sizeBytes: image.byteLength, virtualBytes: 3 * gib })
  expect(world.stub.volume(`${createRequest().instanceName}.qcow2`)?.capacity).toBe(3 * gib)
}

describe('an image', () => {
  it('in chunks is sized by its own bytes, and its progress is told in bytes', async () => {
    world.images.answer = inChunks
    const said = await create(world.provider())
    expectWhole()
    expect(world.images.requests).toEqual(['HEAD /image.qcow2', 'GET /image.qcow2'])
    expect(said[0]).toBe('downloading image tiny to host lab: 0 B')
    const uploads = world.lines.filter(({ rpc, volume }) => rpc === 'StorageVolUpload' && volume === base)
    expect(uploads.map(({ length }) => length)).toEqual([undefined])
  })

  it('with a length tells its progress in percent', async () => {
    world.images.answer = withLength
    const said = await create(world.provider())
    expectWhole()
    expect(said[0]).toBe('downloading image tiny to host lab: 0 B of 879.0 KiB (0 %)')
  })

  it('is known to the pool before its marker says that it is whole', async () => {
    world.images.answer = withLength
    await create(world.provider())
    const steps = world.lines
      .filter(({ msg, error }) => msg === 'libvirt call' && error === undefined)
      .map(({ rpc, xml }) => (String(xml).includes('.sha256<') ? 'marker' : String(rpc)))
    expect(steps).toContain('StoragePoolRefresh')
    expect(steps.indexOf('StoragePoolRefresh')).toBeLessThan(steps.indexOf('marker'))
    expect(steps.indexOf('StoragePoolRefresh')).toBeGreaterThan(steps.indexOf('StorageVolUpload'))
  })

  it.each([403, 405, 501])('whose server answers HEAD with %i is asked for by GET', async (status) => {
    world.images.answer = (request, response) => {
      if (request.method === 'HEAD') response.writeHead(status).end()
      else inChunks(request, response)
    }
    await create(world.provider())
    expectWhole()
    expect(world.images.requests.length).toBe(3)
  })

  it.each<[string, Answer, object, RegExp]>([
    [
      'of Content-Length 0',
      (_request, response) => response.writeHead(200, { 'content-length': 0 }).end(),
      { kind: 'permanent', origin: 'environment', code: 'ImageEmpty' },
      /Content-Length 0; correct kvm2\.images\.tiny\.url/,
    ],
    [
      'of no bytes at all in no chunks',
      (_request, response) => response.writeHead(200, { 'transfer-encoding': 'chunked' }).end(),
      { kind: 'transient', code: 'ImageDownloadFailed' },
      /the body is empty/,
    ],
    [
      'that is compressed on the way although that was not asked for',
      (request, response) => {
        expect(request.headers['accept-encoding']).toBe('identity')
        response.writeHead(200, { 'content-encoding': 'gzip', 'content-length': 5 })
        response.end(request.method === 'HEAD' ? undefined : 'abcde')
      },
      { kind: 'permanent', origin: 'environment', code: 'ImageEncoded' },
      /Content-Encoding gzip although none was asked for/,
    ],
    [
      'behind redirects in a circle',
      (_request, response) => response.writeHead(302, { location: '/again' }).end(),
      { kind: 'permanent', origin: 'environment', code: 'ImageNotAvailable' },
      /redirects more than 10 times/,
    ],
    [
      'that is cut off in its chunks',
      (request, response) => {
        response.writeHead(200)
        if (request.method === 'HEAD') response.end()
        else response.write(image.subarray(0, 300_000), () => response.destroy())
      },
      { kind: 'transient', code: 'ImageDownloadFailed' },
      /ended the connection before the end/,
    ],
  ])('%s is refused, and the next one is taken', async (_what, answer, refusal, words) => {
    world.images.answer = answer
    const provider = world.provider()
    const error = await failure(create(provider))
    expect(error).toMatchObject(refusal)
    expect(error.message).toMatch(words)
    expect([world.stub.domains(), volumeNames(world)]).toEqual([[], []])
    world.images.answer = withLength
    await create(provider)
    expectWhole()
  })

  it('whose server tells neither length nor end is taken only when its digest is known', async () => {
    let bytes = image
    const server = createServer((socket) => {
      // Whoever asked may hang up before it has read all of it.
      socket.on('error', () => socket.destroy())
      socket.once('data', (request) => {
        const isHead = request.toString().startsWith('HEAD')
        socket.end(Buffer.concat([Buffer.from('HTTP/1.0 200 OK\r\n\r\n'), isHead ? Buffer.alloc(0) : bytes]))
      })
    }).listen(0, '127.0.0.1')
    await once(server, 'listening')
    try {
      const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`
      const error = await failure(create(world.provider({ images: { tiny: { url } } })))
      expect(error).toMatchObject({ kind: 'permanent', code: 'ImageLengthUnknown' })
      expect(error.message).toContain('or set kvm2.images.tiny.sha256')
      const pinned = world.provider({ images: { tiny: { url, sha256: digest } } })
      bytes = image.subarray(0, 500_000)
      expect(await failure(create(pinned))).toMatchObject({ kind: 'transient', code: 'ImageDownloadFailed' })
      expect(volumeNames(world)).toEqual([])
      bytes = image
      await create(pinned)
      expect(world.stub.volume(base)?.bytes().equals(image)).toBe(true)
    } finally {
      server.close()
    }
  })
})

describe('a mirror that stalls', () => {
  const halfWay: Answer = (request, response) => {
    response.writeHead(200, { 'content-length': image.byteLength })
    if (request.method === 'HEAD') response.end()
    else response.write(image.subarray(0, 400_000))
  }

  it('is given up after its silence, and begun again', async () => {
    world.images.answer = halfWay
    await using imageServer = closing(createImageServer({ headersMs: 10_000, silenceMs: 1000 }))
    const provider = world.provider({}, { imageServer: imageServer.it })
    const error = await failure(create(provider))
    expect(error).toMatchObject({ kind: 'transient', code: 'ImageDownloadFailed' })
    expect(error.message).toBe('image tiny for host lab: no byte came for 1 s')
    expect(volumeNames(world)).toEqual([])
    world.images.answer = withLength
    await create(provider)
    expectWhole()
  })

  it('ends by the deadline of the download, which leaves time to clear up', async () => {
    world.images.answer = (request, response) => {
      halfWay(request, response)
      if (request.method === 'HEAD') return
      // A byte now and then is no silence.
      const trickle = setInterval(() => response.write('x'), 100)
      response.on('close', () => clearInterval(trickle))
    }
    const provider = world.provider({}, { budgets: { ...defaultBudgets, imageMs: 21_000, imageReserveMs: 20_000 } })
    const error = await failure(create(provider))
    expect(error).toMatchObject({ kind: 'transient', code: 'ImageDownloadFailed' })
    expect(error.message).toContain('download of image tiny did not finish within 1 s')
    expect(volumeNames(world)).toEqual([])
    expect(world.lines.filter(({ msg }) => String(msg).startsWith('half-written'))).toEqual([])
  })

  it('is not one whose host is slow to write', async () => {
    world.images.answer = withLength
    world.stub.knobs.limitUploads(300_000)
    await using imageServer = closing(createImageServer({ headersMs: 10_000, silenceMs: 1000 }))
    const created = create(world.provider({}, { imageServer: imageServer.it }))
    await until('the host stops', () => ((world.stub.volume(base)?.allocation ?? 0) >= 300_000 ? true : undefined))
    await new Promise((resolve) => setTimeout(resolve, 3000))
    world.stub.knobs.limitUploads(Number.POSITIVE_INFINITY)
    await created
    expectWhole()
  })
})

describe('an image of unknown size', () => {
  it('is given up before it fills the pool', async () => {
    world.images.answer = inChunks
    // Room for the overlay and the seed, and for a part of the image.
    world.stub.pool().capacity = gib + 16 * 2 ** 20 + 500_000
    const error = await failure(create(world.provider()))
    expect(error).toMatchObject({ kind: 'quotaExceeded', code: 'PoolSpace' })
    expect(error.message).toMatch(/has room for \d+ bytes of an image whose server did not announce its size/)
    expect(volumeNames(world)).toEqual([])
  })

  it('is not even begun where what is to come besides has no room', async () => {
    world.images.answer = inChunks
    world.stub.pool().capacity = gib
    expect(await failure(create(world.provider()))).toMatchObject({ kind: 'quotaExceeded', code: 'PoolSpace' })
    expect(world.images.requests).toEqual(['HEAD /image.qcow2'])
    expect(world.stub.calls('STORAGE_VOL_CREATE_XML')).toBe(0)
  })
})

describe('a claim', () => {
  const held = () => world.stub.volume(`${base}.claim.1`)

  /** A download that has come half way; the returned function waits for its end. */
  async function halfDownload(
    provider: Provider,
    change: Partial<CreateContext> = {},
  ): Promise<() => Promise<unknown>> {
    world.images.answer = withLength
    world.stub.knobs.limitUploads(300_000)
    const created = create(provider, change).then(
      () => 'made',
      (error: unknown) => error,
    )
    await until('half of the image', () => ((world.stub.volume(base)?.allocation ?? 0) >= 300_000 ? true : undefined))
    return () => created
  }

  const age = (name: string) => {
    const volume = world.stub.pool().volumes.get(name)
    if (volume === undefined) throw new Error(`there is no ${name}`)
    volume.modifiedAt -= 16 * 60_000
  }

  it('is touched while a download takes its time', async () => {
    const provider = world.provider({}, { budgets: { ...defaultBudgets, claimTouchMs: 100 } })
    const created = await halfDownload(provider)
    const first = world.stub.pool().volumes.get(`${base}.claim.1`)?.modifiedAt ?? 0
    await until('a touch', () =>
      (world.stub.pool().volumes.get(`${base}.claim.1`)?.modifiedAt ?? 0) > first ? true : undefined,
    )
    world.stub.knobs.limitUploads(Number.POSITIVE_INFINITY)
    expect(await created()).toBe('made')
    expect(volumeNames(world).filter((name) => name.startsWith('base-'))).toEqual(cachedImage)
  })

  it('that was taken over ends the download that goes on in vain', async () => {
    const provider = world.provider({}, { budgets: { ...defaultBudgets, claimTouchMs: 100 } })
    const created = await halfDownload(provider)
    const { host } = world.stub
    host.pools.createVolume(world.stub.pool(), `<volume><name>${base}.claim.2</name><capacity>0</capacity></volume>`)
    expect(await created()).toMatchObject({ kind: 'transient', code: 'ClaimLost' })
    expect(world.stub.volume(`${base}.sha256`)).toBeUndefined()
    world.stub.knobs.limitUploads(Number.POSITIVE_INFINITY)
  })

  it('of an operator that is killed half way is taken over, at once by its successor', async () => {
    const killed = world.provider()
    const created = await halfDownload(killed)
    expect(held()).toBeDefined()
    world.stub.cutConnections()
    world.stub.knobs.refuseForwarding = true
    expect(await created()).toMatchObject({ kind: 'transient' })
    await killed.close()
    world.stub.knobs.refuseForwarding = false
    world.stub.knobs.limitUploads(Number.POSITIVE_INFINITY)
    expect(volumeNames(world)).toEqual([base, `${base}.claim.1`])
    await create(world.provider())
    expectWhole()
    expect(volumeNames(world).filter((name) => name.startsWith('base-'))).toEqual(cachedImage)
  })

  it('of another operator that is killed is taken over by its age', async () => {
    const killed = world.provider({}, { installation: 'gone' })
    const created = await halfDownload(killed)
    world.stub.cutConnections()
    world.stub.knobs.refuseForwarding = true
    await created()
    await killed.close()
    world.stub.knobs.refuseForwarding = false
    world.stub.knobs.limitUploads(Number.POSITIVE_INFINITY)
    const said: string[] = []
    const next = create(world.provider(), { progress: (text) => void said.push(text) })
    await until('somebody waits', () => (said.length > 0 ? true : undefined))
    expect(said[0]).toBe("waiting for another operator's download of image tiny on host lab")
    expect(volumeNames(world)).toContain(base)
    age(`${base}.claim.1`)
    await next
    expectWhole()
    expect(volumeNames(world).filter((name) => name.startsWith('base-'))).toEqual(cachedImage)
  })

  it('and the half that came are left by a download that nobody waits for any more, and the next one clears the half', async () => {
    const leaving = new AbortController()
    const provider = world.provider()
    const created = await halfDownload(provider, { signal: leaving.signal, mayMutate: () => !leaving.signal.aborted })
    leaving.abort(new Error('deleted'))
    expect(await created()).toMatchObject({ kind: 'transient', code: 'Cancelled' })
    await until('the claim is given back', () => (held() === undefined ? true : undefined))
    expect(volumeNames(world)).toEqual([base])
    world.stub.knobs.limitUploads(Number.POSITIVE_INFINITY)
    await create(world.provider({}, { installation: 'another' }))
    expectWhole()
  })
})

function closing<T extends { close(): Promise<void> }>(it: T) {
  return { it, [Symbol.asyncDispose]: () => it.close() }
}

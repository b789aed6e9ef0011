// A program of its own, for its heap: creates whose upload of the image is cut in every way, and what they leave behind. It prints
// figures and judges nothing but that each cut hit an upload; upload-leaks.test.ts starts it.
import { once } from 'node:events'
import type { ServerResponse } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { ErrorCode } from '../../../src/wire/libvirt/error-codes.ts'
import { eventually } from '../../support/eventually.ts'
import { remoteError } from '../../support/libvirt-stub/model/errors.ts'
import { qcow2Header } from '../../support/libvirt-stub/model/formats.ts'
import { context, createRequest, deleteRequest, startWorld, volumeNames, wholeImage, type World } from './stub-world.ts'

/** What the test reads, one JSON line on standard output. */
export interface UploadFigures {
  /** Cuts by way, and how the creates ended, by error code. */
  readonly ways: Record<string, number>
  readonly endings: Record<string, number>
  /** After each batch and a forced collection, bytes. */
  readonly heapUsed: number[]
  readonly arrayBuffers: number[]
  readonly rss: number[]
  /** Kinds of open handles before the first upload and after the last. */
  readonly handlesBefore: string[]
  readonly handlesAfter: string[]
  readonly connectionsAfter: number
  /** In the pool before the last, good create and after it. */
  readonly volumesBefore: string[]
  readonly volumesAfter: string[]
}

const budgetMs = 60_000
/** Longest that a create may take to see the cut by itself; it begins broken downloads again, until it is cancelled. */
const graceMs = 150
const half = 400_000
const image = Buffer.concat([qcow2Header({ capacity: 2 ** 30 }), Buffer.alloc(2 * half)])

interface Round {
  readonly world: World
  readonly abort: AbortController
  /** Of the mirror, which has sent the first half. */
  readonly response: ServerResponse
}

/** Each is called in the middle of an upload, but for the refusal, which is ordered in front of it. */
const ways: Record<string, (round: Round) => void> = {
  cancelled: ({ abort }) => abort.abort(new Error('enough')),
  // second, so that the 200th is one: nobody can clean up after it
  tcpCut: ({ world }) => world.stub.cutConnections(),
  sourceEnds: ({ response }) => void response.socket?.end(),
  sourceErrors: ({ response }) => void response.socket?.resetAndDestroy(),
  sourceStalls: () => undefined,
  poolFull: ({ world, response }) => {
    world.stub.pool().capacity = 1000
    response.end(image.subarray(half))
  },
  volumeRemoved: ({ world, response }) => {
    for (const name of [...world.stub.pool().volumes.keys()]) world.stub.pool().volumes.delete(name)
    response.end(image.subarray(half))
  },
  daemonStalls: ({ world, response }) => {
    world.stub.knobs.limitUploads(1)
    response.end(image.subarray(half))
  },
  daemonRefuses: () => undefined,
}

await main(Number(process.argv[2]), Number(process.argv[3]))

async function main(rounds: number, batch: number): Promise<void> {
  const world = await startWorld({ keepBytes: 1000 })
  const { capacity } = world.stub.pool()
  await sleep(100)
  const handlesBefore = handles()
  const figures = { ways: {}, endings: {}, heapUsed: [] as number[], arrayBuffers: [] as number[], rss: [] as number[] }
  const provider = world.provider()
  const names = Object.keys(ways)
  for (let round = 0; round < rounds; round++) {
    const way = names[round % names.length] ?? ''
    count(figures.ways, way)
    count(figures.endings, await cutUpload(world, provider, way, round))
    world.stub.pool().capacity = capacity
    world.stub.knobs.limitUploads(Number.POSITIVE_INFINITY)
    if ((round + 1) % batch > 0) continue
    // what the test itself keeps
    world.lines.length = 0
    world.images.requests.length = 0
    // twice, for what only a finalizer of the first lets go of
    globalThis.gc?.()
    await sleep(20)
    globalThis.gc?.()
    const { heapUsed, arrayBuffers, rss } = process.memoryUsage()
    figures.heapUsed.push(heapUsed)
    figures.arrayBuffers.push(arrayBuffers)
    figures.rss.push(rss)
  }
  const volumesBefore = volumeNames(world)
  world.images.answer = wholeImage
  await provider.create(createRequest('good'), context())
  const volumesAfter = volumeNames(world)
  // its guest is a proxy that listens in this process
  await provider.delete(deleteRequest('good'), context())
  await provider.close()
  const connectionsAfter = await settled(() => world.stub.connections(), 0)
  const handlesAfter = await settled(handles, handlesBefore)
  const result: UploadFigures = {
    ...figures,
    handlesBefore,
    handlesAfter,
    connectionsAfter,
    volumesBefore,
    volumesAfter,
  }
  process.stdout.write(`${JSON.stringify(result)}\n`)
  await world[Symbol.asyncDispose]()
}

/** @returns the code that the create ended with */
async function cutUpload(
  world: World,
  provider: ReturnType<World['provider']>,
  way: string,
  round: number,
): Promise<string> {
  const abort = new AbortController()
  const served = Promise.withResolvers<ServerResponse>()
  world.images.answer = (request, response) => {
    response.writeHead(200, { 'content-length': image.byteLength })
    if (request.method === 'HEAD') response.end()
    else {
      response.write(image.subarray(0, half))
      served.resolve(response)
    }
  }
  const refused = way === 'daemonRefuses'
  if (refused) world.stub.knobs.failNext('STORAGE_VOL_UPLOAD', remoteError(ErrorCode.INTERNAL_ERROR, 'ordered'))
  const created = provider.create(createRequest(`n${round % 3}`), context({ signal: abort.signal })).then(
    () => 'created',
    (error: unknown) => (error instanceof Error && 'code' in error ? String(error.code) : String(error)),
  )
  if (refused) return await created
  const response = await Promise.race([served.promise, created])
  if (typeof response === 'string') throw new Error(`round ${round} ended before its upload: ${response}`)
  await eventually('an upload that has begun', budgetMs, () =>
    Promise.resolve(world.stub.volumes().some(({ allocation }) => allocation > 100_000) || undefined),
  )
  ways[way]?.({ world, abort, response })
  const grace = new AbortController()
  await Promise.race([created, sleep(graceMs, undefined, { signal: grace.signal }).catch(() => undefined)])
  grace.abort()
  abort.abort(new Error('enough'))
  const ending = await created
  if (!response.destroyed) {
    response.destroy()
    await once(response, 'close')
  }
  return ending
}

function count(counts: Record<string, number>, key: string): void {
  counts[key] = (counts[key] ?? 0) + 1
}

/** What `look` sees when it is as `wanted`, or what it still sees long after that should be. */
async function settled<T>(look: () => T, wanted: T): Promise<T> {
  for (let tries = 0; tries < 100 && JSON.stringify(look()) !== JSON.stringify(wanted); tries++) await sleep(100)
  return look()
}

/** Sockets, pipes and timers that are open, by kind. */
function handles(): string[] {
  return process.getActiveResourcesInfo().sort()
}

// Serves image files over HTTP as a mirror would, and misbehaves to order: stops in the middle, or does not have one.
import { createReadStream } from 'node:fs'
import { stat } from 'node:fs/promises'
import { createServer, type ServerResponse } from 'node:http'
import { pipeline } from 'node:stream/promises'
import { close, listen } from './servers.ts'

export interface ImageServer {
  /** URL of an image; one that is served under no such name answers 404. */
  url(name: string): string
  /** GETs of an image so far, whole or not. */
  gets(name: string): number
  /** From now on a GET of this image sends so many bytes and then nothing more, until {@link release}. */
  holdAfter(name: string, bytes: number): void
  /** Ends the holding, also for requests in flight. */
  release(name: string): void
  close(): Promise<void>
}

interface Hold {
  readonly bytes: number
  readonly released: Promise<unknown>
  readonly release: () => void
}

/** @param files image files by the name they are served under */
export async function startImageServer(address: string, files: Readonly<Record<string, string>>): Promise<ImageServer> {
  const holds = new Map<string, Hold>()
  const gets = new Map<string, number>()
  const serve = async (name: string, head: boolean, response: ServerResponse) => {
    const file = files[name]
    if (file === undefined) {
      response.writeHead(404).end('no such image\n')
      return
    }
    const { size } = await stat(file)
    response.writeHead(200, { 'content-length': size, 'content-type': 'application/octet-stream' })
    if (head) {
      response.end()
      return
    }
    gets.set(name, (gets.get(name) ?? 0) + 1)
    const hold = holds.get(name)
    if (hold === undefined) {
      await pipeline(createReadStream(file), response)
      return
    }
    await pipeline(createReadStream(file, { end: hold.bytes - 1 }), response, { end: false })
    await hold.released
    await pipeline(createReadStream(file, { start: hold.bytes }), response)
  }
  const server = createServer((request, response) => {
    serve((request.url ?? '/').slice(1), request.method === 'HEAD', response).catch((error: unknown) => {
      // Whoever downloaded was killed, as the tests do; anything else would show as a download that breaks.
      response.destroy(error instanceof Error ? error : undefined)
    })
  })
  const port = await listen(server, address)
  return {
    url: (name) => `http://${address}:${port}/${name}`,
    gets: (name) => gets.get(name) ?? 0,
    holdAfter: (name, bytes) => {
      const { promise, resolve } = Promise.withResolvers<undefined>()
      holds.set(name, { bytes, released: promise, release: () => resolve(undefined) })
    },
    release: (name) => {
      holds.get(name)?.release()
      holds.delete(name)
    },
    close: async () => {
      for (const hold of holds.values()) hold.release()
      await close(server)
    },
  }
}

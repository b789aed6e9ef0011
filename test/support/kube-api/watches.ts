// The open watches of the in-process API: history first, then every write, bookmarks, the end; and their faults.
import type { ServerResponse } from 'node:http'
import { expired } from './api-error.ts'
import type { Json, Stored } from './json.ts'
import type { ServedKind } from './kinds.ts'
import { idOf } from './registry.ts'
import type { Predicate } from './selectors.ts'
import type { Revision, Storage } from './storage.ts'

export interface WatchRequest {
  readonly kind: ServedKind
  readonly namespace: string | undefined
  readonly selects: Predicate
  /** Undefined: from the present state, which is told first. */
  readonly resourceVersion: number | undefined
  readonly bookmarks: boolean
  readonly timeoutSeconds: number | undefined
  /** What is sent for an object: the object, or a table row. */
  readonly present: (object: Stored) => Json
}

/** When the last bookmark comes before the end of a watch, milliseconds. */
const beforeEndMs = 2000

export interface WatchFaults {
  /** Whether this event is withheld from everybody. */
  readonly swallow: () => boolean
  /** Whether nothing is to be written any more, although connections stay open. */
  readonly stalled: () => boolean
}

export class Watches {
  readonly #storage: Storage
  readonly #faults: WatchFaults
  readonly #open = new Set<OpenWatch>()
  readonly #bookmarkEveryMs: number

  constructor(storage: Storage, faults: WatchFaults, bookmarkEveryMs: number) {
    this.#storage = storage
    this.#faults = faults
    this.#bookmarkEveryMs = bookmarkEveryMs
    storage.onWrite((revision) => {
      if (this.#open.size === 0 || this.#faults.swallow()) return
      for (const watch of this.#open) watch.tell(revision)
    })
  }

  get size(): number {
    return this.#open.size
  }

  /** @param tooOld how a resourceVersion that was compacted is refused: as an event of a good answer, or as its status */
  serve(request: WatchRequest, response: ServerResponse, tooOld: 'event' | 'status'): void {
    const { kind, resourceVersion } = request
    const missed = resourceVersion === undefined ? [] : this.#storage.since(idOf(kind), resourceVersion)
    const error = expired(`too old resource version: ${String(resourceVersion)} (${this.#storage.compacted})`)
    if (missed === undefined && tooOld === 'status') throw error
    response.writeHead(200, { 'content-type': 'application/json' })
    response.flushHeaders()
    const watch = new OpenWatch(request, response, this.#faults)
    if (missed === undefined) {
      watch.send('ERROR', error.toStatus())
      response.end()
      return
    }
    if (resourceVersion === undefined) {
      for (const object of this.#storage.list(idOf(kind), request.namespace)) {
        if (request.selects(object)) watch.send('ADDED', request.present(object))
      }
    }
    for (const revision of missed) watch.tell(revision)
    this.#keep(watch, request, response)
  }

  /** Tells every watch that asked for bookmarks how far it is. */
  bookmark(): void {
    for (const watch of this.#open) watch.bookmark(this.#storage)
  }

  /** Cuts the connections. */
  drop(): void {
    for (const watch of this.#open) watch.destroy()
  }

  #keep(watch: OpenWatch, request: WatchRequest, response: ServerResponse): void {
    this.#open.add(watch)
    const bookmark = () => watch.bookmark(this.#storage)
    const timers = [setInterval(bookmark, this.#bookmarkEveryMs)]
    if (request.timeoutSeconds !== undefined) {
      const endMs = request.timeoutSeconds * 1000
      const end = () => {
        if (!this.#faults.stalled()) response.end()
      }
      timers.push(setTimeout(end, endMs))
      if (endMs > beforeEndMs) timers.push(setTimeout(bookmark, endMs - beforeEndMs))
    }
    response.once('close', () => {
      for (const timer of timers) clearTimeout(timer)
      this.#open.delete(watch)
    })
  }
}

class OpenWatch {
  readonly #request: WatchRequest
  readonly #response: ServerResponse
  readonly #faults: WatchFaults

  constructor(request: WatchRequest, response: ServerResponse, faults: WatchFaults) {
    this.#request = request
    this.#response = response
    this.#faults = faults
  }

  /** An object that leaves the selector is deleted for this watch, one that enters it is added. */
  tell(revision: Revision): void {
    const { kind, namespace, selects, present } = this.#request
    const { object, old } = revision
    if (revision.kindId !== idOf(kind)) return
    if (namespace !== undefined && object.metadata.namespace !== namespace) return
    const was = old !== undefined && selects(old)
    const is = revision.type !== 'DELETED' && selects(object)
    if (is) this.send(was ? 'MODIFIED' : 'ADDED', present(object))
    else if (was) this.send('DELETED', present(object))
  }

  /** As a real server: how far its kind is, and nothing when that is no news to this watch. */
  bookmark(storage: Storage): void {
    const { kind, bookmarks, resourceVersion } = this.#request
    const revision = storage.revisionOf(idOf(kind))
    if (!bookmarks || revision <= (resourceVersion ?? 0)) return
    const apiVersion = kind.group === '' ? kind.version : `${kind.group}/${kind.version}`
    this.send('BOOKMARK', { apiVersion, kind: kind.kind, metadata: { resourceVersion: String(revision) } })
  }

  send(type: string, object: Json): void {
    if (this.#faults.stalled()) return
    this.#response.write(`${JSON.stringify({ type, object })}\n`)
  }

  destroy(): void {
    this.#response.destroy()
  }
}

// Lists in pages: a continue token names a snapshot, which a compaction forgets.
import { badRequest, expired } from './api-error.ts'
import type { Stored } from './json.ts'

export interface Page {
  readonly resourceVersion: string
  readonly items: readonly Stored[]
  readonly continue: string | undefined
  readonly remainingItemCount: number | undefined
}

interface Snapshot {
  readonly resourceVersion: string
  readonly items: readonly Stored[]
}

export class Lists {
  readonly #snapshots = new Map<string, Snapshot>()
  #next = 0

  /** The first page of what there is now, in pages of `limit` objects; 0 is everything at once. */
  first(items: readonly Stored[], revision: number, limit: number): Page {
    const snapshot = { resourceVersion: String(revision), items }
    if (limit <= 0 || items.length <= limit) return pageOf(snapshot, 0, items.length, undefined)
    const id = String(this.#next++)
    this.#snapshots.set(id, snapshot)
    return pageOf(snapshot, 0, limit, id)
  }

  /** @throws ApiError 400 for no token of ours, 410 when its snapshot was forgotten */
  next(token: string, limit: number): Page {
    const [id, offset] = Buffer.from(token, 'base64url').toString().split(':')
    if (id === undefined || offset === undefined || Number.isNaN(Number(offset))) {
      throw badRequest('continue key is not valid')
    }
    const snapshot = this.#snapshots.get(id)
    if (snapshot === undefined) {
      throw expired('The provided continue parameter is too old to display a consistent list result.')
    }
    const start = Number(offset)
    return pageOf(snapshot, start, limit <= 0 ? snapshot.items.length : start + limit, id)
  }

  forget(): void {
    this.#snapshots.clear()
  }
}

function pageOf({ resourceVersion, items }: Snapshot, start: number, end: number, id: string | undefined): Page {
  const left = items.length - end
  const more = id !== undefined && left > 0
  return {
    resourceVersion,
    items: items.slice(start, end),
    continue: more ? Buffer.from(`${id}:${end}`).toString('base64url') : undefined,
    remainingItemCount: more ? left : undefined,
  }
}

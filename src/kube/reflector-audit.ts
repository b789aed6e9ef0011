// Compares a store with a list to find what its watch never told; it repairs nothing.
import { keyOf, type Resource } from './object.ts'
import type { StoreReader } from './store.ts'

export interface Audit<T> {
  readonly store: StoreReader<T>
  readonly list: () => Promise<readonly T[]>
  /** Waits as long as a working watch may be behind the list. */
  readonly settle: () => Promise<void>
  /** Keys that the watch told something of since the audit began; grows meanwhile. */
  readonly told: ReadonlySet<string>
}

/**
 * How many objects the list shows otherwise than the store although the watch told nothing of them, neither while the
 * list was read nor in the grace after it. resourceVersions are compared for equality alone: an object the watch was
 * silent about is as it was before the list began, so a difference can only mean that the store is behind.
 */
export async function auditStore<T extends Resource>(audit: Audit<T>): Promise<number> {
  const listed = new Map((await audit.list()).map((object) => [keyOf(object.metadata), version(object)]))
  const differing = new Set<string>()
  for (const [key, wanted] of listed) {
    const stored = audit.store.get(key)
    if (stored === undefined || version(stored) !== wanted) differing.add(key)
  }
  for (const object of audit.store.list()) {
    const key = keyOf(object.metadata)
    if (!listed.has(key)) differing.add(key)
  }
  if (differing.size === 0) return 0
  await audit.settle()
  return [...differing].filter((key) => !audit.told.has(key)).length
}

function version(object: Resource): string {
  return `${object.metadata.uid}@${object.metadata.resourceVersion}`
}

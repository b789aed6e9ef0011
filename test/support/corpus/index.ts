// One corpus of good and bad objects for every judge: the schemas, the real API server, the in-process one.
import type { CorpusEntry } from './entry.ts'
import { healthCheckEntries } from './health-checks.ts'
import { specEntries } from './specs.ts'
import { providerHealthEntries, proxyStatusEntries } from './statuses.ts'
import { updateEntries } from './updates.ts'

export type { CorpusEntry, Json, Verdict } from './entry.ts'

/** Every entry; names are unique. */
export const corpus: readonly CorpusEntry[] = [
  ...specEntries,
  ...healthCheckEntries,
  ...updateEntries,
  ...proxyStatusEntries,
  ...providerHealthEntries,
]

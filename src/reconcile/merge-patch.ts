// The merge patch (RFC 7386) that turns one JSON object into another; it applies none.

export type JsonObject = Readonly<Record<string, unknown>>

/** Only what differs; null removes. Undefined when nothing differs. Lists are replaced as a whole. */
export function mergePatch(from: JsonObject, to: JsonObject): JsonObject | undefined {
  const patch: Record<string, unknown> = {}
  for (const key of Object.keys(from)) if (to[key] === undefined && from[key] !== undefined) patch[key] = null
  for (const [key, value] of Object.entries(to)) {
    if (value === undefined) continue
    const change = difference(from[key], value)
    if (change !== undefined) patch[key] = change
  }
  return Object.keys(patch).length === 0 ? undefined : patch
}

function difference(before: unknown, after: unknown): unknown {
  if (isObject(before) && isObject(after)) return mergePatch(before, after)
  return equal(before, after) ? undefined : after
}

function equal(a: unknown, b: unknown): boolean {
  if (Array.isArray(a) && Array.isArray(b)) return a.length === b.length && a.every((item, i) => equal(item, b[i]))
  if (isObject(a) && isObject(b)) return mergePatch(a, b) === undefined
  return a === b
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

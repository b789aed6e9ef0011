// Whether what is said repeats what was read; for messages that must not quote keys.

/** Short enough that a leak of any use has one, long enough that no words of a message do. */
const length = 8

/** The first run of base64 characters of `content` that stands in `said`; undefined where nothing was quoted. */
export function quoted(said: string, content: string): string | undefined {
  const pieces = new Set<string>()
  for (let at = 0; at + length <= said.length; at++) pieces.add(said.slice(at, at + length))
  for (const [word] of content.matchAll(/[A-Za-z0-9+/=]{16,}/g)) {
    for (let at = 0; at + length <= word.length; at++) {
      const piece = word.slice(at, at + length)
      if (pieces.has(piece)) return piece
    }
  }
  return undefined
}

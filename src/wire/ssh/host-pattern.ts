// The host field of one known_hosts line (sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT"); it knows no keys.
import { createHmac, timingSafeEqual } from 'node:crypto'

/** Says whether a line speaks of `name`: lower case, with `[...]:port` where the port is not 22. */
export type HostMatcher = (name: string) => boolean

const sha1Bytes = 20

/** A matcher, or undefined where the field is not one. */
export function parseHostField(field: string): HostMatcher | undefined {
  return field.startsWith('|') ? parseHashed(field) : parsePatternList(field)
}

function parseHashed(field: string): HostMatcher | undefined {
  const [before, version, salt64, hash64, ...rest] = field.split('|')
  if (before !== '' || version !== '1' || salt64 === undefined || hash64 === undefined || rest.length > 0)
    return undefined
  const salt = Buffer.from(salt64, 'base64')
  const hash = Buffer.from(hash64, 'base64')
  if (salt.length !== sha1Bytes || hash.length !== sha1Bytes) return undefined
  return (name) => timingSafeEqual(createHmac('sha1', salt).update(name).digest(), hash)
}

function parsePatternList(field: string): HostMatcher | undefined {
  const patterns = field
    .toLowerCase()
    .split(',')
    .filter((pattern) => pattern !== '')
    .map((pattern) =>
      pattern.startsWith('!') ? { negated: true, glob: pattern.slice(1) } : { negated: false, glob: pattern },
    )
  if (patterns.length === 0 || patterns.some(({ glob }) => glob === '')) return undefined
  return (name) => {
    let matched = false
    for (const { negated, glob } of patterns) {
      if (!matchesGlob(name, glob)) continue
      // One negated match rules the whole line out, wherever in the list it stands.
      if (negated) return false
      matched = true
    }
    return matched
  }
}

/** `*` is any run, `?` any one character. Linear in memory and never worse than name length times pattern length. */
export function matchesGlob(name: string, glob: string): boolean {
  let n = 0
  let g = 0
  let star = -1
  let starName = 0
  while (n < name.length) {
    if (glob[g] === '*') {
      star = g++
      starName = n
    } else if (g < glob.length && (glob[g] === '?' || glob[g] === name[n])) {
      g++
      n++
    } else if (star >= 0) {
      g = star + 1
      n = ++starName
    } else {
      return false
    }
  }
  while (glob[g] === '*') g++
  return g === glob.length
}

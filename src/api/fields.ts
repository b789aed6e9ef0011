// Building blocks of the schemas of our kinds: strings with rules that zod and the API server state in the same words.
import { z } from 'zod'
import { durationPattern, parseDurationMs } from './duration.ts'

/** One rule on a string, stated twice: for zod and, in CEL, for the API server. A test judges both on one corpus. */
export interface FieldRule {
  /** CEL over `self`. */
  readonly cel: string
  /** What is allowed, as the end of a sentence that begins with the field's name. */
  readonly message: string
  readonly holds: (value: string) => boolean
  /** The value may be secret or huge. The API server repeats a value that it calls invalid, but not one that it calls forbidden. */
  readonly unquoted?: true
}

/** Key in a schema's metadata under which its {@link FieldRule}s stand for the CRD generator. */
export const rulesKey = 'x-field-rules'

/**
 * A string of at most `max` characters for which all rules hold.
 * @param max characters; bounds the cost of the rules on the API server
 */
export function ruledString(max: number, rules: readonly FieldRule[]) {
  const plain: z.ZodString = z.string().max(max)
  return rules
    .reduce((schema, rule) => schema.refine(rule.holds, { error: rule.message }), plain)
    .meta({ [rulesKey]: rules.map(toValidationRule) })
}

function toValidationRule({ cel, message, unquoted }: FieldRule) {
  return { rule: cel, message, ...(unquoted && { reason: 'FieldValueForbidden' }) }
}

/**
 * A string that `pattern` matches, refused with `says` instead of with a regular expression.
 * @param pattern anchored, without quotes, and in the common subset of JavaScript's and RE2's syntax
 * @param says completes "must be ..."
 */
export function text(max: number, pattern: RegExp, says: string) {
  return ruledString(max, [matching(pattern, `must be ${says}`)])
}

/** The rule that a pattern matches. */
export function matching(pattern: RegExp, message: string): FieldRule {
  return { cel: `self.matches(${celRegex(pattern)})`, message, holds: (value) => pattern.test(value) }
}

/** A regular expression as a CEL raw string. */
export function celRegex(pattern: RegExp): string {
  return `r'${pattern.source.replaceAll('\\/', '/')}'`
}

/** A DNS label, RFC 1123. */
export const dnsLabel = () =>
  text(
    63,
    /^[a-z0-9]([a-z0-9-]*[a-z0-9])?$/,
    'a DNS label: at most 63 lower-case letters, digits and dashes, with a letter or digit at both ends',
  )

/** A DNS subdomain, RFC 1123: what most Kubernetes objects may be named. */
export const dnsSubdomain = () =>
  text(
    253,
    /^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$/,
    'an object name: at most 253 lower-case letters, digits, dashes and dots, with a letter or digit at both ends of each part',
  )

/** A key of the providers config that a spec refers to. */
export const catalogueKey = () =>
  text(253, /^[A-Za-z0-9._-]+$/, 'a name of letters, digits, dots, dashes and underscores')

/**
 * A duration within bounds, which are durations themselves.
 * @param least for example `1s`
 */
export function durationBetween(least: string, most: string) {
  const leastMs = parseDurationMs(least) ?? 0
  const mostMs = parseDurationMs(most) ?? Number.POSITIVE_INFINITY
  return ruledString(32, [
    {
      cel: `self != '' && self.matches(${celRegex(durationPattern)}) && duration(self) >= duration('${least}') && duration(self) <= duration('${most}')`,
      message: `must be a duration from ${least} to ${most}, written like 30s, 1m or 1h30m`,
      holds: (value) => {
        const ms = parseDurationMs(value)
        return ms !== undefined && ms >= leastMs && ms <= mostMs
      },
    },
  ])
}

/** Scheme, host and port of an http(s) URL without user and password; the port is group 3. */
export const httpUrlPattern =
  /^https?:\/\/([A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9._])?|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?([/?#][!-~]*)?$/

/** An RFC 3339 timestamp. */
export const timestamp = () => z.iso.datetime({ offset: true })

/**
 * A list whose entries are told apart by `key`, as the API server's map lists: two entries with the same key are refused.
 * @param max entries
 */
export function listMap<T extends z.ZodObject>(entry: T, max: number, key: string) {
  return z
    .array(entry)
    .max(max)
    .superRefine((entries, context) => {
      const seen = new Set<unknown>()
      for (const [index, value] of entries.entries()) {
        const id = (value as Record<string, unknown>)[key]
        if (seen.has(id)) context.addIssue({ code: 'custom', path: [index], message: `Duplicate value: ${String(id)}` })
        seen.add(id)
      }
    })
    .meta({ 'x-kubernetes-list-type': 'map', 'x-kubernetes-list-map-keys': [key] })
}

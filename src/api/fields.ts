// Building blocks of the schemas of our kinds. Each carries the words that both judges, zod and the API server, use.
import { z } from 'zod'

/**
 * A non-empty string of at most `max` characters that `pattern` matches. The generated CRD states the pattern as a
 * CEL rule, so that both judges answer with `says` instead of with a regular expression.
 * @param pattern anchored, and in the common subset of JavaScript's and RE2's syntax
 * @param says completes "must be ..."
 */
export function text(max: number, pattern: RegExp, says: string) {
  return z
    .string()
    .min(1)
    .max(max)
    .regex(pattern, `must be ${says}`)
    .meta({ [ruleKey]: `must be ${says}` })
}

/** Key in a schema's metadata under which {@link text} leaves its words for the CRD generator. */
export const ruleKey = 'x-rule-message'

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

/** An RFC 3339 timestamp. */
export const timestamp = () => z.iso.datetime({ offset: true })

/** A count or id that fits the API's int32. */
export const int32 = () => z.int32()

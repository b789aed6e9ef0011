// Building blocks for the schemas of providers' config blocks; what a block holds is each provider's own.
//
// Checks over several values run even where a value is already wrong, so that one pass names every mistake.
import { isIPv6 } from 'node:net'
import { z } from 'zod'

const namePattern = /^[A-Za-z0-9._-]{1,253}$/
const nameMessage = 'may hold letters, digits, dots, dashes and underscores only'

/** A name that ends up in names on the hypervisor or in a providerID, and that a Proxy's placement can spell. */
export const catalogueName = () => z.string().regex(namePattern, nameMessage)

/** A text that must be there if its key is. */
export const nonEmptyText = () => z.string().min(1, 'must not be empty')

/** A whole number from 1. */
export const positiveInt = (most: number) => z.int().min(1).max(most)

/**
 * Entries by a {@link catalogueName}.
 * @param atLeastOne says what is missing when there is no entry; without it there may be none
 */
export function catalogue<T extends z.ZodType>(entry: T, atLeastOne?: string) {
  return z.record(z.string(), entry).superRefine(
    (entries: unknown, context) => {
      if (typeof entries !== 'object' || entries === null) return
      const keys = Object.keys(entries)
      for (const key of keys.filter((name) => !namePattern.test(name))) {
        context.addIssue({ code: 'custom', path: [key], message: nameMessage })
      }
      if (keys.length === 0 && atLeastOne !== undefined) context.addIssue({ code: 'custom', message: atLeastOne })
    },
    { when: () => true },
  )
}

/** A list of at least one entry, whose `name`s differ. */
export function namedList<T extends z.ZodType>(entry: T, atLeastOne: string) {
  return z
    .array(entry)
    .min(1, atLeastOne)
    .superRefine(
      (entries: unknown, context) => {
        for (const { index, first } of repeatedNames(entries)) {
          context.addIssue({ code: 'custom', path: [index, 'name'], message: `is taken already by entry [${first}]` })
        }
      },
      { when: () => true },
    )
}

/** Which entries of a list repeat the `name` of an earlier one. Takes anything. */
export function repeatedNames(entries: unknown): { readonly index: number; readonly first: number }[] {
  if (!Array.isArray(entries)) return []
  const names = entries.map((entry: unknown) =>
    typeof entry === 'object' && entry !== null && 'name' in entry && typeof entry.name === 'string'
      ? entry.name
      : undefined,
  )
  return names.flatMap((name, index) => {
    const first = names.indexOf(name)
    return name === undefined || first === index ? [] : [{ index, first }]
  })
}

/** An http(s) URL without user and password: those would end up in logs and conditions. */
export const httpUrl = () =>
  z.string().refine((text) => {
    const url = URL.parse(text)
    return url !== null && /^https?:$/.test(url.protocol) && url.username === '' && url.password === ''
  }, 'must be an http:// or https:// URL without user and password')

/** Where to dial. */
export interface HostPort {
  /** Name or IP address, IPv6 without brackets. */
  readonly host: string
  readonly port: number
}

const hostPortPattern = /^(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9._])?)):([0-9]{1,5})$/

/** `host:port` with IPv6 in brackets, or undefined when it is not that. */
export function parseHostPort(text: string): HostPort | undefined {
  const [, bracketed, plain, digits] = hostPortPattern.exec(text) ?? []
  const host = bracketed ?? plain
  const port = Number(digits)
  if (host === undefined || port < 1 || port > 65_535) return undefined
  return bracketed === undefined || isIPv6(bracketed) ? { host, port } : undefined
}

/** @param example of a valid value, for the message */
export const hostPort = (example: string) =>
  z
    .string()
    .refine((text) => parseHostPort(text) !== undefined, `must be host:port, for example ${example} (IPv6 in brackets)`)

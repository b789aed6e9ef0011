// Label and field selectors in Kubernetes' syntax, to predicates on stored objects.
import { badRequest } from './api-error.ts'
import { isJson, type Stored } from './json.ts'

export type Predicate = (object: Stored) => boolean

/** @throws ApiError 400 */
export function labelSelector(text: string): Predicate {
  const requirements = splitOutsideParentheses(text).map(requirement)
  return (object) => {
    const labels = new Map(Object.entries(object.metadata.labels ?? {}))
    return requirements.every((holds) => holds(labels))
  }
}

/** `metadata.name`, `metadata.namespace`, and for Events `involvedObject.*`. @throws ApiError 400 */
export function fieldSelector(text: string): Predicate {
  const parts = text.split(',').filter((part) => part !== '')
  const tests = parts.map((part) => {
    const match = /^(?<path>[A-Za-z.]+)(?<operator>==|=|!=)(?<value>.*)$/.exec(part)
    const { path = '', operator, value = '' } = match?.groups ?? {}
    if (!/^(metadata\.(name|namespace)|involvedObject\.[A-Za-z]+)$/.test(path)) {
      throw badRequest(`field label not supported: ${part}`)
    }
    return (object: Stored) => (fieldAt(object, path) === value) === (operator !== '!=')
  })
  return (object) => tests.every((holds) => holds(object))
}

function fieldAt(object: Stored, path: string): string {
  const value = path.split('.').reduce<unknown>((at, name) => (isJson(at) ? at[name] : undefined), object)
  return typeof value === 'string' ? value : ''
}

function splitOutsideParentheses(text: string): string[] {
  return text
    .split(/,(?![^(]*\))/)
    .map((part) => part.trim())
    .filter((part) => part !== '')
}

function requirement(text: string): (labels: ReadonlyMap<string, string>) => boolean {
  const set = /^(?<key>\S+)\s+(?<operator>in|notin)\s+\((?<values>[^)]*)\)$/.exec(text)?.groups
  if (set !== undefined) {
    const { key = '', operator, values = '' } = set
    const members = values.split(',').map((value) => value.trim())
    return (labels) => {
      const value = labels.get(key)
      const isIn = value !== undefined && members.includes(value)
      return operator === 'in' ? isIn : !isIn
    }
  }
  const equality = /^(?<key>[^=!\s]+)\s*(?<operator>==|=|!=)\s*(?<value>[^=!\s]*)$/.exec(text)?.groups
  if (equality !== undefined) {
    const { key = '', operator, value } = equality
    return (labels) => (labels.get(key) === value) === (operator !== '!=')
  }
  const exists = /^(?<not>!?)(?<key>[^=!\s()]+)$/.exec(text)?.groups
  if (exists === undefined) throw badRequest(`unable to parse requirement: ${text}`)
  const { not, key = '' } = exists
  return (labels) => labels.has(key) === (not !== '!')
}

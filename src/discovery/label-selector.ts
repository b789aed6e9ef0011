// Kubernetes' label selector syntax, parsed and matched; not field selectors. No kept npm package does this.

export type Requirement =
  | { readonly kind: 'in'; readonly key: string; readonly values: readonly string[] }
  | { readonly kind: 'notIn'; readonly key: string; readonly values: readonly string[] }
  | { readonly kind: 'exists'; readonly key: string }
  | { readonly kind: 'absent'; readonly key: string }

export type ParsedSelector =
  | { readonly kind: 'valid'; readonly requirements: readonly Requirement[] }
  | { readonly kind: 'invalid'; readonly message: string }

const key = String.raw`(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?`
const value = String.raw`(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?)?`
const setPattern = new RegExp(String.raw`^(${key})\s+(in|notin)\s*\(([^()]*)\)$`)
const equalityPattern = new RegExp(String.raw`^(${key})\s*(==|=|!=)\s*(${value})$`)
const existencePattern = new RegExp(String.raw`^(!?)\s*(${key})$`)
const valuePattern = new RegExp(`^${value}$`)

/** Parses `a=b,c!=d,e in (x,y),f notin (z),g,!h`. The empty string selects everything. */
export function parseLabelSelector(text: string): ParsedSelector {
  const requirements: Requirement[] = []
  if (text.trim() === '') return { kind: 'valid', requirements }
  // commas inside parentheses separate values, not requirements
  for (const part of text.split(/,(?![^()]*\))/)) {
    const requirement = parseRequirement(part.trim())
    if (requirement === undefined) {
      return {
        kind: 'invalid',
        message: `cannot read ${JSON.stringify(part.trim())}: write key=value, key!=value, key in (a,b), key notin (a,b), key or !key`,
      }
    }
    requirements.push(requirement)
  }
  return { kind: 'valid', requirements }
}

/** Whether all requirements hold. As in Kubernetes, `!=` and `notin` hold for an object without the key. */
export function matchesLabels(requirements: readonly Requirement[], labels: Readonly<Record<string, string>>): boolean {
  return requirements.every((requirement) => {
    const actual = Object.hasOwn(labels, requirement.key) ? labels[requirement.key] : undefined
    switch (requirement.kind) {
      case 'in':
        return actual !== undefined && requirement.values.includes(actual)
      case 'notIn':
        return actual === undefined || !requirement.values.includes(actual)
      case 'exists':
        return actual !== undefined
      case 'absent':
        return actual === undefined
    }
  })
}

function parseRequirement(text: string): Requirement | undefined {
  const [, setKey, operator, list] = setPattern.exec(text) ?? []
  if (setKey !== undefined && list !== undefined) {
    const values = list.split(',').map((entry) => entry.trim())
    if (!values.every((entry) => valuePattern.test(entry))) return undefined
    return { kind: operator === 'in' ? 'in' : 'notIn', key: setKey, values }
  }
  const [, equalKey, sign, equalValue] = equalityPattern.exec(text) ?? []
  if (equalKey !== undefined && equalValue !== undefined) {
    return { kind: sign === '!=' ? 'notIn' : 'in', key: equalKey, values: [equalValue] }
  }
  const [, negation, existsKey] = existencePattern.exec(text) ?? []
  if (existsKey === undefined) return undefined
  return { kind: negation === '!' ? 'absent' : 'exists', key: existsKey }
}

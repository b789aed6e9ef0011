// XML as a tree that keeps order, attributes and prefixes, as a daemon needs it to give documents back; no libvirt in it.
import { errorMessage } from '../../../../src/lib/errors.ts'
import { XMLParser } from 'fast-xml-parser'
import { SyntaxValidator } from 'fast-xml-validator'

export interface XmlNode {
  readonly name: string
  readonly attributes: Map<string, string>
  /** Elements and text in document order. */
  readonly children: (XmlNode | string)[]
}

/** Why a text is not well-formed. */
export interface XmlProblem {
  readonly line: number
  readonly message: string
}

export function parseXmlTree(text: string): XmlNode | XmlProblem {
  try {
    // The parser itself takes anything.
    new SyntaxValidator().validate(text)
  } catch (thrown) {
    const line = thrown instanceof Error && 'line' in thrown && typeof thrown.line === 'number' ? thrown.line : 1
    return { line, message: errorMessage(thrown) }
  }
  const parsed: unknown = new XMLParser({
    preserveOrder: true,
    ignoreAttributes: false,
    attributeNamePrefix: '',
    parseTagValue: false,
    parseAttributeValue: false,
    ignoreDeclaration: true,
    ignorePiTags: true,
    trimValues: false,
  }).parse(text)
  const root = toNodes(parsed).find((node) => typeof node !== 'string')
  return root === undefined || typeof root === 'string' ? { line: 1, message: 'Document is empty' } : root
}

export function isProblem(result: XmlNode | XmlProblem): result is XmlProblem {
  return 'message' in result
}

/** The parser's order-preserving form: a list of one-key objects, attributes beside it under `:@`. */
function toNodes(list: unknown): (XmlNode | string)[] {
  if (!Array.isArray(list)) return []
  return list.flatMap((item: unknown): (XmlNode | string)[] => {
    if (typeof item !== 'object' || item === null) return []
    const entries = Object.entries(item) as [string, unknown][]
    const [name, content] = entries.find(([key]) => key !== ':@') ?? []
    if (name === undefined) return []
    if (name === '#text') return [String(content)]
    const attributes = entries.find(([key]) => key === ':@')?.[1]
    const pairs = typeof attributes === 'object' && attributes !== null ? Object.entries(attributes) : []
    return [
      { name, attributes: new Map(pairs.map(([key, value]) => [key, String(value)])), children: toNodes(content) },
    ]
  })
}

export function elements(node: XmlNode, name?: string): XmlNode[] {
  return node.children.filter(
    (child): child is XmlNode => typeof child !== 'string' && (name === undefined || child.name === name),
  )
}

export function element(node: XmlNode | undefined, ...path: string[]): XmlNode | undefined {
  let current = node
  for (const name of path) current = current === undefined ? undefined : elements(current, name)[0]
  return current
}

export function textOf(node: XmlNode | undefined): string | undefined {
  return node?.children
    .filter((child) => typeof child === 'string')
    .join('')
    .trim()
}

export function node(
  name: string,
  attributes: Record<string, string> = {},
  children: (XmlNode | string)[] = [],
): XmlNode {
  return { name, attributes: new Map(Object.entries(attributes)), children }
}

export function cloneNode(source: XmlNode): XmlNode {
  return {
    name: source.name,
    attributes: new Map(source.attributes),
    children: source.children.map((child) => (typeof child === 'string' ? child : cloneNode(child))),
  }
}

/** Two spaces a level, as libvirt prints. `quote` is `'` in its own documents and `"` in what libxml2 prints for it. */
export function printXml(root: XmlNode, quote: "'" | '"' = "'", indent = ''): string {
  const attributes = [...root.attributes].map(([key, value]) => ` ${key}=${quote}${escapeXml(value)}${quote}`).join('')
  const children = root.children.filter((child) => typeof child !== 'string' || child.trim() !== '')
  if (children.length === 0) return `${indent}<${root.name}${attributes}/>\n`
  if (children.every((child) => typeof child === 'string')) {
    const text = root.children.map((child) => (typeof child === 'string' ? escapeXml(child) : '')).join('')
    return `${indent}<${root.name}${attributes}>${text}</${root.name}>\n`
  }
  const inner = children.map((child) =>
    typeof child === 'string' ? `${indent}  ${escapeXml(child.trim())}\n` : printXml(child, quote, `${indent}  `),
  )
  return `${indent}<${root.name}${attributes}>\n${inner.join('')}${indent}</${root.name}>\n`
}

function escapeXml(text: string): string {
  return text
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;')
    .replaceAll("'", '&apos;')
}

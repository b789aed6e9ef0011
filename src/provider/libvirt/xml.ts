// XML in and out, with text escaped and nothing guessed; what the documents say is in domain-xml.ts, volume-xml.ts and mark.ts.
import XMLBuilder from 'fast-xml-builder'
import { XMLParser } from 'fast-xml-parser'
import { SyntaxValidator } from 'fast-xml-validator'

/** A document as nested objects: `@name` is an attribute, an array repeats its element, `''` is an empty element. */
export type XmlTree = Readonly<Record<string, unknown>>

export function buildXml(tree: XmlTree): string {
  return new XMLBuilder({
    ignoreAttributes: false,
    attributeNamePrefix: '@',
    suppressEmptyNode: true,
    suppressBooleanAttributes: false,
  }).build(tree)
}

/**
 * Fields of one element, by name without namespace prefix. Undefined where the text is not well-formed or is what the parser
 * refuses: some hundred levels, entities that grow, names that JavaScript gives a meaning to.
 */
export function parseXml(text: string): XmlElement | undefined {
  try {
    // the parser itself takes anything
    if (!isWellFormed(text)) return undefined
    const tree: unknown = new XMLParser({
      ignoreAttributes: false,
      attributeNamePrefix: '@',
      parseTagValue: false,
      parseAttributeValue: false,
      ignoreDeclaration: true,
      removeNSPrefix: true,
    }).parse(text)
    return new XmlElement(tree)
  } catch {
    return undefined
  }
}

/** Its types know only `true`, and a throw for everything else. */
function isWellFormed(text: string): boolean {
  return new SyntaxValidator().validate(text)
}

/** One element; asking for what it has not gives undefined or an empty list, never an error. */
export class XmlElement {
  readonly #value: unknown

  constructor(value: unknown) {
    this.#value = value
  }

  /** First child of that name. */
  child(name: string): XmlElement | undefined {
    return this.children(name)[0]
  }

  children(name: string): readonly XmlElement[] {
    const value = this.#field(name)
    if (value === undefined) return []
    return (Array.isArray(value) ? value : [value]).map((item) => new XmlElement(item))
  }

  attribute(name: string): string | undefined {
    const value = this.#field(`@${name}`)
    return typeof value === 'string' ? value : undefined
  }

  /** Text of an element without child elements; undefined for one that has some. */
  get text(): string | undefined {
    if (typeof this.#value === 'string') return this.#value
    const own = this.#field('#text')
    if (typeof own === 'string') return own
    const names = typeof this.#value === 'object' && this.#value !== null ? Object.keys(this.#value) : []
    return names.every((name) => name.startsWith('@')) ? '' : undefined
  }

  #field(name: string): unknown {
    if (typeof this.#value !== 'object' || this.#value === null) return undefined
    return Object.hasOwn(this.#value, name) ? Reflect.get(this.#value, name) : undefined
  }
}

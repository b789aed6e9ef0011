// Custom elements in a domain's <metadata>, one per namespace, found and printed as libvirt does it.
import { fail } from './errors.ts'
import { cloneNode, element, elements, isProblem, node, parseXmlTree, printXml, type XmlNode } from './xml.ts'

/** The element in namespace `uri`, its prefix and namespace taken away; undefined when there is none. */
export function readMetadata(domain: XmlNode, uri: string): string | undefined {
  const found = find(domain, uri)
  if (found === undefined) return undefined
  return printXml(withoutNamespace(cloneNode(found), uri), '"').trimEnd()
}

/** @param xml undefined removes the element */
export function writeMetadata(domain: XmlNode, uri: string, key: string, xml: string | undefined): void {
  const fresh = xml === undefined ? undefined : parseElement(xml, uri, key)
  const metadata = element(domain, 'metadata') ?? addMetadata(domain)
  const old = find(domain, uri)
  const kept = metadata.children.filter((child) => child !== old)
  metadata.children.splice(0, metadata.children.length, ...kept, ...(fresh === undefined ? [] : [fresh]))
}

function parseElement(xml: string, uri: string, key: string): XmlNode {
  const parsed = parseXmlTree(xml)
  if (isProblem(parsed)) throw fail.xmlDetail(`(metadata_xml):${parsed.line}: ${parsed.message}`)
  const attributes = new Map([[`xmlns:${key}`, uri], ...parsed.attributes])
  const prefixed: XmlNode = { ...parsed, name: `${key}:${parsed.name}`, attributes }
  prefixChildren(prefixed, key)
  return prefixed
}

function prefixChildren(parent: XmlNode, key: string): void {
  for (const [index, child] of parent.children.entries()) {
    if (typeof child === 'string' || child.name.includes(':')) continue
    const prefixed = { ...child, name: `${key}:${child.name}` }
    prefixChildren(prefixed, key)
    parent.children[index] = prefixed
  }
}

function addMetadata(domain: XmlNode): XmlNode {
  const metadata = node('metadata')
  const after = domain.children.findIndex((child) => typeof child !== 'string' && child.name === 'uuid')
  domain.children.splice(after + 1, 0, metadata)
  return metadata
}

function find(domain: XmlNode, uri: string): XmlNode | undefined {
  const metadata = element(domain, 'metadata')
  if (metadata === undefined) return undefined
  return elements(metadata).find((child) => child.attributes.get(declaration(child.name)) === uri)
}

function declaration(name: string): string {
  const [prefix, local] = name.split(':')
  return local === undefined ? 'xmlns' : `xmlns:${prefix ?? ''}`
}

function withoutNamespace(source: XmlNode, uri: string): XmlNode {
  const attributes = [...source.attributes].filter(([key, value]) => !(key.startsWith('xmlns') && value === uri))
  return {
    name: source.name.split(':').at(-1) ?? source.name,
    attributes: new Map(attributes),
    children: source.children.map((child) => (typeof child === 'string' ? child : withoutNamespace(child, uri))),
  }
}

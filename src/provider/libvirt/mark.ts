// The mark in a domain's <metadata>: how the operator knows its own instances. libvirt has no labels, so this element is all.
import { exhaustive } from '../../lib/exhaustive.ts'
import type { Mark } from '../contract.ts'
import { buildXml, parseXml, type XmlTree } from './xml.ts'

/** What an instance's mark turned out to be. */
export type MarkReading =
  | { readonly kind: 'marked'; readonly mark: Mark }
  /** The domain has no element of ours: it is somebody else's, or lost it. */
  | { readonly kind: 'unmarked' }
  /** There is one and it cannot be understood: reported, never collected. */
  | { readonly kind: 'unreadable' }

const fields = ['uid', 'installation', 'namespace', 'name', 'specHash', 'image', 'imageDigest', 'createdAt'] as const

/** The element as part of a domain document. */
export function markTree(namespace: string, mark: Mark): XmlTree {
  const tree: Record<string, unknown> = { '@xmlns': namespace, managed: 'true' }
  for (const field of fields) {
    const value = mark[field]
    if (value !== undefined) tree[field] = value
  }
  return { instance: tree }
}

/** The element alone, as DOMAIN_SET_METADATA takes it: without its namespace, which is an argument of its own. */
export function markXml(mark: Mark): string {
  const tree: Record<string, unknown> = { managed: 'true' }
  for (const field of fields) {
    const value = mark[field]
    if (value !== undefined) tree[field] = value
  }
  return buildXml({ instance: tree })
}

/** @param metadata what DOMAIN_GET_METADATA answered for our namespace; undefined when it has none */
export function readMark(metadata: string | undefined): MarkReading {
  if (metadata === undefined) return { kind: 'unmarked' }
  const element = parseXml(metadata)?.child('instance')
  if (element?.child('managed')?.text?.trim() !== 'true') return { kind: 'unreadable' }
  const mark: Record<string, string> = {}
  for (const field of fields) {
    const [child, ...more] = element.children(field)
    if (child === undefined) continue
    const text = child.text?.trim()
    if (text === undefined || more.length > 0) return { kind: 'unreadable' }
    if (text !== '') mark[field] = text
  }
  return { kind: 'marked', mark }
}

export interface OwnerIdentity {
  readonly uid: string
  readonly installation: string
}

/** Whose an instance is, seen from one Proxy. */
export type Ownership =
  | { readonly kind: 'ours' }
  /** Ours by name, without a UID in the mark: made by the earlier implementation or retained. */
  | { readonly kind: 'unowned'; readonly mark: Mark }
  /** Another Proxy's of this installation. */
  | { readonly kind: 'otherProxy'; readonly uid: string }
  | { readonly kind: 'otherInstallation'; readonly installation: string }
  /** Another UID and no installation: nobody here will ever clear it. */
  | { readonly kind: 'unknownOwner'; readonly uid: string }
  | { readonly kind: 'unmarked' }
  | { readonly kind: 'unreadable' }

/** An installation in the mark that is not ours outweighs the UID: a restored cluster has the same UIDs. */
export function ownership(reading: MarkReading, owner: OwnerIdentity): Ownership {
  switch (reading.kind) {
    case 'unmarked':
      return { kind: 'unmarked' }
    case 'unreadable':
      return { kind: 'unreadable' }
    case 'marked': {
      const { uid, installation } = reading.mark
      if (installation !== undefined && installation !== owner.installation) {
        return { kind: 'otherInstallation', installation }
      }
      if (uid === undefined) return { kind: 'unowned', mark: reading.mark }
      if (uid === owner.uid) return { kind: 'ours' }
      return installation === undefined ? { kind: 'unknownOwner', uid } : { kind: 'otherProxy', uid }
    }
    default:
      return exhaustive(reading)
  }
}

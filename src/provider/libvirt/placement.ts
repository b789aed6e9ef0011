// Turns a Proxy's placement into a host, a size and an image of the provider's catalogue; pure, before any host is dialled.
import { createHash } from 'node:crypto'
import type { Placement } from '../contract.ts'
import { ProviderError } from '../errors.ts'
import { imageFromUrl, type LibvirtConfig, type LibvirtHost, type LibvirtImage, type MachineType } from './config.ts'

export type Catalogue = Pick<LibvirtConfig, 'images' | 'machineTypes' | 'hosts'>

/** An image, resolved. */
export interface ImageChoice extends LibvirtImage {
  /** As people know it: its key, or the URL without credentials and query. */
  readonly label: string
  /** Whose word the URL is: a mistake in it is corrected there. */
  readonly source: { readonly kind: 'catalogue'; readonly field: string } | { readonly kind: 'placement' }
  /** Volume the base image is cached in. */
  readonly volume: string
  /** The volume to use instead while overlays stand on another image under the plain name. */
  readonly alternateVolume: string
}

export interface ResolvedPlacement {
  readonly host: LibvirtHost
  readonly machineType: MachineType
  readonly image: ImageChoice
}

/**
 * @param block name of the block in the providers config, for messages: `kvm2`
 * @throws ProviderError permanent, origin `spec`
 */
export function resolvePlacement(block: string, catalogue: Catalogue, placement: Placement): ResolvedPlacement {
  return {
    host: resolveHost(block, catalogue.hosts, placement.zone),
    machineType: resolveMachineType(block, catalogue.machineTypes, placement.machineType),
    image: resolveImage(block, catalogue.images, placement.image),
  }
}

/** @throws ProviderError permanent, origin `spec`: another zone is the way out, and a change of the config ends it too */
export function requireAcceptsNew(block: string, host: LibvirtHost): void {
  if (!host.drain) return
  throw invalid(
    'HostDraining',
    `host ${host.name} makes no new instances, because ${block}.hosts has drain: true for it; name another host in ` +
      `placement.zone or end the drain`,
  )
}

function resolveHost(block: string, hosts: readonly LibvirtHost[], zone: string | undefined): LibvirtHost {
  const names = hosts.map((host) => host.name)
  if (zone === undefined) {
    const [only, ...more] = hosts
    if (only !== undefined && more.length === 0) return only
    throw invalid(
      'ZoneRequired',
      `placement.zone is required when ${block}.hosts lists more than one host; set it to one of ${list(names)}`,
    )
  }
  const host = hosts.find((candidate) => candidate.name === zone)
  if (host !== undefined) return host
  throw invalid('ZoneUnknown', `placement.zone ${quote(zone)} is not in ${block}.hosts; it has ${list(names)}`)
}

function resolveMachineType(
  block: string,
  types: ReadonlyMap<string, MachineType>,
  key: string | undefined,
): MachineType {
  const names = list([...types.keys()])
  if (key === undefined) {
    throw invalid('MachineTypeRequired', `placement.machineType is required; ${block}.machineTypes has ${names}`)
  }
  const found = types.get(key)
  if (found !== undefined) return found
  throw invalid(
    'MachineTypeUnknown',
    `placement.machineType ${quote(key)} is not in ${block}.machineTypes; it has ${names}`,
  )
}

function resolveImage(
  block: string,
  images: ReadonlyMap<string, LibvirtImage>,
  image: string | undefined,
): ImageChoice {
  const names = list([...images.keys()])
  if (image === undefined) {
    throw invalid(
      'ImageRequired',
      `placement.image is required: a key in ${block}.images, which has ${names}, or an http(s) URL`,
    )
  }
  const entry = images.get(image)
  if (entry !== undefined) {
    return catalogueImage(block, image, entry)
  }
  const url = httpUrl(image)
  if (url !== undefined) {
    const key = sha256Hex(image).slice(0, 16)
    return choice(key, displayUrl(url), { kind: 'placement' }, imageFromUrl(image))
  }
  throw invalid(
    'ImageUnknown',
    `placement.image ${quote(image)} is neither a key in ${block}.images nor an http(s) URL; the keys are ${names}`,
  )
}

/** An image of the catalogue, as a placement that names its key gets it. */
export function catalogueImage(block: string, key: string, entry: LibvirtImage): ImageChoice {
  return choice(key, key, { kind: 'catalogue', field: `${block}.images.${key}` }, entry)
}

function choice(key: string, label: string, source: ImageChoice['source'], entry: LibvirtImage): ImageChoice {
  const tag = (entry.sha256 ?? sha256Hex(entry.url)).slice(0, 12)
  return {
    ...entry,
    label,
    source,
    volume: `base-${key}.${entry.format}`,
    alternateVolume: `base-${key}-${tag}.${entry.format}`,
  }
}

function httpUrl(text: string): URL | undefined {
  const url = URL.canParse(text) ? new URL(text) : undefined
  return url?.protocol === 'http:' || url?.protocol === 'https:' ? url : undefined
}

/** A URL as it may be shown: without credentials, query and fragment. */
export function displayUrl(url: URL): string {
  return `${url.protocol}//${url.host}${url.pathname}`
}

function sha256Hex(text: string): string {
  return createHash('sha256').update(text).digest('hex')
}

function quote(value: string): string {
  return JSON.stringify(value)
}

function list(names: readonly string[]): string {
  return names.length === 0 ? 'none' : names.join(', ')
}

function invalid(code: string, message: string): ProviderError {
  return ProviderError.permanent('spec', message, { code })
}

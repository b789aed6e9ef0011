// Volume documents and the names volumes have in a pool; what a volume means is decided by its users.
import { buildXml, parseXml } from './xml.ts'

export interface RawVolume {
  readonly name: string
  readonly capacityBytes: number
}

export interface OverlayVolume extends RawVolume {
  readonly backingPath: string
  readonly backingFormat: 'qcow2' | 'raw'
}

/** A raw volume without blocks: an upload gives it its bytes. */
export function rawVolumeXml(volume: RawVolume): string {
  return buildXml({
    volume: {
      name: volume.name,
      capacity: { '@unit': 'bytes', '#text': String(volume.capacityBytes) },
      allocation: { '@unit': 'bytes', '#text': '0' },
      target: { format: { '@type': 'raw' } },
    },
  })
}

/** A thin qcow2 volume over a base. */
export function overlayVolumeXml(volume: OverlayVolume): string {
  return buildXml({
    volume: {
      name: volume.name,
      capacity: { '@unit': 'bytes', '#text': String(volume.capacityBytes) },
      allocation: { '@unit': 'bytes', '#text': '0' },
      target: { format: { '@type': 'qcow2' } },
      backingStore: { path: volume.backingPath, format: { '@type': volume.backingFormat } },
    },
  })
}

/** Path of the volume that this one is an overlay of; undefined when it stands alone. */
export function backingPath(xml: string): string | undefined {
  const path = parseXml(xml)?.child('volume')?.child('backingStore')?.child('path')?.text
  return path === undefined || path === '' ? undefined : path
}

/** When the volume's file was last written, by the host's clock, milliseconds since the epoch; undefined where libvirt does not tell. */
export function modifiedMs(xml: string): number | undefined {
  const text = parseXml(xml)?.child('volume')?.child('target')?.child('timestamps')?.child('mtime')?.text
  const seconds = text === undefined || text === '' ? Number.NaN : Number(text)
  return Number.isFinite(seconds) ? seconds * 1000 : undefined
}

export function overlayName(instanceName: string): string {
  return `${instanceName}.qcow2`
}

export function seedName(instanceName: string): string {
  return `${instanceName}-seed.iso`
}

// Pool and volume documents as libvirtd prints them.
import { readQcow2 } from './formats.ts'
import { allocation, available, poolAllocation, volumeCapacity, type StubPool, type StubVolume } from './pools.ts'
import { node, printXml, type XmlNode } from './xml.ts'

export function poolDocument(pool: StubPool): string {
  const size = (name: string, bytes: number) => node(name, { unit: 'bytes' }, [String(pool.active ? bytes : 0)])
  return printXml(
    node('pool', { type: 'dir' }, [
      node('name', {}, [pool.name]),
      node('uuid', {}, [pool.uuid]),
      size('capacity', pool.capacity),
      size('allocation', poolAllocation(pool)),
      size('available', available(pool)),
      node('source'),
      node('target', {}, [node('path', {}, [pool.targetPath]), permissions('0711')]),
    ]),
  )
}

export function volumeDocument(volume: StubVolume): string {
  const header = volume.format === 'qcow2' ? readQcow2(volume.content) : undefined
  const children = [
    node('name', {}, [volume.name]),
    node('key', {}, [volume.path]),
    node('capacity', { unit: 'bytes' }, [String(volumeCapacity(volume))]),
    node('allocation', { unit: 'bytes' }, [String(allocation(volume))]),
    node('physical', { unit: 'bytes' }, [String(volume.content.length)]),
    node('target', {}, [
      node('path', {}, [volume.path]),
      node('format', { type: volume.format }),
      permissions('0600'),
      timestamps(volume),
    ]),
  ]
  if (header?.backingPath !== undefined) {
    children.push(
      node('backingStore', {}, [
        node('path', {}, [header.backingPath]),
        node('format', { type: header.backingFormat ?? 'raw' }),
      ]),
    )
  }
  return printXml(node('volume', { type: 'file' }, children))
}

function permissions(mode: string): XmlNode {
  return node('permissions', {}, [node('mode', {}, [mode]), node('owner', {}, ['0']), node('group', {}, ['0'])])
}

function timestamps(volume: StubVolume): XmlNode {
  const time = (volume.modifiedAt / 1000).toFixed(9)
  return node('timestamps', {}, [
    ...['atime', 'mtime', 'ctime'].map((name) => node(name, {}, [time])),
    node('btime', {}, ['0']),
  ])
}

// What a test sees of a real libvirt host: its domains and the files of its pool. It changes nothing there.
import { readdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import type { LibvirtHost } from '../libvirt-host.ts'

export interface DomainView {
  readonly name: string
  readonly uuid: string
  /** virsh's word: `running`, `shut off`, ... */
  readonly state: string
  /** Number of this run of the domain; undefined when it does not run. */
  readonly id: number | undefined
}

export interface HostView {
  domains(): Promise<DomainView[]>
  /** Names of the files in the pool's folder, sorted. */
  files(): Promise<string[]>
  /** Bytes that a file of the pool really takes on the disk, undefined when there is none. */
  writtenBytes(file: string): Promise<number | undefined>
  /** Path of a file of the pool on this machine. */
  path(file: string): string
}

export function viewOf(host: LibvirtHost): HostView {
  const path = (file: string) => join(host.poolDirOutside, file)
  return {
    path,
    domains: async () => {
      const names = lines(await host.virsh(['-q', 'list', '--all', '--name']))
      return await Promise.all(names.map((name) => readDomain(host, name)))
    },
    files: async () => (await readdir(host.poolDirOutside)).sort(),
    writtenBytes: async (file) => {
      try {
        return (await stat(path(file))).blocks * 512
      } catch (error) {
        if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined
        throw error
      }
    },
  }
}

async function readDomain(host: LibvirtHost, name: string): Promise<DomainView> {
  const info = await host.virsh(['-q', 'dominfo', name])
  const field = (label: string) => new RegExp(`^${label}:\\s*(.*)$`, 'm').exec(info)?.[1]?.trim() ?? ''
  const id = Number(field('Id'))
  return { name, uuid: field('UUID'), state: field('State'), id: Number.isInteger(id) ? id : undefined }
}

function lines(text: string): string[] {
  return text
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '')
}

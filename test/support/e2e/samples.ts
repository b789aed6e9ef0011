// The samples of hack/samples as a user would adapt them to his hosts and images, and user-data that the test images understand.
import { readFile, writeFile } from 'node:fs/promises'
import { resolve } from 'node:path'
import { parse } from 'yaml'
import type { z } from 'zod'
import type { apiVersion, proxyKind } from '../../../src/api/group.ts'
import type { ProxySpecInput } from '../../../src/api/proxy.ts'
import type { kvm2BlockSchema } from '../../../src/provider/libvirt/config.ts'
import type { LibvirtHost } from '../libvirt-host.ts'

const folder = resolve(import.meta.dirname, '../../../hack/samples')

/** A Proxy as a person writes it. */
export interface ProxyManifest {
  readonly apiVersion: typeof apiVersion
  readonly kind: typeof proxyKind.kind
  readonly metadata: {
    readonly name: string
    readonly namespace: string
    readonly annotations?: Readonly<Record<string, string>>
  }
  readonly spec: ProxySpecInput
}

/** An entry of the providers config as a person writes it. */
export interface ProviderEntry {
  readonly name: string
  readonly type: 'kvm2'
  readonly maxConcurrentCreates?: number
  readonly kvm2: z.input<typeof kvm2BlockSchema>
}

/** hack/samples/proxy_kvm2.yaml under another name, with other fields in its spec. */
export async function sampleProxy(name: string, spec: Partial<ProxySpecInput>): Promise<ProxyManifest> {
  const sample = parse(await readFile(resolve(folder, 'proxy_kvm2.yaml'), 'utf8')) as ProxyManifest
  return { ...sample, metadata: { ...sample.metadata, name }, spec: { ...sample.spec, ...spec } }
}

/** What differs from the sample. */
export interface ProviderChange {
  readonly name?: string
  readonly host?: Partial<ProviderEntry['kvm2']['hosts'][number]>
  readonly block?: Partial<ProviderEntry['kvm2']>
}

/** What a kvm2 provider needs to know of a host. */
export type Kvm2Host = Pick<
  LibvirtHost,
  'sshHost' | 'sshPort' | 'sshUser' | 'sshKeyPath' | 'knownHostsPath' | 'socketPath' | 'pool' | 'bridge'
>

/** The entry of hack/samples/providers-config.yaml for a host of the tests. */
export async function sampleProvider(host: Kvm2Host, change: ProviderChange): Promise<ProviderEntry> {
  const text = await readFile(resolve(folder, 'providers-config.yaml'), 'utf8')
  const [entry] = (parse(text) as { providers: ProviderEntry[] }).providers
  const [sampleHost] = entry?.kvm2.hosts ?? []
  if (entry === undefined || sampleHost === undefined) throw new Error('the sample of the providers config has no host')
  const ours = {
    ...sampleHost,
    address: `${host.sshHost}:${host.sshPort}`,
    user: host.sshUser,
    socket: host.socketPath,
    pool: host.pool,
    bridge: host.bridge,
    ...change.host,
  }
  const { sshKeyPath: sshKeyFile, knownHostsPath: knownHostsFile } = host
  const kvm2 = { ...entry.kvm2, sshKeyFile, knownHostsFile, diskSizeGb: 2, hosts: [ours], ...change.block }
  return { ...entry, name: change.name ?? entry.name, kvm2 }
}

export async function writeProviders(file: string, providers: readonly ProviderEntry[]): Promise<void> {
  await writeFile(file, JSON.stringify({ providers }, undefined, 2))
}

/**
 * cloud-config for both images: JSON is YAML, and the tiny image reads no other. tinyproxy signs with `via` then.
 * @param more further text that the user-data is to hold
 */
export function proxyUserData(via: string, more = ''): string {
  const path = '/etc/tinyproxy/tinyproxy.conf'
  const content = `Port 3128\nTimeout 60\nViaProxyName "${via}"\n`
  // cloud-init leaves keys alone that begin so.
  return `#cloud-config\n${JSON.stringify({ write_files: [{ path, content }], 'x-more': more })}\n`
}

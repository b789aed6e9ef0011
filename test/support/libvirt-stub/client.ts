// A client of the stub for tests: SSH and libvirt as the product does them, and the steps that make a running VM.
import { Readable } from 'node:stream'
import { systemClock } from '../../../src/lib/clock.ts'
import { LibvirtConnection } from '../../../src/wire/libvirt/connection.ts'
import type { Domain, StoragePool, StorageVol } from '../../../src/wire/libvirt/protocol.gen.ts'
import { loadCredentials } from '../../../src/wire/ssh/credentials.ts'
import { dialSsh, type SshConnection } from '../../../src/wire/ssh/dial.ts'
import type { LibvirtStub } from './stub.ts'

const never = new AbortController().signal
export const callOptions = { timeoutMs: 120_000 }

export async function dialStub(stub: LibvirtStub): Promise<SshConnection> {
  const { address, user, keyFile, knownHostsFile } = stub
  const credentials = await loadCredentials({ keyFile, knownHostsFile, insecureIgnoreHostKey: false })
  return await dialSsh({ address, user, credentials, signal: never, clock: systemClock, timeoutMs: 120_000 })
}

export class StubClient {
  readonly ssh: SshConnection
  readonly libvirt: LibvirtConnection
  readonly pool: StoragePool

  private constructor(ssh: SshConnection, libvirt: LibvirtConnection, pool: StoragePool) {
    this.ssh = ssh
    this.libvirt = libvirt
    this.pool = pool
  }

  static async connect(stub: LibvirtStub): Promise<StubClient> {
    const ssh = await dialStub(stub)
    const stream = await ssh.openStreamLocal(stub.socketPath, { signal: never, timeoutMs: 120_000 })
    const libvirt = await LibvirtConnection.open(stream, { clock: systemClock, signal: never, timeoutMs: 120_000 })
    const { pool } = await libvirt.call('STORAGE_POOL_LOOKUP_BY_NAME', { name: 'default' }, callOptions)
    return new StubClient(ssh, libvirt, pool)
  }

  async createVolume(name: string, capacityBytes: number, format: 'raw' | 'qcow2' = 'raw'): Promise<StorageVol> {
    const xml =
      `<volume><name>${name}</name><capacity>${capacityBytes}</capacity><allocation>0</allocation>` +
      `<target><format type='${format}'/></target></volume>`
    return (await this.libvirt.call('STORAGE_VOL_CREATE_XML', { pool: this.pool, xml, flags: 0 }, callOptions)).vol
  }

  async upload(vol: StorageVol, content: Buffer): Promise<void> {
    const options = { length: BigInt(content.length), timeoutMs: 120_000 }
    await this.libvirt.upload(vol, Readable.from([content]), options)
  }

  async putVolume(name: string, content: Buffer): Promise<StorageVol> {
    const vol = await this.createVolume(name, content.length)
    await this.upload(vol, content)
    return vol
  }

  async start(dom: Domain): Promise<void> {
    await this.libvirt.call('DOMAIN_CREATE', { dom }, callOptions)
  }

  async define(xml: string): Promise<Domain> {
    return (await this.libvirt.call('DOMAIN_DEFINE_XML', { xml }, callOptions)).dom
  }

  async addresses(dom: Domain, source: 0 | 1 | 2) {
    const args = { dom, source, flags: 0 }
    return (await this.libvirt.call('DOMAIN_INTERFACE_ADDRESSES', args, { ...callOptions, slow: true })).ifaces
  }

  async close(): Promise<void> {
    await this.libvirt.close()
    await this.ssh.close()
  }
}

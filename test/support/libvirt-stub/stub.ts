// A libvirt host to test and demonstrate with: a real SSH server, real RPC framing, VMs that are real forward proxies.
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { connect, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { duplexPair, type Duplex } from 'node:stream'
import type { Random } from '../../../src/lib/backoff.ts'
import { systemClock, type Clock } from '../../../src/lib/clock.ts'
import type { ProcedureName } from '../../../src/wire/libvirt/protocol.gen.ts'
import { generateTestKey, knownHostsLine, type TestKeyKind } from '../ssh/keys.ts'
import { startTestSshServer, type TestSshServer } from '../ssh/server.ts'
import { StubHost } from './host.ts'
import { Knobs } from './knobs.ts'
import type { PoolOptions, StubPool } from './model/pools.ts'
import { serveLibvirt } from './rpc/connection.ts'
import { domainViews, volumeViews, type DomainView, type VolumeView } from './views.ts'

export interface LibvirtStubOptions {
  readonly clock?: Clock
  readonly random?: Random
  /** Address to listen on; default 127.0.0.1. */
  readonly host?: string
  /** Default 0: any free port. */
  readonly port?: number
  /** SSH user; default `operator`. */
  readonly user?: string
  /** Default ed25519. */
  readonly hostKeyKind?: TestKeyKind
  /** Path of libvirt's socket on the host. */
  readonly socketPath?: string
  /** Also listen on this real unix socket, for virsh and the like. */
  readonly unixSocket?: string
  /** Running pools; default one named `default` of 100 GiB. */
  readonly pools?: readonly PoolOptions[]
  /** Default `br0`. */
  readonly bridges?: readonly string[]
  /** Port of the guests' proxies; default 3128. */
  readonly proxyPort?: number
  /** Start of a domain until its agent answers, milliseconds; default 0. */
  readonly bootDelayMs?: number
  /** Bytes of each volume that are kept in memory; the rest is counted and hashed. Default 64 MiB. */
  readonly keepBytes?: number
}

export interface LibvirtStub {
  /** `host:port` of its SSH server. */
  readonly address: string
  readonly user: string
  readonly socketPath: string
  /** Private key text that lets `user` in. */
  readonly privateKey: string
  readonly knownHostsLine: string
  /** The two of them as files, removed by `close`. */
  readonly keyFile: string
  readonly knownHostsFile: string
  readonly knobs: Knobs
  readonly host: StubHost

  /** What there is now, for assertions. */
  domains(): DomainView[]
  domain(name: string): DomainView | undefined
  volumes(pool?: string): VolumeView[]
  volume(name: string, pool?: string): VolumeView | undefined
  /** The pool itself: its capacity and whether it is active may be changed. */
  pool(name?: string): StubPool
  /** Calls of a procedure so far, over all connections. */
  calls(procedure: ProcedureName): number
  /** Resolves at the next call of the procedure, before it has an effect. */
  nextCall(procedure: ProcedureName): Promise<void>
  /** Open SSH connections. */
  connections(): number
  /** Resets every SSH connection. */
  cutConnections(): void
  /** Stops answering on every present SSH connection, without closing any. */
  freezeConnections(): void
  /** One connection to the daemon without SSH. */
  openLocal(): Duplex
  /** Stops the guests and the servers; rejects when the stub itself had a fault. */
  close(): Promise<void>
}

const gib = 2 ** 30

export async function startLibvirtStub(options: LibvirtStubOptions = {}): Promise<LibvirtStub> {
  const knobs = new Knobs()
  knobs.bootDelayMs = options.bootDelayMs ?? 0
  const host = new StubHost({
    clock: options.clock ?? systemClock,
    random: options.random ?? Math.random,
    knobs,
    proxyPort: options.proxyPort ?? 3128,
    keepBytes: options.keepBytes ?? 64 * 2 ** 20,
    bridges: options.bridges ?? ['br0'],
  })
  const defaultPool = { name: 'default', targetPath: '/var/lib/libvirt/images', capacity: 100 * gib }
  for (const pool of options.pools ?? [defaultPool]) host.pools.add(pool, true)
  return await new StubServer(host, options).start()
}

class StubServer {
  readonly #host: StubHost
  readonly #options: LibvirtStubOptions
  readonly #user: string
  readonly #socketPath: string
  readonly #calls = new Map<ProcedureName, number>()
  #watchers: { procedure: ProcedureName; resolve: () => void }[] = []
  readonly #bugs: Error[] = []
  readonly #serving = new Set<Promise<void>>()
  readonly #streams = new Set<Duplex>()

  constructor(host: StubHost, options: LibvirtStubOptions) {
    this.#host = host
    this.#options = options
    this.#user = options.user ?? 'operator'
    this.#socketPath = options.socketPath ?? '/var/run/libvirt/libvirt-sock'
  }

  async start(): Promise<LibvirtStub> {
    const clientKey = generateTestKey()
    const hostKey = generateTestKey(this.#options.hostKeyKind)
    const { knobs } = this.#host
    const ssh = await startTestSshServer({
      hostKeys: [hostKey.privateKey],
      user: this.#user,
      authorizedKeys: [clientKey.publicBlob],
      ...(this.#options.host === undefined ? {} : { host: this.#options.host }),
      ...(this.#options.port === undefined ? {} : { port: this.#options.port }),
      onForward: (path) =>
        knobs.refuseForwarding || path !== this.#socketPath ? undefined : (stream) => this.#serve(stream),
    })
    const closeUnix = await this.#listenUnix()
    const folder = await mkdtemp(join(tmpdir(), 'libvirt-stub-'))
    const line = knownHostsLine(ssh.host, ssh.port, hostKey.publicKey)
    const keyFile = join(folder, 'id_ed25519')
    const knownHostsFile = join(folder, 'known_hosts')
    await writeFile(keyFile, clientKey.privateKey, { mode: 0o600 })
    await writeFile(knownHostsFile, `${line}\n`)
    return {
      address: `${ssh.host}:${ssh.port}`,
      user: this.#user,
      socketPath: this.#socketPath,
      privateKey: clientKey.privateKey,
      knownHostsLine: line,
      keyFile,
      knownHostsFile,
      knobs,
      host: this.#host,
      ...this.#observers(),
      connections: () => ssh.connections(),
      cutConnections: () => ssh.cut(),
      freezeConnections: () => ssh.freeze(),
      openLocal: () => {
        const [client, server] = duplexPair()
        this.#serve(server)
        return client
      },
      close: async () => {
        await this.#close(ssh, closeUnix)
        await rm(folder, { recursive: true, force: true })
        if (this.#bugs.length > 0) throw new AggregateError(this.#bugs, 'the libvirt stub had faults of its own')
      },
    }
  }

  #observers(): Pick<LibvirtStub, 'domains' | 'domain' | 'volumes' | 'volume' | 'pool' | 'calls' | 'nextCall'> {
    const host = this.#host
    return {
      domains: () => domainViews(host),
      domain: (name) => domainViews(host).find((view) => view.name === name),
      volumes: (pool = 'default') => volumeViews(host.pools.byName(pool)),
      volume: (name, pool = 'default') => volumeViews(host.pools.byName(pool)).find((view) => view.name === name),
      pool: (name = 'default') => host.pools.byName(name),
      calls: (procedure) => this.#calls.get(procedure) ?? 0,
      nextCall: (procedure) =>
        new Promise((resolve) => {
          this.#watchers.push({ procedure, resolve })
        }),
    }
  }

  #serve(stream: Duplex): void {
    this.#streams.add(stream)
    const serving: Promise<void> = serveLibvirt(stream, {
      host: this.#host,
      onCall: (procedure) => this.#onCall(procedure),
      onBug: (error) => this.#bugs.push(error),
    }).finally(() => {
      this.#streams.delete(stream)
      this.#serving.delete(serving)
    })
    this.#serving.add(serving)
  }

  #onCall(procedure: ProcedureName): void {
    this.#calls.set(procedure, (this.#calls.get(procedure) ?? 0) + 1)
    const heard = this.#watchers.filter((watcher) => watcher.procedure === procedure)
    this.#watchers = this.#watchers.filter((watcher) => watcher.procedure !== procedure)
    for (const { resolve } of heard) resolve()
  }

  async #listenUnix(): Promise<() => Promise<void>> {
    const path = this.#options.unixSocket
    if (path === undefined) return () => Promise.resolve()
    const server = createServer((socket) => {
      socket.on('error', () => socket.destroy())
      this.#serve(socket)
    })
    await removeStaleSocket(path)
    server.listen(path)
    await once(server, 'listening')
    return async () => {
      const closed = once(server, 'close')
      server.close()
      await closed
    }
  }

  async #close(ssh: TestSshServer, closeUnix: () => Promise<void>): Promise<void> {
    for (const stream of this.#streams) stream.destroy()
    this.#host.knobs.limitUploads(Number.POSITIVE_INFINITY)
    await ssh.close()
    await Promise.all(this.#serving)
    await closeUnix()
    await this.#host.close()
  }
}

/** A process that was killed leaves its socket; one that somebody listens on stays, and the listen fails. */
async function removeStaleSocket(path: string): Promise<void> {
  const probe = connect(path)
  const outcome = await new Promise<string | undefined>((resolve) => {
    probe.once('connect', () => resolve(undefined))
    probe.once('error', (error: NodeJS.ErrnoException) => resolve(error.code))
  })
  probe.destroy()
  if (outcome === 'ECONNREFUSED') await rm(path)
}

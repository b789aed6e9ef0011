// Dials a host: credentials, TCP, SSH, the forwarded socket, libvirt's opening, all in one budget. Who uses the connection is in hosts.ts.
import type { Duplex } from 'node:stream'
import type { Clock } from '../../lib/clock.ts'
import { deadline } from '../../lib/deadline.ts'
import { errorMessage, toError } from '../../lib/errors.ts'
import type { Logger } from '../../observe/logger.ts'
import { withSpan } from '../../observe/tracing.ts'
import { LibvirtConnection } from '../../wire/libvirt/connection.ts'
import { loadCredentials, type SshCredentialFiles } from '../../wire/ssh/credentials.ts'
import { dialSsh, type SshConnection } from '../../wire/ssh/dial.ts'
import { SshError } from '../../wire/ssh/errors.ts'
import type { TcpConnect } from '../../wire/ssh/tcp.ts'
import type { Budgets } from './budgets.ts'
import type { LibvirtHost } from './config.ts'
import type { Flavour } from './flavour.ts'
import type { DialHost, HostSession } from './hosts.ts'
import { Rpc } from './rpc.ts'
import { WireHostApi } from './wire-host-api.ts'

export interface DialerOptions {
  readonly targets: readonly LibvirtHost[]
  /** Read anew on every dial, so that a rotated Secret needs no restart. */
  readonly credentials: SshCredentialFiles
  readonly flavour: Flavour
  readonly budgets: Budgets
  readonly clock: Clock
  readonly log: Logger
  /** Of the lines about calls. */
  readonly callLog: Logger
  readonly connect?: TcpConnect
}

const uri = 'qemu:///system'

export function createDialer(options: DialerOptions): DialHost {
  return async (host, signal) => {
    const target = options.targets.find((candidate) => candidate.name === host)
    if (target === undefined) throw new RangeError(`${host} is not a configured host`)
    const { name: flavour } = options.flavour
    const attributes = {
      [`${flavour}.host`]: target.name,
      [`${flavour}.address`]: target.address,
      [`${flavour}.user`]: target.user,
    }
    return await withSpan(`${flavour}.dial`, { kind: 'client', attributes }, () => dialLogged(options, target, signal))
  }
}

async function dialLogged(options: DialerOptions, target: LibvirtHost, signal: AbortSignal): Promise<HostSession> {
  const { clock, log } = options
  const began = clock.monotonic()
  const fields = () => ({
    host: target.name,
    address: target.address,
    user: target.user,
    durationMs: Math.round(clock.monotonic() - began),
  })
  try {
    const session = await dial(options, target, signal)
    log.debug('libvirt host connected', fields())
    return session
  } catch (thrown) {
    const stage = thrown instanceof SshError ? thrown.stage : 'socket'
    log.debug('libvirt host connect failed', { ...fields(), error: errorMessage(thrown), stage })
    throw thrown
  }
}

async function dial(options: DialerOptions, target: LibvirtHost, signal: AbortSignal): Promise<HostSession> {
  const { clock, budgets } = options
  const endsAt = clock.monotonic() + budgets.dialMs
  const left = () => Math.max(1, endsAt - clock.monotonic())
  const credentials = await loadCredentials(options.credentials)
  const ssh = await dialSsh({
    address: target.address,
    user: target.user,
    credentials,
    signal,
    clock,
    timeoutMs: left(),
    ...(options.connect === undefined ? {} : { connect: options.connect }),
  })
  try {
    const stream = await openSocket(ssh, target, () => ({ signal, timeoutMs: left() }))
    const libvirt = await LibvirtConnection.open(stream, { clock, uri, signal, timeoutMs: left() })
    return session(options, target, ssh, libvirt)
  } catch (thrown) {
    ssh.kill(toError(thrown))
    throw thrown
  }
}

/** sshd's refusal does not tell an absent socket from one that may not be opened, so that the next one is tried after any. */
async function openSocket(
  ssh: SshConnection,
  target: LibvirtHost,
  options: () => { readonly signal: AbortSignal; readonly timeoutMs: number },
): Promise<Duplex> {
  const refusals: SshError[] = []
  for (const path of target.socketPaths) {
    try {
      return await ssh.openStreamLocal(path, options())
    } catch (thrown) {
      if (!(thrown instanceof SshError) || thrown.code !== 'FORWARD_REFUSED') throw thrown
      refusals.push(thrown)
    }
  }
  const [first, ...more] = refusals
  if (first === undefined) throw new Error(`host ${target.name} has no socket to try`)
  if (more.length === 0) throw first
  const message = `none of libvirt's sockets let us in: ${refusals.map((refusal) => refusal.message).join('; ')}`
  throw new SshError('FORWARD_REFUSED', 'socket', message, { cause: new AggregateError(refusals) })
}

function session(
  options: DialerOptions,
  target: LibvirtHost,
  ssh: SshConnection,
  libvirt: LibvirtConnection,
): HostSession {
  const { clock, log, flavour, budgets } = options
  const rpc = new Rpc(libvirt, { host: target.name, flavour, clock, log: options.callLog })
  let ended = false
  void libvirt.closed.then((reason) => {
    if (!ended) log.debug('libvirt connection dropped', { host: target.name, reason: reason.message })
    // Without libvirt on it the SSH connection is of no use to anybody.
    void ssh.close()
  })
  return {
    api: new WireHostApi(rpc, budgets, flavour),
    closed: libvirt.closed,
    async close() {
      ended = true
      using goodbye = deadline(clock, `closing the connection to ${target.name}`, budgets.closeMs)
      goodbye.signal.addEventListener('abort', () => ssh.kill(toError(goodbye.signal.reason)), { once: true })
      await libvirt.close()
      await ssh.close()
    },
    destroy(reason) {
      ended = true
      // The SSH connection first: it ends without writing anything, so also on a host that is gone.
      ssh.kill(reason)
      libvirt.destroy(reason)
    },
  }
}

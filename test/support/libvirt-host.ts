// A real libvirt host for the end-to-end suites, started by hack/libvirt-host; not the SSH+libvirt stub.
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { z } from 'zod'
import { runChecked, type CommandOptions } from './command.ts'

export const libvirtHostScript = join(import.meta.dirname, '../../hack/libvirt-host/libvirt-host')

/** Installing the packages and building the images, once per machine, takes minutes; a start after that takes seconds. */
const startBudgetMs = 30 * 60_000

/** Where a second host lives beside another one. All three differ from the other's. */
export interface LibvirtHostPlace {
  /** Its folder. */
  readonly stateDir: string
  /** The first three numbers of its /24, as in `192.168.213`. */
  readonly net: string
  /** Name of its link on this machine. */
  readonly link: string
}

export interface LibvirtHostOptions {
  /** Default: the one host of this machine. A host that is up there already is used. */
  readonly place?: LibvirtHostPlace
  readonly signal?: AbortSignal
  /** Milliseconds for everything, the image build included. */
  readonly timeoutMs?: number
}

export interface LibvirtHost {
  readonly sshHost: string
  readonly sshPort: number
  readonly sshUser: string
  readonly sshKeyPath: string
  readonly knownHostsPath: string
  /** libvirtd's socket on the host, to forward to. */
  readonly socketPath: string
  /** Name of the running pool. */
  readonly pool: string
  /** Its folder as libvirtd names it. */
  readonly poolDir: string
  /** The same folder on this machine, to look into and to break things in. */
  readonly poolDirOutside: string
  readonly bridge: string
  /** Address of this machine in the VMs' network: servers of a test listen on it, VMs reach them there. */
  readonly gateway: string
  /** A name that VMs resolve to {@link gateway}. */
  readonly gatewayName: string
  /** Image files (qcow2) on this machine. */
  readonly images: { readonly tiny: string; readonly cloudinit: string }
  /** How guests run: with `tcg` they are emulated and some ten times slower. */
  readonly accel: 'kvm' | 'tcg'
  readonly logDir: string
  /** False for a host that was there before: {@link down} leaves it alone. */
  readonly owned: boolean
  /** virsh against this host's daemon; resolves to its standard output. @throws CommandError */
  readonly virsh: (args: readonly string[], options?: CommandOptions) => Promise<string>
  /** A command as root inside the host's namespaces, to cause faults with. @throws CommandError */
  readonly exec: (args: readonly string[], options?: CommandOptions) => Promise<string>
  /** Ends daemons and VMs and removes their state. */
  readonly down: () => Promise<void>
}

export type LibvirtHostAvailability = { readonly kind: 'yes' } | { readonly kind: 'no'; readonly reason: string }

/** Whether {@link startLibvirtHost} can be expected to work on this machine. Decides what a suite skips, with the reason to print. */
export function libvirtHostAvailable(): LibvirtHostAvailability {
  if (process.platform !== 'linux') return { kind: 'no', reason: `needs Linux, this is ${process.platform}` }
  const check = spawnSync(libvirtHostScript, ['check'], { encoding: 'utf8', timeout: 120_000 })
  if (check.status === 0) return { kind: 'yes' }
  return { kind: 'no', reason: check.error?.message ?? `${check.stdout}${check.stderr}`.trim() }
}

/**
 * Starts the host, or uses the one that is up already (with `LIBVIRT_HOST=existing` only that). It goes down with
 * {@link LibvirtHost.down}, and also when this process has ended without that.
 * @throws CommandError with the line that tells what is missing or in the way
 */
export async function startLibvirtHost(options: LibvirtHostOptions = {}): Promise<LibvirtHost> {
  const { place, signal } = options
  const env: NodeJS.ProcessEnv = {
    ...process.env,
    ...(place && { LVH_STATE: place.stateDir, LVH_NET: place.net, LVH_LINK: place.link, LVH_BESIDE: '1' }),
  }
  const script = (args: readonly string[], more?: CommandOptions) =>
    runChecked(libvirtHostScript, args, { env, ...more })
  const existing = process.env['LIBVIRT_HOST'] === 'existing' && place === undefined
  const printed = await script([existing ? 'env' : 'up'], {
    env: { ...env, LVH_OWNER_PID: String(process.pid) },
    timeoutMs: options.timeoutMs ?? startBudgetMs,
    ...(signal && { signal }),
  })
  const host = environmentSchema.parse(parseEnvironment(printed))
  const owned = host.LIBVIRT_BEGAN === 'yes'
  return {
    sshHost: host.LIBVIRT_SSH_HOST,
    sshPort: host.LIBVIRT_SSH_PORT,
    sshUser: host.LIBVIRT_SSH_USER,
    sshKeyPath: host.LIBVIRT_SSH_KEY,
    knownHostsPath: host.LIBVIRT_KNOWN_HOSTS,
    socketPath: host.LIBVIRT_SOCKET,
    pool: host.LIBVIRT_POOL,
    poolDir: host.LIBVIRT_POOL_DIR,
    poolDirOutside: host.LIBVIRT_POOL_DIR_OUTSIDE,
    bridge: host.LIBVIRT_BRIDGE,
    gateway: host.LIBVIRT_GATEWAY,
    gatewayName: host.LIBVIRT_GATEWAY_NAME,
    images: { tiny: host.LIBVIRT_IMAGE_TINY, cloudinit: host.LIBVIRT_IMAGE_CLOUDINIT },
    accel: host.LIBVIRT_ACCEL,
    logDir: host.LIBVIRT_LOG_DIR,
    owned,
    virsh: (args, more) => script(['virsh', ...args], more),
    exec: (args, more) => script(['exec', ...args], more),
    down: async () => {
      if (owned) await script(['down'])
    },
  }
}

const environmentSchema = z.object({
  LIBVIRT_SSH_HOST: z.string(),
  LIBVIRT_SSH_PORT: z.coerce.number().int(),
  LIBVIRT_SSH_USER: z.string(),
  LIBVIRT_SSH_KEY: z.string(),
  LIBVIRT_KNOWN_HOSTS: z.string(),
  LIBVIRT_SOCKET: z.string(),
  LIBVIRT_POOL: z.string(),
  LIBVIRT_POOL_DIR: z.string(),
  LIBVIRT_POOL_DIR_OUTSIDE: z.string(),
  LIBVIRT_BRIDGE: z.string(),
  LIBVIRT_GATEWAY: z.string(),
  LIBVIRT_GATEWAY_NAME: z.string(),
  LIBVIRT_IMAGE_TINY: z.string(),
  LIBVIRT_IMAGE_CLOUDINIT: z.string(),
  LIBVIRT_ACCEL: z.enum(['kvm', 'tcg']),
  LIBVIRT_LOG_DIR: z.string(),
  /** `up` says whether it was this call that began the host's life. */
  LIBVIRT_BEGAN: z.enum(['yes', 'no']).optional(),
})

function parseEnvironment(text: string): Record<string, string> {
  const pairs = text
    .split('\n')
    .filter((line) => line !== '')
    .map((line): [string, string] => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)])
  return Object.fromEntries(pairs)
}

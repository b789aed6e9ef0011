// A real Kubernetes API server for the end-to-end suites, started by hack/cluster; not the in-process API.
import { spawnSync } from 'node:child_process'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { runChecked, type CommandOptions } from './command.ts'

export const clusterScript = join(import.meta.dirname, '../../hack/cluster/cluster.sh')

/** Compiling the programs, once per machine, takes about ten minutes on two idle cores. */
const startBudgetMs = 40 * 60_000

export interface ClusterOptions {
  /** State folder. Default: a new temporary one. A cluster that is up there already is used. */
  readonly dir?: string
  /** Further flags of kube-apiserver, for example `--etcd-compaction-interval=5s`. */
  readonly apiServerFlags?: readonly string[]
  readonly signal?: AbortSignal
  /** Milliseconds for everything, the compilation included. */
  readonly timeoutMs?: number
}

export interface KubectlOptions {
  /** Standard input, for `-f -`. */
  readonly input?: string
  readonly signal?: AbortSignal
  readonly timeoutMs?: number
}

export interface Cluster {
  /** State folder, with the logs in `log/`. */
  readonly dir: string
  /** Kubeconfig of an administrator. */
  readonly kubeconfigPath: string
  /** kubectl as that administrator; resolves to its standard output. @throws CommandError */
  readonly kubectl: (args: readonly string[], options?: KubectlOptions) => Promise<string>
  /** Ends the API server and with it every watch; what it stored stays. Refused for a cluster that was there before. */
  readonly stopApiServer: () => Promise<void>
  /** Starts it again on the same port and waits until it is ready. */
  readonly startApiServer: () => Promise<void>
  /** Ends all processes and removes the state folder. Leaves a cluster that was there before alone. */
  readonly down: () => Promise<void>
}

export type ClusterAvailability = { readonly kind: 'yes' } | { readonly kind: 'no'; readonly reason: string }

/** Whether {@link startCluster} can be expected to work on this machine. Decides what a suite skips, with the reason to print. */
export function clusterAvailable(): ClusterAvailability {
  const check = spawnSync(clusterScript, ['check'], { encoding: 'utf8', timeout: 120_000 })
  if (check.status === 0) return { kind: 'yes' }
  return { kind: 'no', reason: check.error?.message ?? check.stderr.trim() }
}

/**
 * Starts a control plane, or uses the one that `CLUSTER=existing` and `KUBECONFIG` name. It goes down with
 * {@link Cluster.down}, and also when this process has ended without that.
 * @throws CommandError with the end of the log of what did not start
 */
export async function startCluster(options: ClusterOptions = {}): Promise<Cluster> {
  const temporary = options.dir === undefined
  const dir = options.dir ?? (await mkdtemp(join(tmpdir(), 'egress-cluster-')))
  const env: NodeJS.ProcessEnv = { ...process.env, CLUSTER_DIR: dir, CLUSTER_OWNER_PID: String(process.pid) }
  if (options.apiServerFlags !== undefined) env['CLUSTER_APISERVER_FLAGS'] = options.apiServerFlags.join(' ')
  const script = (args: readonly string[], more?: CommandOptions) => runChecked(clusterScript, args, { env, ...more })
  const down = async () => {
    await script(['down'])
    if (temporary) await rm(dir, { recursive: true, force: true }) // only a cluster that was there before leaves it
  }
  const timeoutMs = options.timeoutMs ?? startBudgetMs
  try {
    await script(['up'], options.signal === undefined ? { timeoutMs } : { timeoutMs, signal: options.signal })
  } catch (error) {
    try {
      await down()
    } catch (downError) {
      throw new AggregateError([error, downError], 'the cluster neither came up nor went down', { cause: downError })
    }
    throw error
  }
  return {
    dir,
    kubeconfigPath: (await script(['kubeconfig'])).trimEnd(),
    kubectl: (args, more) => script(['kubectl', ...args], more),
    stopApiServer: async () => {
      await script(['stop-apiserver'])
    },
    startApiServer: async () => {
      await script(['start-apiserver'], { timeoutMs: 300_000 })
    },
    down,
  }
}

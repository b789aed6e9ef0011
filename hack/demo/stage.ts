// What a demo plays on: an API server, a libvirt host, pages to fetch. The story itself is in play.ts.
import type { TargetServers } from '../../test/support/e2e/target-server.ts'
import type { ProxyManifest } from '../../test/support/e2e/samples.ts'

export interface HostInstance {
  /** Name of the domain. */
  readonly name: string
  /** libvirt's number of this run of it, as in `virsh list`; undefined when it does not run. */
  readonly run: number | undefined
}

export interface HostInventory {
  readonly instances: readonly HostInstance[]
  /** Files of the pool. */
  readonly files: readonly string[]
}

export interface Stage {
  /** What there is, one line a part, for people. */
  readonly description: readonly string[]
  readonly kubeconfigFile: string
  readonly providersConfigFile: string
  /** The VMs are processes on this machine. */
  readonly allowLoopback: boolean
  /** The Proxies to begin with; not empty. */
  readonly proxies: readonly ProxyManifest[]
  /** Where the Proxies come from, for people. */
  readonly source: string
  /** User-data that replaces the first. */
  readonly changedUserData: string
  readonly pages: TargetServers
  readonly logFile: string
  /** Budget of each step of the story, milliseconds. */
  readonly stepBudgetMs: number
  /** How the demo is called: `make demo`. */
  readonly command: string
  /** What to try next, besides what holds for every demo. */
  readonly next: readonly { readonly command: string; readonly meaning: string }[]
  apply(proxies: readonly ProxyManifest[]): Promise<void>
  /** What is on the libvirt host now, asked of the host and not of the operator. */
  inventory(): Promise<HostInventory>
}

/** Opens a stage whose parts are closed with the stack. Says what it does where that takes long. */
export type OpenStage = (parts: {
  readonly closing: AsyncDisposableStack
  /** For files; removed with everything else. */
  readonly folder: string
  /** Outlives a failed demo. */
  readonly logFile: string
  readonly say: (line: string) => void
  readonly signal: AbortSignal
}) => Promise<Stage>

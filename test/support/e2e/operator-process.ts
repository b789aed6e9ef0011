// The operator as its own process, as a user would run it: started, asked where it listens, killed, started again.
import { spawn, type ChildProcess } from 'node:child_process'
import { createWriteStream, type WriteStream } from 'node:fs'
import { resolve } from 'node:path'
import { createInterface } from 'node:readline'

const entry = resolve(import.meta.dirname, '../../../src/main.ts')

export interface OperatorFlags {
  readonly kubeconfig: string
  readonly providersConfig: string
  readonly healthCheckUrl?: string
  /** `stub`: instances are processes of this machine, and loopback addresses are their own. Default `real`. */
  readonly hosts?: 'real' | 'stub'
  /** Further flags, for example `--installation-id=a`. */
  readonly more?: readonly string[]
}

/** Base URLs of the operator's servers. */
export interface OperatorUrls {
  readonly discovery: string
  readonly metrics: string
  readonly health: string
}

export interface OperatorProcess {
  readonly pid: number
  readonly urls: OperatorUrls
  /** Every line of the log so far, as text. */
  logLines(): readonly string[]
  /** Ends it without warning, as a lost node would. */
  kill(): Promise<void>
  /** Asks it to end; resolves to its exit status. */
  stop(): Promise<number | null>
  /** Whether it still runs. */
  running(): boolean
}

/** Starts the operator on ports of the system's choice and waits until it says where they are. */
export async function startOperator(flags: OperatorFlags, logFile: string): Promise<OperatorProcess> {
  const args = [
    'run',
    `--kubeconfig=${flags.kubeconfig}`,
    `--providers-config=${flags.providersConfig}`,
    '--metrics-bind-address=127.0.0.1:0',
    '--health-probe-bind-address=127.0.0.1:0',
    '--discovery-bind-address=127.0.0.1:0',
    '--log-level=2',
    ...(flags.healthCheckUrl === undefined ? [] : [`--health-check-url=${flags.healthCheckUrl}`]),
    ...(flags.hosts === 'stub' ? ['--allow-loopback-instances'] : []),
    ...(flags.more ?? []),
  ]
  const child = spawn(process.execPath, [entry, ...args], {
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const file = createWriteStream(logFile, { flags: 'a' })
  const lines: string[] = []
  const { promise: listening, resolve: foundUrls, reject } = Promise.withResolvers<OperatorUrls>()
  follow(child, file, (line) => {
    lines.push(line)
    const urls = urlsIn(line)
    if (urls !== undefined) foundUrls(urls)
  })
  const exited = new Promise<number | null>((resolveExit) => {
    child.once('error', reject)
    // Not 'exit': what it said last is read by then, too.
    child.once('close', (status) => {
      file.end()
      resolveExit(status)
      reject(new Error(`the operator ended with status ${String(status)}:\n${lines.slice(-20).join('\n')}`))
    })
  })
  const urls = await listening
  const signalAndWait = async (signal: 'SIGKILL' | 'SIGTERM') => {
    child.kill(signal)
    return await exited
  }
  return {
    pid: child.pid ?? 0,
    urls,
    logLines: () => lines,
    kill: async () => {
      await signalAndWait('SIGKILL')
    },
    stop: () => signalAndWait('SIGTERM'),
    running: () => child.exitCode === null && child.signalCode === null,
  }
}

function follow(child: ChildProcess, file: WriteStream, onLine: (line: string) => void): void {
  for (const stream of [child.stdout, child.stderr]) {
    if (stream === null) continue
    createInterface({ input: stream }).on('line', (line) => {
      file.write(`${line}\n`)
      onLine(line)
    })
  }
}

/** The line in which the operator tells where it listens. */
function urlsIn(line: string): OperatorUrls | undefined {
  if (!line.includes('"msg":"operator listening"')) return undefined
  const fields: unknown = JSON.parse(line)
  if (typeof fields !== 'object' || fields === null) return undefined
  const { discovery, metrics, health } = fields as Record<string, unknown>
  if (typeof discovery !== 'string' || typeof metrics !== 'string' || typeof health !== 'string') return undefined
  return { discovery, metrics, health }
}

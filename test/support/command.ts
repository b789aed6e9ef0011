// Runs a program to its end and hands back what it printed; knows nothing of the programs.
import { spawn } from 'node:child_process'

export interface CommandOptions {
  /** The whole environment of the program. Default: this process's. */
  readonly env?: NodeJS.ProcessEnv
  readonly cwd?: string
  /** Written to its standard input, which is closed after it. */
  readonly input?: string
  /** Milliseconds after which the program and its children are ended. Default 120,000. */
  readonly timeoutMs?: number
  readonly signal?: AbortSignal
}

export interface CommandResult {
  /** The exit status, or `null` when a signal ended it. */
  readonly exitCode: number | null
  readonly stdout: string
  readonly stderr: string
}

/** A program ended with another exit status than 0. Its message holds the end of what the program said. */
export class CommandError extends Error {
  override readonly name = 'CommandError'
  readonly code = 'COMMAND_FAILED'
  readonly result: CommandResult

  constructor(command: string, result: CommandResult) {
    super(`${command}: exit status ${String(result.exitCode)}\n${result.stderr.slice(-4000)}`.trimEnd())
    this.result = result
  }
}

/**
 * Runs a program and waits until it ended and its output is closed, whatever its exit status.
 *
 * It gets a process group of its own, so that running out of time, or the signal, ends what it started too.
 * @throws the signal's reason, a `TimeoutError`, or the error of a program that could not be started
 */
export async function runCommand(
  file: string,
  args: readonly string[],
  options: CommandOptions = {},
): Promise<CommandResult> {
  const timeout = AbortSignal.timeout(options.timeoutMs ?? 120_000)
  const signal = options.signal === undefined ? timeout : AbortSignal.any([timeout, options.signal])
  signal.throwIfAborted()
  const child = spawn(file, args, { cwd: options.cwd, env: options.env ?? process.env, detached: true })
  const stdout: Buffer[] = []
  const stderr: Buffer[] = []
  child.stdout.on('data', (chunk: Buffer) => stdout.push(chunk))
  child.stderr.on('data', (chunk: Buffer) => stderr.push(chunk))
  // A program that ends without reading its input closes the pipe; its exit status tells what that means.
  child.stdin.on('error', () => undefined)
  child.stdin.end(options.input ?? '')
  const onAbort = () => {
    if (child.pid !== undefined && child.exitCode === null && child.signalCode === null)
      process.kill(-child.pid, 'SIGTERM')
  }
  signal.addEventListener('abort', onAbort, { once: true })
  try {
    const exitCode = await new Promise<number | null>((resolve, reject) => {
      child.once('error', reject)
      child.once('close', resolve)
    })
    signal.throwIfAborted()
    return { exitCode, stdout: Buffer.concat(stdout).toString(), stderr: Buffer.concat(stderr).toString() }
  } finally {
    signal.removeEventListener('abort', onAbort)
  }
}

/** {@link runCommand}, where only exit status 0 will do. @throws CommandError */
export async function runChecked(file: string, args: readonly string[], options?: CommandOptions): Promise<string> {
  const result = await runCommand(file, args, options)
  if (result.exitCode !== 0) throw new CommandError([file, ...args].join(' '), result)
  return result.stdout
}

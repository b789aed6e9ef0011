#!/usr/bin/env node
// The process edge: arguments, signals and the exit status; everything else is app.ts's and the commands'.
import packageJson from '../package.json' with { type: 'json' }
import { checkCommand } from './commands/check.ts'
import { runCommand } from './commands/run.ts'
import { validateConfigCommand } from './config/validate-command.ts'
import { errorMessage } from './lib/errors.ts'
import { runHelp } from './options.ts'

const usage = `usage: egress-proxies-operator [run] [flags]
       egress-proxies-operator validate-config FILE
       egress-proxies-operator check --providers-config FILE [--provider NAME]
       egress-proxies-operator version

flags of run:
${runHelp()}
`

/** Exit status of a command that was called wrongly. */
const usageStatus = 2

async function main(args: readonly string[]): Promise<number> {
  const [command, ...rest] = args
  switch (command) {
    case 'version':
      process.stdout.write(`${packageJson.version}\n`)
      return 0
    case 'validate-config': {
      const [file, ...more] = rest
      if (file === undefined || more.length > 0) return misused('validate-config takes one file')
      return await validateConfigCommand(file, process.stdout)
    }
    case 'check':
      return await checkCommand(rest, process.stdout, process.stderr)
    case 'help':
    case '--help':
    case '-h':
      process.stdout.write(usage)
      return 0
    case 'run':
      return await run(rest)
    default:
      if (command === undefined || command.startsWith('-')) return await run(args)
      return misused(`there is no command ${JSON.stringify(command)}`)
  }
}

async function run(args: readonly string[]): Promise<number> {
  const stop = new AbortController()
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    // the second one is the way out of a stop that hangs
    process.on(signal, () => {
      if (stop.signal.aborted) process.exit(130)
      stop.abort(new Error(`stopped by ${signal}`))
    })
  }
  return await runCommand(args, { stop: stop.signal, stdout: process.stdout, stderr: process.stderr, usage })
}

function misused(problem: string): number {
  process.stderr.write(`${problem}\n\n${usage}`)
  return usageStatus
}

try {
  process.exitCode = await main(process.argv.slice(2))
} catch (thrown) {
  process.stderr.write(`egress-proxies-operator: ${errorMessage(thrown)}\n`)
  process.exitCode = 1
}

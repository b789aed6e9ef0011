// Runs tiers of tests and ends with one line of totals; which tests there are is vitest.config.ts's business.
import { spawn } from 'node:child_process'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { z } from 'zod'

const reportSchema = z.object({
  numPassedTests: z.int(),
  numFailedTests: z.int(),
  numPendingTests: z.int(),
  numFailedTestSuites: z.int(),
})

const [tiers, vitestArguments] = splitAtDashes(process.argv.slice(2))
if (tiers.length === 0) throw new Error('usage: test.ts unit|integration|e2e|hosts ... [-- vitest arguments]')

const totals = { passed: 0, failed: 0, skipped: 0 }
const folder = await mkdtemp(join(tmpdir(), 'egress-proxies-operator-test-'))
try {
  for (const tier of tiers) {
    console.log(`\n=== ${tier}`)
    const file = join(folder, `${tier}.json`)
    const status = await run('vitest', ['run', '--project', tier, ...reporters(file), ...vitestArguments])
    const report = await readReport(file)
    totals.passed += report.numPassedTests
    totals.failed += report.numFailedTests
    totals.skipped += report.numPendingTests
    // a suite that did not load, or an unhandled rejection, fails the run without failing a test
    if (status !== 0 && report.numFailedTests === 0) totals.failed++
  }
} finally {
  await rm(folder, { recursive: true })
}
console.log(`\n${totals.passed} passed, ${totals.failed} failed, ${totals.skipped} skipped`)
if (totals.failed > 0 || totals.passed === 0) process.exitCode = 1

function reporters(file: string): string[] {
  return ['--reporter=default', '--reporter=json', `--outputFile.json=${file}`]
}

async function readReport(file: string): Promise<z.output<typeof reportSchema>> {
  try {
    return reportSchema.parse(JSON.parse(await readFile(file, 'utf8')))
  } catch (cause) {
    throw new Error(`vitest left no report in ${file}`, { cause })
  }
}

function run(command: string, args: readonly string[]): Promise<number | null> {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { stdio: 'inherit' })
    child.once('error', reject)
    child.once('exit', (status) => resolve(status))
  })
}

function splitAtDashes(args: readonly string[]): [string[], string[]] {
  const at = args.indexOf('--')
  return at === -1 ? [[...args], []] : [args.slice(0, at), args.slice(at + 1)]
}

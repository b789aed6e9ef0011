// Runs one demo from its first line to its last: stage, operator, story, the end of all, and the exit status. No story of its own.
import { once } from 'node:events'
import { createWriteStream, existsSync } from 'node:fs'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { KubeClient } from '../../src/kube/client.ts'
import { systemClock } from '../../src/lib/clock.ts'
import { errorMessage, toError } from '../../src/lib/errors.ts'
import { createLogger } from '../../src/observe/logger.ts'
import { startInProcessOperator } from '../../test/support/in-process-operator.ts'
import { Audience } from './audience.ts'
import { makeProxies, play, type PlayParts } from './play.ts'
import type { OpenStage, Stage } from './stage.ts'

export interface DemoEnvironment {
  /** Go on after the story until the signal comes. */
  readonly keep: boolean
  readonly say: (line: string) => void
  readonly complain: (line: string) => void
}

/** As a shell reports a process that SIGINT ended. */
const interruptedStatus = 130

/** Sets the exit status of this process; ends by itself, and early on SIGINT, SIGTERM and SIGHUP. */
export async function runDemo(open: OpenStage): Promise<void> {
  const stop = new AbortController()
  for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
    // once: a second one ends the process as if nobody had listened
    process.once(name, () => stop.abort(new Error(`stopped by ${name}`)))
  }
  process.exitCode = await demo(open, stop.signal, {
    keep: !['', '0', 'false'].includes(process.env['KEEP'] ?? ''),
    say: (line) => process.stdout.write(`${line}\n`),
    complain: (line) => process.stderr.write(`${line}\n`),
  })
}

async function demo(open: OpenStage, signal: AbortSignal, environment: DemoEnvironment): Promise<number> {
  const { keep, say, complain } = environment
  const folder = await mkdtemp(join(tmpdir(), 'egress-proxies-demo-'))
  const logFile = `${folder}.log`
  try {
    const conclusion: string[] = []
    {
      await using closing = new AsyncDisposableStack()
      closing.defer(() => rm(folder, { recursive: true }))
      const parts = await setUp(open, { closing, folder, logFile, say, signal })
      await play(parts)
      if (keep) await stay(parts, signal, say)
      conclusion.push(...conclude(parts.stage))
    }
    for (const line of conclusion) say(line)
  } catch (thrown) {
    if (!signal.aborted) {
      complain(`\nThe demo failed: ${explain(thrown)}`)
      if (existsSync(logFile)) complain(`Log of the operator: ${logFile}`)
      return 1
    }
    complain(`\n${errorMessage(signal.reason)}; everything that ran for the demo is ended`)
    await rm(logFile, { force: true })
    return interruptedStatus
  }
  await rm(logFile, { force: true })
  return 0
}

async function setUp(open: OpenStage, parts: Parameters<OpenStage>[0]): Promise<PlayParts> {
  const { closing, logFile, say, signal } = parts
  const stage = await open(parts)
  const log = createWriteStream(logFile)
  closing.defer(async () => {
    const closed = once(log, 'close')
    log.end()
    await closed
  })
  const kubeconfig = await readFile(stage.kubeconfigFile, 'utf8')
  const client = closing.adopt(KubeClient.fromKubeconfig({ text: kubeconfig }), (it) => it.close())
  const operator = closing.adopt(
    await startInProcessOperator({
      kubeconfig,
      providersConfigFile: stage.providersConfigFile,
      healthCheckUrl: stage.pages.httpUrl,
      log: createLogger({ level: 'debug', destination: log }),
      allowLoopback: stage.allowLoopback,
    }),
    (it) => it.stop(),
  )
  const audience = new Audience({ client, clock: systemClock, say, signal, budgetMs: stage.stepBudgetMs })
  closing.adopt(audience, (it) => it.stop())
  audience.start()
  say('')
  for (const line of stage.description) say(line)
  say(`  operator        in this process; its log is ${logFile}`)
  return { stage, client, audience, discoveryUrl: operator.discoveryUrl }
}

async function stay(parts: PlayParts, signal: AbortSignal, say: (line: string) => void): Promise<void> {
  const { stage, discoveryUrl, audience } = parts
  if (audience.proxies().length === 0) await makeProxies(parts)
  for (const line of [
    'KEEP is set: all of it goes on until Ctrl-C. In another terminal:',
    '',
    `   curl -s ${discoveryUrl}/v1/proxies`,
    `   curl -s '${discoveryUrl}/v1/proxies?format=text'`,
    `   curl -s -x "$(curl -s '${discoveryUrl}/v1/proxies/random?format=text')" ${stage.pages.httpUrl}`,
    `   export KUBECONFIG=${stage.kubeconfigFile}`,
    '   kubectl get px -o wide; kubectl get ph; kubectl get px -w',
    '   kubectl get events -o custom-columns=TYPE:.type,REASON:.reason,ABOUT:.involvedObject.name,MESSAGE:.message',
    '',
  ]) {
    say(line)
  }
  if (!signal.aborted) await once(signal, 'abort')
}

function conclude({ command, next }: Stage): string[] {
  return [
    'That was all; everything that ran for it is ended. What next:',
    '',
    suggestion(`${command} KEEP=1`, 'the same, and it stays until Ctrl-C: try kubectl and curl on it'),
    ...next.map((it) => suggestion(it.command, it.meaning)),
    suggestion('README.md', 'how to set it up with hosts of your own; the files to begin with are in hack/samples'),
    '   npx node src/main.ts validate-config hack/samples/providers-config.yaml',
    suggestion('', 'every mistake in a providers config at once'),
    '   npx node src/main.ts check --providers-config FILE',
    suggestion('', 'whether the hosts in it can be used, from where you stand'),
  ]
}

function suggestion(command: string, meaning: string): string {
  return `   ${command.padEnd(30)} ${meaning}`
}

/** The message and what it came of: a stranger has nothing else to go by. */
function explain(thrown: unknown): string {
  const { message, cause } = toError(thrown)
  return cause === undefined ? message : `${message}\n  because: ${explain(cause)}`
}

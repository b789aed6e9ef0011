// Decides whether a suite that needs real daemons or programs runs here; starts nothing.
import { spawnSync } from 'node:child_process'

/** What a check of a machine says. */
export type Availability = { readonly kind: 'yes' } | { readonly kind: 'no'; readonly reason: string }

/** How the scripts' checks begin when no package and no setting could make the machine fit. */
const unfit = /\bneeds (Linux|root|Debian|\/dev\/)/

/**
 * True when all parts are there. Otherwise prints a line that says what is left out and why, and returns false. In CI only a
 * machine that can never run the part may leave it out.
 * @throws in CI, for a part that the machine could run
 */
export function canRun(suite: string, parts: readonly Availability[], env: NodeJS.ProcessEnv = process.env): boolean {
  const reasons = parts.flatMap((part) => (part.kind === 'no' ? [part.reason] : []))
  if (reasons.length === 0) return true
  const line = `left out: ${suite}: ${reasons.join('; ')}`
  if (env['CI'] === 'true' && !reasons.some((reason) => unfit.test(reason))) {
    throw new Error(`${line}. This machine could run it, so in CI that is a failure`)
  }
  console.warn(line)
  return false
}

/** Whether a program can be started. @param from the Debian package that has it */
export function programAvailable(program: string, from: string): Availability {
  const { error } = spawnSync(program, ['--version'], { stdio: 'ignore', timeout: 60_000 })
  if (error === undefined) return { kind: 'yes' }
  return { kind: 'no', reason: `${program} is not installed (package ${from})` }
}

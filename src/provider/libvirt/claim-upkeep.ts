// Keeps a claim on an image alive while a download takes its time, and notices when it was taken over. What a claim is is in image-claim.ts.
import type { Clock, Timer } from '../../lib/clock.ts'
import { errorMessage } from '../../lib/errors.ts'
import type { Logger } from '../../observe/logger.ts'
import { ProviderError } from '../errors.ts'
import type { Claim, ClaimScope } from './image-claim.ts'

export interface Upkeep {
  /** Aborts when the claim is lost. */
  readonly lost: AbortSignal
  /** Resolves when nothing is under way any more. */
  stop(): Promise<void>
}

/** @param scope where the claim stands; asked for every time, for a connection may have ended meanwhile */
export function keepClaimed(
  claim: Claim,
  scope: () => Promise<ClaimScope>,
  options: { readonly clock: Clock; readonly log: Logger; readonly everyMs: number },
): Upkeep {
  const { clock, log, everyMs } = options
  const lost = new AbortController()
  const stopped = new AbortController()
  let touching: Promise<void> = Promise.resolve()
  let timer: Timer | undefined
  const touch = async () => {
    try {
      const at = await scope()
      await claim.check(at)
      await claim.sign(at)
    } catch (thrown) {
      // A host that cannot be asked is no reason to give up: what counts is the check before the marker.
      log.warn('claim on an image not touched', { error: errorMessage(thrown) })
      if (thrown instanceof ProviderError && thrown.code === 'ClaimLost') lost.abort(thrown)
    }
    schedule()
  }
  const schedule = () => {
    if (stopped.signal.aborted || lost.signal.aborted) return
    timer = clock.after(everyMs, () => {
      touching = touch()
    })
  }
  schedule()
  return {
    lost: lost.signal,
    async stop() {
      stopped.abort()
      timer?.cancel()
      await touching
    },
  }
}

// What a test can make the stub do wrong or slowly. Every knob acts on calls that come after it was turned.
import type { DomainInterface, ProcedureName, RemoteError } from '../../../src/wire/libvirt/protocol.gen.ts'

export interface FailureRule {
  readonly procedure: ProcedureName
  readonly error: RemoteError
  remaining: number
}

/** `before`: the call has no effect until released. `after`: it has had its effect, and only the answer is missing. */
export type HangMoment = 'before' | 'after'

interface Hang {
  readonly procedure: ProcedureName
  readonly moment: HangMoment
  readonly released: Promise<undefined>
}

export class Knobs {
  /** Start of a domain until its agent answers, milliseconds. */
  bootDelayMs = 0
  /** Agent until the guest has its address, milliseconds. */
  addressDelayMs = 0
  /** Every call takes at least this long, milliseconds. */
  latencyMs = 0
  /** Shutdown by ACPI until the domain is off, milliseconds. */
  shutdownDelayMs = 0
  /** Forwards of new connections are refused, as when libvirtd is down. */
  refuseForwarding = false
  /** The host's ARP source fails, as with libvirt 9.0 on new kernels. */
  arpBroken = false
  /** What each source of addresses (lease 0, agent 1, ARP 2) answers instead of the truth. */
  readonly addresses = new Map<number, (truth: readonly DomainInterface[]) => DomainInterface[]>()
  /** Names of domains whose agent no longer answers: each call blocks for 5 s. */
  readonly frozenAgents = new Set<string>()
  /** Uploads stop taking data after this many bytes of each until it is raised again. */
  #uploadLimit = Number.POSITIVE_INFINITY
  #uploadLimitRaised = Promise.withResolvers<undefined>()
  #failures: FailureRule[] = []
  #hangs: Hang[] = []

  /** The next `times` calls of the procedure answer this error and have no effect. */
  failNext(procedure: ProcedureName, error: RemoteError, times = 1): void {
    this.#failures.push({ procedure, error, remaining: times })
  }

  /** Calls of the procedure get no answer until the returned function is called. */
  hang(procedure: ProcedureName, moment: HangMoment = 'before'): () => void {
    const { promise, resolve } = Promise.withResolvers<undefined>()
    const hang: Hang = { procedure, moment, released: promise }
    this.#hangs.push(hang)
    return () => {
      this.#hangs = this.#hangs.filter((entry) => entry !== hang)
      resolve(undefined)
    }
  }

  /** Lets uploads write so many bytes and then stop, without an error; `Infinity` lets all go on. */
  limitUploads(bytes: number): void {
    this.#uploadLimit = bytes
    this.#uploadLimitRaised.resolve(undefined)
    this.#uploadLimitRaised = Promise.withResolvers()
  }

  /** @internal */
  takeFailure(procedure: ProcedureName): RemoteError | undefined {
    const rule = this.#failures.find((candidate) => candidate.procedure === procedure && candidate.remaining > 0)
    if (rule === undefined) return undefined
    rule.remaining--
    if (rule.remaining === 0) this.#failures = this.#failures.filter((entry) => entry !== rule)
    return rule.error
  }

  /** @internal */
  async waitWhileHung(procedure: ProcedureName, moment: HangMoment): Promise<void> {
    for (;;) {
      const hang = this.#hangs.find((entry) => entry.procedure === procedure && entry.moment === moment)
      if (hang === undefined) return
      await hang.released
    }
  }

  /** @internal Room for more of one upload; waits while there is none. */
  async uploadRoom(writtenBytes: number): Promise<number> {
    while (this.#uploadLimit <= writtenBytes) await this.#uploadLimitRaised.promise
    return this.#uploadLimit - writtenBytes
  }
}

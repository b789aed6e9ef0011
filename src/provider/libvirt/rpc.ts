// Every call of the engine on the wire passes here once: budget, guard, span and log line. What a failure means is in errors.ts.
import type { Clock } from '../../lib/clock.ts'
import { abortReason } from '../../lib/clock.ts'
import { errorMessage } from '../../lib/errors.ts'
import type { LogFields, Logger } from '../../observe/logger.ts'
import { withSpan } from '../../observe/tracing.ts'
import type { LibvirtConnection } from '../../wire/libvirt/connection.ts'
import { LibvirtError } from '../../wire/libvirt/errors.ts'
import type { ProcedureName, Procedures } from '../../wire/libvirt/protocol.gen.ts'
import { ProviderError } from '../errors.ts'
import { errorName, resultWords, transferWords, type ResultWords } from './call-words.ts'
import type { Flavour } from './flavour.ts'
import type { MutationGuard } from './host-api.ts'

/** What a call is about, for its span and log line. */
export interface CallSubject {
  readonly domain?: string
  readonly pool?: string
  readonly volume?: string
  readonly offset?: number
  readonly length?: number
}

export interface RpcScope {
  /** Name of the host in the config. */
  readonly host: string
  readonly flavour: Flavour
  readonly clock: Clock
  readonly log: Logger
}

type Args<P extends ProcedureName> = Procedures[P]['args']
type Ret<P extends ProcedureName> = Procedures[P]['ret']

export class Rpc {
  readonly connection: LibvirtConnection
  readonly #scope: RpcScope
  /** Calls that change something are waited for: nobody may believe that they did not happen. */
  readonly #never = new AbortController().signal

  constructor(connection: LibvirtConnection, scope: RpcScope) {
    this.connection = connection
    this.#scope = scope
  }

  /** Name of the host in the config. */
  get host(): string {
    return this.#scope.host
  }

  async read<P extends ProcedureName>(
    procedure: P,
    args: Args<P>,
    options: { readonly signal: AbortSignal; readonly timeoutMs: number; readonly slow?: boolean },
    subject: CallSubject = {},
  ): Promise<Ret<P>> {
    return await this.observe(
      procedure,
      subject,
      {},
      () => this.connection.call(procedure, args, options),
      (result) => resultWords(procedure, result),
    )
  }

  /**
   * The guard is asked when the call's turn on the connection has come. Once sent it is waited for, whatever its signal says.
   * @param detail more of what was asked, for the lowest level of the log only
   */
  async mutate<P extends ProcedureName>(
    procedure: P,
    args: Args<P>,
    options: { readonly guard: MutationGuard; readonly timeoutMs: number; readonly slow?: boolean },
    subject: CallSubject = {},
    detail: LogFields = {},
  ): Promise<Ret<P>> {
    const { guard, timeoutMs, slow = false } = options
    const beforeSend = () => requireMutable(guard, this.#scope.host)
    return await this.observe(
      procedure,
      subject,
      detail,
      () => this.connection.call(procedure, args, { signal: this.#never, timeoutMs, slow, beforeSend }),
      (result) => resultWords(procedure, result),
    )
  }

  /** Span and log line around one exchange of any kind. @param words what its result says to people */
  async observe<T>(
    procedure: ProcedureName,
    subject: CallSubject,
    detail: LogFields,
    exchange: () => Promise<T>,
    words: (result: T) => ResultWords = transferWords,
  ): Promise<T> {
    const { host, clock, log } = this.#scope
    const { name: flavour, callName, briefResults } = this.#scope.flavour
    const method = methodName(procedure)
    const attributes = {
      [`${flavour}.host`]: host,
      ...(subject.domain === undefined ? {} : { [`${flavour}.domain`]: subject.domain }),
      ...(subject.pool === undefined ? {} : { [`${flavour}.pool`]: subject.pool }),
      ...(subject.volume === undefined ? {} : { [`${flavour}.volume`]: subject.volume }),
    }
    return await withSpan(`${flavour}.${method}`, { kind: 'client', attributes }, async (span) => {
      const began = clock.monotonic()
      const fields = () => ({
        rpc: callName(method),
        host,
        ...subject,
        durationMs: Math.round(clock.monotonic() - began),
      })
      try {
        const result = await exchange()
        if (log.enabled('trace')) {
          const { brief, full } = words(result)
          log.trace('libvirt call', { ...fields(), ...detail, ...brief, ...full })
        } else if (log.enabled('debug')) {
          log.debug('libvirt call', { ...fields(), ...(briefResults ? words(result).brief : {}) })
        }
        return result
      } catch (thrown) {
        const libvirt =
          thrown instanceof LibvirtError ? { libvirtCode: thrown.code, libvirtError: errorName(thrown.codeName) } : {}
        if (thrown instanceof LibvirtError) span.setAttribute(`${flavour}.libvirt_code`, thrown.code)
        log.debug('libvirt call', { ...fields(), error: errorMessage(thrown), ...libvirt })
        throw thrown
      }
    })
  }
}

/** @throws the signal's reason, or a transient {@link ProviderError} when we are not allowed to change anything now */
export function requireMutable(guard: MutationGuard, target: string): void {
  if (guard.signal.aborted) throw abortReason(guard.signal)
  if (!guard.mayMutate()) {
    throw ProviderError.transient(`host ${target}: nothing was changed, because this operator does not lead any more`, {
      code: 'NotLeading',
      target,
    })
  }
}

const acronyms: ReadonlySet<string> = new Set(['XML', 'UUID'])

/** `DOMAIN_DEFINE_XML` → `DomainDefineXML` */
export function methodName(procedure: ProcedureName): string {
  return procedure
    .split('_')
    .map((word) => (acronyms.has(word) ? word : word.charAt(0) + word.slice(1).toLowerCase()))
    .join('')
}

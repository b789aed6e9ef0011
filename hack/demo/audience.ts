// Watches Proxies as somebody with kubectl would: prints a row for every change, and waits for what the story needs. It changes nothing.
import type { Proxy } from '../../src/api/proxy.ts'
import type { KubeClient } from '../../src/kube/client.ts'
import { Reflector } from '../../src/kube/reflector.ts'
import { abortReason, type Clock } from '../../src/lib/clock.ts'
import { toError } from '../../src/lib/errors.ts'
import { silentLogger } from '../../src/observe/logger.ts'
import { proxyResource } from '../../src/reconcile/resources.ts'
import { facts, header, row } from './table.ts'

export interface AudienceOptions {
  readonly client: KubeClient
  readonly clock: Clock
  readonly say: (line: string) => void
  readonly signal: AbortSignal
  /** Budget of every {@link Audience.until}, milliseconds. */
  readonly budgetMs: number
}

/** What was waited for did not come true. */
export class DemoError extends Error {
  override readonly name = 'DemoError'
  readonly code = 'DEMO_STUCK'
}

export class Audience {
  readonly #options: AudienceOptions
  readonly #reflector: Reflector<Proxy>
  readonly #printed = new Map<string, string>()
  readonly #waiting = new Set<() => void>()
  #underHeader = false

  constructor(options: AudienceOptions) {
    this.#options = options
    this.#reflector = new Reflector<Proxy>({
      client: options.client,
      type: proxyResource,
      clock: options.clock,
      random: Math.random,
      logger: silentLogger,
      onEvent: (kind, proxy) => {
        this.#show(kind === 'deleted' ? 'gone' : 'there', proxy)
        for (const look of [...this.#waiting]) look()
      },
    })
  }

  start(): void {
    this.#reflector.start()
  }

  async stop(): Promise<void> {
    await this.#reflector.stop()
  }

  proxies(): readonly Proxy[] {
    return this.#reflector.store.list()
  }

  /** A new paragraph; rows after it get a header of their own. */
  tell(...lines: readonly string[]): void {
    this.#underHeader = false
    for (const line of lines) this.#options.say(line)
  }

  /**
   * Looks at every change until `find` finds something, or throws because it never will.
   * @throws DemoError when it did not within the budget, with where the Proxies stand
   */
  until<T>(what: string, find: (proxies: readonly Proxy[]) => T | undefined): Promise<T> {
    const { clock, signal, budgetMs } = this.#options
    return new Promise((resolve, reject) => {
      const end = (settle: () => void) => {
        this.#waiting.delete(look)
        signal.removeEventListener('abort', onAbort)
        timer.cancel()
        settle()
      }
      const look = () => {
        try {
          const found = find(this.proxies())
          if (found !== undefined) end(() => resolve(found))
        } catch (thrown) {
          end(() => reject(toError(thrown)))
        }
      }
      const onAbort = () => end(() => reject(abortReason(signal)))
      const timer = clock.after(budgetMs, () =>
        end(() => reject(new DemoError([`not within ${budgetMs / 1000} s: ${what}`, ...this.#standing()].join('\n')))),
      )
      this.#waiting.add(look)
      signal.addEventListener('abort', onAbort, { once: true })
      if (signal.aborted) onAbort()
      else look()
    })
  }

  #show(what: 'there' | 'gone', proxy: Proxy): void {
    const { name } = proxy.metadata
    if (what === 'gone') {
      this.#printed.delete(name)
      this.#options.say(`  ${name} is gone`)
      return
    }
    const now = facts(proxy).join('|')
    if (this.#printed.get(name) === now) return
    this.#printed.set(name, now)
    if (!this.#underHeader) this.#options.say(header)
    this.#underHeader = true
    this.#options.say(row(proxy, this.#options.clock.now()))
  }

  #standing(): string[] {
    return this.proxies().map(({ metadata, status }) => {
      const conditions = (status?.conditions ?? []).map(
        ({ type, status: value, reason, message }) => `  ${type} ${value}: ${reason}: ${message}`,
      )
      return [`${metadata.name}: ${status?.phase ?? 'no phase yet'}`, ...conditions].join('\n')
    })
  }
}

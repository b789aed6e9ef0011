// The one error class of the provider contract; what a hypervisor's own errors mean is decided by each provider.

/**
 * What the reconciler does about it: `permanent` latches, `quotaExceeded` waits five minutes, `notFound` from a get
 * creates again, `transient` backs off.
 */
export type ProviderErrorKind = 'permanent' | 'transient' | 'notFound' | 'quotaExceeded'

/** Whose doing a permanent error is: only one from the environment ends by itself when the provider recovers. */
export type ErrorOrigin = 'spec' | 'environment'

export interface ProviderErrorOptions {
  /** Stable CamelCase word, for example `ImageNotFound`; becomes a condition's reason and the latch's code. */
  readonly code: string
  /** Host or node that it happened on. */
  readonly target?: string
  readonly cause?: unknown
}

/** The only error that leaves a provider. Its message names what was wrong and the way out, and never a secret. */
export class ProviderError extends Error {
  override readonly name = 'ProviderError'
  readonly kind: ProviderErrorKind
  readonly code: string
  /** Set on `permanent` only. */
  readonly origin: ErrorOrigin | undefined
  readonly target: string | undefined

  private constructor(
    kind: ProviderErrorKind,
    message: string,
    options: ProviderErrorOptions,
    origin: ErrorOrigin | undefined,
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause })
    this.kind = kind
    this.code = options.code
    this.target = options.target
    this.origin = origin
  }

  static permanent(origin: ErrorOrigin, message: string, options: ProviderErrorOptions): ProviderError {
    return new ProviderError('permanent', message, options, origin)
  }

  static transient(message: string, options: ProviderErrorOptions): ProviderError {
    return new ProviderError('transient', message, options, undefined)
  }

  static notFound(message: string, options: ProviderErrorOptions): ProviderError {
    return new ProviderError('notFound', message, options, undefined)
  }

  static quotaExceeded(message: string, options: ProviderErrorOptions): ProviderError {
    return new ProviderError('quotaExceeded', message, options, undefined)
  }
}

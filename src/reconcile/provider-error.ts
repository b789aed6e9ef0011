// Makes sure that what a provider threw is a ProviderError; it classifies nothing.
import { toError } from '../lib/errors.ts'
import { ProviderError } from '../provider/errors.ts'

/** Anything that is no ProviderError is a mistake in the provider: it is retried, and its message shown. */
export function asProviderError(thrown: unknown): ProviderError {
  if (thrown instanceof ProviderError) return thrown
  const cause = toError(thrown)
  return ProviderError.transient(`the provider failed unexpectedly: ${cause.message}`, { code: 'InternalError', cause })
}

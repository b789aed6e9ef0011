// What an image's server answers, judged: how large the image is, whether its bytes can be taken, and in whose hands the mistake is if not.
import type { Clock } from '../../lib/clock.ts'
import { deadline } from '../../lib/deadline.ts'
import { toError } from '../../lib/errors.ts'
import { ProviderError } from '../errors.ts'
import type { Budgets } from './budgets.ts'
import { ImageServerError, type ImageResponse, type ImageServer } from './image-http.ts'
import type { ImageChoice } from './placement.ts'

export interface SourceScope {
  readonly server: ImageServer
  readonly choice: ImageChoice
  /** Name of the host in the config that the image is for. */
  readonly host: string
}

/** Size of the image as its server announces it; undefined when only its bytes will tell. */
export async function announcedBytes(
  scope: SourceScope,
  timing: { readonly clock: Clock; readonly budgets: Budgets },
  signal: AbortSignal,
): Promise<number | undefined> {
  const { label } = scope.choice
  using budget = deadline(timing.clock, `asking for the size of image ${label}`, timing.budgets.headMs, signal)
  const head = await ask(scope, 'HEAD', budget.signal)
  head.discard()
  if (isSuccess(head.status)) return usableLength(scope, head)
  // Mirrors refuse HEAD with 403, 405 or 501 alike; what the GET says counts.
  const got = await ask(scope, 'GET', budget.signal)
  got.discard()
  return requireBody(scope, got)
}

/** The answer whose body is the image. @throws ProviderError when it is not to be had, or its end could not be told from a cut */
export async function openImage(
  scope: SourceScope,
  signal: AbortSignal,
): Promise<{ readonly response: ImageResponse; readonly sizeBytes: number | undefined }> {
  const response = await ask(scope, 'GET', signal)
  try {
    return { response, sizeBytes: requireBody(scope, response) }
  } catch (thrown) {
    response.discard()
    throw thrown
  }
}

async function ask(scope: SourceScope, method: 'HEAD' | 'GET', signal: AbortSignal): Promise<ImageResponse> {
  try {
    return await scope.server.ask(method, scope.choice.url, signal)
  } catch (thrown) {
    throw downloadFailed(scope, toError(thrown))
  }
}

export function downloadFailed(scope: Omit<SourceScope, 'server'>, cause: Error): ProviderError {
  const message = `${about(scope)}: ${cause.message}`
  if (cause instanceof ImageServerError && cause.code === 'REDIRECT') {
    return refusal(scope, 'ImageNotAvailable', `${message}; correct ${whereUrl(scope.choice)}`)
  }
  return ProviderError.transient(message, { code: 'ImageDownloadFailed', target: scope.host, cause })
}

/** @param tellsEnd whether a body that was cut off would have been noticed before */
export function requireDigest(scope: SourceScope, digest: string, tellsEnd: boolean): void {
  const { choice, host } = scope
  if (choice.sha256 === undefined || choice.sha256 === digest) return
  const where = choice.source.kind === 'catalogue' ? `${choice.source.field}.sha256` : 'the expected one'
  const message = `${about(scope)}: the download has sha256 ${digest}, and ${where} is ${choice.sha256}`
  if (!tellsEnd) {
    throw ProviderError.transient(`${message}; it may have been cut off, for its server tells no length`, {
      code: 'ImageDownloadFailed',
      target: host,
    })
  }
  throw refusal(scope, 'ImageDigestMismatch', `${message}; correct it, or the URL`)
}

function requireBody(scope: SourceScope, response: ImageResponse): number | undefined {
  const { choice } = scope
  requireSuccess(scope, response)
  const lengthBytes = usableLength(scope, response)
  if (lengthBytes !== undefined || response.isChunked || choice.sha256 !== undefined) return lengthBytes
  throw refusal(
    scope,
    'ImageLengthUnknown',
    `${about(scope)}: its server sends neither a Content-Length nor chunks, so that a whole image cannot be told from one that ` +
      `was cut off; point ${whereUrl(choice)} at another server${orDigest(choice)}`,
  )
}

function requireSuccess(scope: SourceScope, { status }: ImageResponse): void {
  if (isSuccess(status)) return
  const message = `${about(scope)}: its server answered ${status}`
  if (status === 429 || status >= 500) {
    throw ProviderError.transient(message, { code: 'ImageServerError', target: scope.host })
  }
  throw refusal(scope, 'ImageNotAvailable', `${message}; correct ${whereUrl(scope.choice)}`)
}

/** @throws ProviderError for an answer whose bytes are not the image's, or that may be anybody's */
function usableLength(scope: SourceScope, response: ImageResponse): number | undefined {
  const { choice } = scope
  if (response.encoding !== undefined) {
    throw refusal(
      scope,
      'ImageEncoded',
      `${about(scope)}: its server sends it with Content-Encoding ${response.encoding} although none was asked for; ` +
        `point ${whereUrl(choice)} at a server that sends the file as it is`,
    )
  }
  if (response.isDowngraded && choice.sha256 === undefined) {
    throw refusal(
      scope,
      'ImageRedirectUnsafe',
      `${about(scope)}: its server redirects from https to http, where anybody on the way can change the image; ` +
        `point ${whereUrl(choice)} at a server that stays with https${orDigest(choice)}`,
    )
  }
  if (response.lengthBytes !== 0) return response.lengthBytes
  throw refusal(scope, 'ImageEmpty', `${about(scope)}: its server sent Content-Length 0; correct ${whereUrl(choice)}`)
}

function isSuccess(status: number): boolean {
  return status >= 200 && status < 300
}

function about({ choice, host }: Omit<SourceScope, 'server'>): string {
  return `image ${choice.label} for host ${host}`
}

function whereUrl(choice: ImageChoice): string {
  return choice.source.kind === 'catalogue' ? `${choice.source.field}.url` : 'placement.image'
}

function orDigest(choice: ImageChoice): string {
  return choice.source.kind === 'catalogue' ? `, or set ${choice.source.field}.sha256` : ''
}

function refusal(scope: Omit<SourceScope, 'server'>, code: string, message: string): ProviderError {
  const origin = scope.choice.source.kind === 'catalogue' ? 'environment' : 'spec'
  return ProviderError.permanent(origin, message, { code, target: scope.host })
}

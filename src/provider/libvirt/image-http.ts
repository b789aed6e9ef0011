// Asks an image's server for its size and its bytes, over redirects; what an answer means for a Proxy is decided in image-source.ts.
import { Agent, errors, request, type Dispatcher } from 'undici'
import { toError } from '../../lib/errors.ts'

export interface ImageResponse {
  readonly status: number
  /** Content-Length; undefined when the server did not say. */
  readonly lengthBytes: number | undefined
  /** The body tells its own end, so that one that was cut off is noticed without a length. */
  readonly isChunked: boolean
  /** Content-Encoding, unless it is none. */
  readonly encoding: string | undefined
  /** A redirect led from https to http. */
  readonly isDowngraded: boolean
  /** Fails with {@link ImageServerError}, or with the signal's reason. */
  readonly body: AsyncIterable<Uint8Array>
  /** Gives up the body. Idempotent. */
  discard(): void
}

export interface ImageServer {
  /** Follows redirects. Rejects with {@link ImageServerError}, or with the signal's reason. */
  ask(method: 'HEAD' | 'GET', url: string, signal: AbortSignal): Promise<ImageResponse>
  close(): Promise<void>
}

export type ImageServerErrorCode =
  /** No connection, no answer, or one that ended too early. */
  | 'NETWORK'
  /** Nothing came for too long. */
  | 'STALLED'
  /** Redirects that lead nowhere. */
  | 'REDIRECT'

export class ImageServerError extends Error {
  override readonly name = 'ImageServerError'
  readonly code: ImageServerErrorCode

  constructor(code: ImageServerErrorCode, message: string, options?: { readonly cause?: unknown }) {
    super(message, options)
    this.code = code
  }
}

export interface ImageServerOptions {
  /** From the request to the head of the answer, milliseconds. */
  readonly headersMs: number
  /** Longest silence within a body that is being read, milliseconds. */
  readonly silenceMs: number
  /** PEM of the authorities to trust in place of the machine's. */
  readonly ca?: string
}

/** The silence is shorter than what an upload allows its source, so that it is the mirror that is blamed. */
export const defaultImageServerOptions: ImageServerOptions = { headersMs: 30_000, silenceMs: 45_000 }

const maxRedirects = 10
const redirects: ReadonlySet<number> = new Set([301, 302, 303, 307, 308])

/** Over HTTP/1.1, one request per connection in use. */
export function createImageServer(options = defaultImageServerOptions): ImageServer {
  const agent = new Agent({
    connect: { timeout: options.headersMs, ...(options.ca !== undefined && { ca: options.ca }) },
    headersTimeout: options.headersMs,
    bodyTimeout: options.silenceMs,
    allowH2: false,
  })
  const inWords = (thrown: unknown, signal: AbortSignal) => describe(thrown, signal, options)
  return {
    async ask(method, url, signal) {
      let isDowngraded = false
      let target = new URL(url)
      let login = loginOf(target)
      for (let hops = 0; hops <= maxRedirects; hops++) {
        const answer = await send(agent, method, target, login, signal).catch((thrown: unknown) => {
          throw inWords(thrown, signal)
        })
        const { location } = answer.headers
        if (!redirects.has(answer.statusCode) || typeof location !== 'string') {
          return responseOf(answer, isDowngraded, (thrown) => inWords(thrown, signal))
        }
        answer.body.destroy()
        const next = redirected(target, location)
        isDowngraded ||= target.protocol === 'https:' && next.protocol === 'http:'
        // What is meant for one server is not told to another.
        login = loginOf(next) ?? (next.origin === target.origin ? login : undefined)
        target = next
      }
      throw new ImageServerError('REDIRECT', `its server redirects more than ${maxRedirects} times`)
    },
    close: () => agent.destroy(),
  }
}

async function send(
  agent: Agent,
  method: 'HEAD' | 'GET',
  target: URL,
  login: string | undefined,
  signal: AbortSignal,
): Promise<Dispatcher.ResponseData> {
  // A body compressed on the way would hide its length, and its digest would not be the image's.
  const headers = { 'accept-encoding': 'identity', ...(login !== undefined && { authorization: login }) }
  const answer = await request(target, { method, headers, dispatcher: agent, signal })
  // An abandoned body reports its end as an error to nobody.
  answer.body.on('error', () => undefined)
  return answer
}

function responseOf(
  answer: Dispatcher.ResponseData,
  isDowngraded: boolean,
  inWords: (thrown: unknown) => Error,
): ImageResponse {
  const { statusCode, headers, body } = answer
  const length = headers['content-length']
  const encoding = [headers['content-encoding'] ?? []].flat().join(', ').toLowerCase()
  async function* bytes(): AsyncIterable<Uint8Array> {
    try {
      for await (const chunk of body as AsyncIterable<Uint8Array>) yield chunk
    } catch (thrown) {
      throw inWords(thrown)
    }
  }
  return {
    status: statusCode,
    lengthBytes: typeof length === 'string' && /^\d+$/.test(length) ? Number(length) : undefined,
    isChunked: [headers['transfer-encoding'] ?? []].flat().join().toLowerCase().includes('chunked'),
    encoding: encoding === '' || encoding === 'identity' ? undefined : encoding,
    isDowngraded,
    body: bytes(),
    discard: () => void body.destroy(),
  }
}

function redirected(from: URL, location: string): URL {
  const next = URL.canParse(location, from.href) ? new URL(location, from.href) : undefined
  if (next?.protocol === 'http:' || next?.protocol === 'https:') return next
  throw new ImageServerError('REDIRECT', 'its server redirects to something that is not an http(s) URL')
}

/** Basic authentication as the URL has it. */
function loginOf({ username, password }: URL): string | undefined {
  if (username === '' && password === '') return undefined
  const text = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`
  return `Basic ${Buffer.from(text).toString('base64')}`
}

function describe(thrown: unknown, signal: AbortSignal, options: ImageServerOptions): Error {
  if (signal.aborted || thrown instanceof ImageServerError) return toError(thrown)
  const error = toError(thrown)
  const seconds = (ms: number) => `${ms / 1000} s`
  const words = (code: ImageServerErrorCode, message: string) => new ImageServerError(code, message, { cause: error })
  if (error instanceof errors.BodyTimeoutError)
    return words('STALLED', `no byte came for ${seconds(options.silenceMs)}`)
  if (error instanceof errors.HeadersTimeoutError)
    return words('STALLED', `no answer within ${seconds(options.headersMs)}`)
  if (error instanceof errors.ConnectTimeoutError)
    return words('STALLED', `no connection within ${seconds(options.headersMs)}`)
  if (error instanceof errors.SocketError) return words('NETWORK', 'its server ended the connection before the end')
  return words('NETWORK', error.message)
}

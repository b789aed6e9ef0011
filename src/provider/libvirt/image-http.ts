// Asks an image's server for its size and its bytes; what a status means for a Proxy is decided in image-fetch.ts.
import { Agent, interceptors, request } from 'undici'

export interface ImageResponse {
  readonly status: number
  /** Content-Length; undefined when the server did not say. */
  readonly lengthBytes: number | undefined
  readonly body: AsyncIterable<Uint8Array>
  /** Gives up the body. Idempotent. */
  discard(): void
}

export interface ImageServer {
  /** Follows redirects. Rejects with the transport's error or with the signal's reason. */
  ask(method: 'HEAD' | 'GET', url: string, signal: AbortSignal): Promise<ImageResponse>
  close(): Promise<void>
}

const maxRedirections = 10
const headersTimeoutMs = 30_000
/** Longest silence within a body. */
const bodyTimeoutMs = 60_000

/** Over HTTP/1.1, one request per connection in use. */
export function createImageServer(): ImageServer {
  const agent = new Agent({ headersTimeout: headersTimeoutMs, bodyTimeout: bodyTimeoutMs, allowH2: false })
  const dispatcher = agent.compose(interceptors.redirect({ maxRedirections }))
  return {
    async ask(method, url, signal) {
      // A body compressed on the way would hide its length.
      const headers = { 'accept-encoding': 'identity' }
      const { statusCode, headers: answered, body } = await request(url, { method, headers, dispatcher, signal })
      // An abandoned body reports its end as an error to nobody.
      body.on('error', () => undefined)
      const length = answered['content-length']
      return {
        status: statusCode,
        lengthBytes: typeof length === 'string' && /^\d+$/.test(length) ? Number(length) : undefined,
        body,
        discard: () => void body.destroy(),
      }
    },
    close: () => agent.destroy(),
  }
}

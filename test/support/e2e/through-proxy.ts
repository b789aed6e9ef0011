// A client of a forward proxy, as a crawler would be one: undici's, not the operator's own probe.
import { ProxyAgent, request } from 'undici'

export interface Page {
  readonly status: number
  readonly body: string
  /** The proxy's signature; undefined through a tunnel, where it cannot add one. */
  readonly via: string | undefined
}

const budgetMs = 30_000

/** Plain HTTP: the proxy reads the request and makes it anew. */
export async function getThrough(proxyUrl: string, url: string): Promise<Page> {
  return await get(new ProxyAgent({ uri: proxyUrl, proxyTunnel: false }), url)
}

/** CONNECT: TLS from end to end. @param ca PEM of whom to trust */
export async function getThroughTunnel(proxyUrl: string, url: string, ca: string): Promise<Page> {
  return await get(new ProxyAgent({ uri: proxyUrl, requestTls: { ca } }), url)
}

async function get(dispatcher: ProxyAgent, url: string): Promise<Page> {
  try {
    const response = await request(url, { dispatcher, signal: AbortSignal.timeout(budgetMs) })
    const via = response.headers['via']
    return {
      status: response.statusCode,
      body: (await response.body.text()).trim(),
      via: typeof via === 'string' ? via : undefined,
    }
  } finally {
    await dispatcher.close()
  }
}

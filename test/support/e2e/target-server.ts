// Pages that proxies are asked for: they tell the address a request came from, over HTTP and HTTPS. Not a proxy itself.
import { createServer as createHttpServer, type RequestListener } from 'node:http'
import { createServer as createHttpsServer } from 'node:https'
import { selfSigned } from '../self-signed.ts'
import { close, listen } from './servers.ts'

export interface SeenRequest {
  readonly from: string
  readonly via: string | undefined
  readonly url: string
}

export interface TargetServers {
  /** `http://address:port/ip`: answers the client's address. */
  readonly httpUrl: string
  readonly httpsUrl: string
  /** PEM of the certificate that the HTTPS page shows. */
  readonly ca: string
  readonly seen: SeenRequest[]
  close(): Promise<void>
}

/** @param address an address of this machine that the proxies reach */
export async function startTargetServers(address: string): Promise<TargetServers> {
  const seen: SeenRequest[] = []
  const answer: RequestListener = (request, response) => {
    const from = (request.socket.remoteAddress ?? '').replace(/^::ffff:/, '')
    seen.push({ from, via: request.headers.via, url: request.url ?? '' })
    response.writeHead(200, { 'content-type': 'text/plain' }).end(`${from}\n`)
  }
  const { key, cert } = selfSigned(address, Date.now())
  const servers = [createHttpServer(answer), createHttpsServer({ key, cert }, answer)]
  const [httpPort, httpsPort] = await Promise.all(servers.map((server) => listen(server, address)))
  return {
    httpUrl: `http://${address}:${httpPort ?? 0}/ip`,
    httpsUrl: `https://${address}:${httpsPort ?? 0}/ip`,
    ca: cert,
    seen,
    close: async () => {
      await Promise.all(servers.map(close))
    },
  }
}

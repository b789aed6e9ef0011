// Pages that proxies are asked for: they tell the address a request came from, over HTTP and HTTPS. Not a proxy itself.
import { execFile } from 'node:child_process'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { createServer as createHttpServer, type RequestListener } from 'node:http'
import { createServer as createHttpsServer } from 'node:https'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
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
  const { key, cert } = await selfSigned(address)
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

async function selfSigned(address: string): Promise<{ key: string; cert: string }> {
  const folder = await mkdtemp(join(tmpdir(), 'target-server-'))
  try {
    const [keyFile, certFile] = [join(folder, 'key.pem'), join(folder, 'cert.pem')]
    await promisify(execFile)('openssl', [
      ...['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2'],
      ...['-subj', '/CN=target', '-addext', `subjectAltName=IP:${address}`, '-keyout', keyFile, '-out', certFile],
    ])
    return { key: await readFile(keyFile, 'utf8'), cert: await readFile(certFile, 'utf8') }
  } finally {
    await rm(folder, { recursive: true })
  }
}

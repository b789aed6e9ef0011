// Metrics, liveness and readiness over HTTP; not the discovery API, which is for clients of proxies.
import { createServer, type Server } from 'node:http'
import type { Registry } from 'prom-client'
import { errorMessage } from '../lib/errors.ts'
import type { Logger } from './logger.ts'

/** What one page answers. */
export interface Page {
  readonly status: number
  readonly type: string
  readonly body: string
}

export type Pages = Readonly<Record<string, () => Page | Promise<Page>>>

/** A server of a fixed set of pages by path, not yet listening. */
export function createPageServer(pages: Pages, log: Logger): Server {
  return createServer((request, response) => {
    const path = request.url?.split('?')[0] ?? '/'
    const page = Object.hasOwn(pages, path) ? pages[path] : undefined
    Promise.resolve(page?.() ?? plain(404, `there is no ${path}\n`))
      .catch((thrown: unknown) => {
        log.error('page failed', { path, error: errorMessage(thrown) })
        return plain(500, 'failed; the log says more\n')
      })
      .then(
        ({ status, type, body }) => {
          response.writeHead(status, { 'content-type': type }).end(body)
        },
        () => response.destroy(),
      )
  })
}

export function metricsPages(registry: Registry): Pages {
  return {
    '/metrics': async () => ({ status: 200, type: registry.contentType, body: await registry.metrics() }),
  }
}

/**
 * Liveness answers as long as the event loop turns; readiness when `notReady` has no reason against it.
 * Neither depends on the API server or a hypervisor being there.
 */
export function healthPages(notReady: () => string | undefined): Pages {
  return {
    '/healthz': () => plain(200, 'ok\n'),
    '/readyz': () => {
      const reason = notReady()
      return reason === undefined ? plain(200, 'ok\n') : plain(503, `${reason}\n`)
    },
  }
}

function plain(status: number, body: string): Page {
  return { status, type: 'text/plain; charset=utf-8', body }
}

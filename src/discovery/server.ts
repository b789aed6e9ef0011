// The discovery API: which proxies work, for those who use them. It answers from memory and changes nothing.
import { createHash } from 'node:crypto'
import fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from 'fastify'
import { z } from 'zod'
import type { Verdict } from '../api/probe.ts'
import type { Proxy } from '../api/proxy.ts'
import type { Random } from '../lib/backoff.ts'
import { errorMessage } from '../lib/errors.ts'
import type { Logger } from '../observe/logger.ts'
import { parseLabelSelector } from './label-selector.ts'
import { badRequest, ProblemError, problemType } from './problem.ts'
import { compareViews, matches, viewOf, type Filter, type ProxyView } from './view.ts'

export interface DiscoveryOptions {
  /** All Proxies as they are in memory now. */
  readonly proxies: () => Iterable<Proxy>
  /** What this replica's probes say of `namespace/name`. */
  readonly verdict: (key: string) => Verdict
  readonly random: Random
  readonly log: Logger
}

/** When a client that found nothing should ask again, seconds. */
const retryAfterSeconds = 5

const querySchema = z.strictObject({
  namespace: z.string().optional(),
  labelSelector: z.string().default(''),
  provider: z.string().optional(),
  zone: z.string().optional(),
  healthy: z.enum(['true', 'any'], 'must be true or any').default('true'),
  limit: z.coerce.number('must be a number').int('must be a whole number').min(1, 'must be at least 1').optional(),
  format: z.enum(['json', 'text'], 'must be json or text').optional(),
})

interface Query {
  readonly filter: Filter
  readonly limit: number
  readonly format: 'json' | 'text'
}

/** The server, not yet listening. */
export function createDiscoveryServer(options: DiscoveryOptions): FastifyInstance {
  const app = fastify({
    logger: false,
    exposeHeadRoutes: true,
    // what the router refuses reaches no handler: a path that cannot be decoded
    frameworkErrors: (thrown, _request, reply) => {
      sendProblem(reply, { status: thrown.statusCode ?? 400, title: 'Bad request', detail: thrown.message })
    },
  })
  const views = () => listViews(options)

  app.get('/v1/proxies', (request, reply) => {
    const query = parseQuery(request)
    const found = views()
      .filter((view) => matches(view, query.filter))
      .sort(compareViews)
      .slice(0, query.limit)
    return sendList(request, reply, found, query.format)
  })

  app.get('/v1/proxies/random', (request, reply) => {
    const query = parseQuery(request)
    const found = views().filter((view) => matches(view, query.filter))
    const chosen = found[Math.floor(options.random() * found.length)]
    if (chosen === undefined) {
      throw new ProblemError(
        {
          status: 503,
          title: 'No proxy available',
          detail: 'No proxy that matches is healthy at the moment; ask again.',
        },
        { 'retry-after': String(retryAfterSeconds) },
      )
    }
    reply.header('cache-control', 'no-store')
    return query.format === 'text' ? sendText(reply, `${chosen.url}\n`) : reply.send(chosen)
  })

  app.get('/v1/proxies/:namespace/:name', (request, reply) => {
    const { namespace, name } = z.object({ namespace: z.string(), name: z.string() }).parse(request.params)
    const { format } = parseQuery(request)
    const found = views().find((view) => view.namespace === namespace && view.name === name)
    if (found === undefined) {
      const detail = `There is no proxy ${namespace}/${name} with an address.`
      throw new ProblemError({ status: 404, title: 'No such proxy', detail })
    }
    return format === 'text' ? sendText(reply, `${found.url}\n`) : reply.send(found)
  })

  app.get('/healthz', (_request, reply) => sendText(reply, 'ok\n'))

  app.setNotFoundHandler((request, reply) =>
    sendProblem(reply, {
      status: 404,
      title: 'No such page',
      detail: `There is no ${request.method} ${request.url}; the list of proxies is at /v1/proxies.`,
    }),
  )
  app.setErrorHandler((thrown, request, reply) => {
    if (thrown instanceof ProblemError) return sendProblem(reply.headers(thrown.headers), thrown.problem)
    options.log.error('discovery request failed', {
      method: request.method,
      url: request.url,
      error: errorMessage(thrown),
    })
    return sendProblem(reply, { status: 500, title: 'Internal error', detail: 'The operator log says more.' })
  })
  return app
}

function listViews(options: DiscoveryOptions): ProxyView[] {
  const views: ProxyView[] = []
  for (const proxy of options.proxies()) {
    const view = viewOf(proxy, options.verdict(`${proxy.metadata.namespace}/${proxy.metadata.name}`))
    if (view !== undefined) views.push(view)
  }
  return views
}

function parseQuery(request: FastifyRequest): Query {
  const parsed = querySchema.safeParse(request.query)
  if (!parsed.success) throw badRequest(parsed.error.issues.map(describeIssue).join('; '))
  const { labelSelector, limit, format, healthy, ...exact } = parsed.data
  const selector = parseLabelSelector(labelSelector)
  if (selector.kind === 'invalid') throw badRequest(`labelSelector: ${selector.message}`)
  const given = Object.fromEntries(Object.entries(exact).filter(([, value]) => value !== undefined))
  return {
    filter: { ...given, healthy, labels: selector.requirements },
    limit: limit ?? Number.POSITIVE_INFINITY,
    format: format ?? (prefersText(request) ? 'text' : 'json'),
  }
}

function describeIssue(issue: z.core.$ZodIssue): string {
  if (issue.code === 'unrecognized_keys') {
    return `unknown parameter ${issue.keys.join(', ')}: known are ${Object.keys(querySchema.shape).join(', ')}`
  }
  return `${issue.path.join('.')}: ${issue.message}`
}

function prefersText(request: FastifyRequest): boolean {
  return request.headers.accept?.trim().startsWith('text/plain') === true
}

function sendList(
  request: FastifyRequest,
  reply: FastifyReply,
  found: readonly ProxyView[],
  format: 'json' | 'text',
): FastifyReply {
  // latency changes with every probe and tells a client nothing worth a new answer
  const identity = found.map((view) => ({ ...view, latencyMillis: null }))
  const etag = `"${createHash('sha256').update(format).update(JSON.stringify(identity)).digest('base64url').slice(0, 27)}"`
  reply.headers({ etag, 'cache-control': 'no-cache', vary: 'accept' })
  if (matchesEtag(request.headers['if-none-match'], etag)) return reply.code(304).send()
  if (format === 'text') return sendText(reply, found.map((view) => `${view.url}\n`).join(''))
  return reply.send({ items: found, count: found.length })
}

/** RFC 9110 section 13.1.2: a list of tags or `*`, compared weakly. */
function matchesEtag(header: string | undefined, etag: string): boolean {
  if (header === undefined) return false
  return header.split(',').some((tag) => tag.trim() === '*' || tag.trim().replace(/^W\//, '') === etag)
}

function sendText(reply: FastifyReply, body: string): FastifyReply {
  return reply.type('text/plain; charset=utf-8').send(body)
}

function sendProblem(
  reply: FastifyReply,
  problem: { readonly status: number; readonly title: string; readonly detail: string },
): FastifyReply {
  return reply
    .code(problem.status)
    .type(problemType)
    .send({ type: 'about:blank', ...problem })
}

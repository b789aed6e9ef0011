// The command line of `run`, judged as a whole: every mistake at once, and defaults in one place. It starts nothing.
import { parseArgs } from 'node:util'
import { parseDurationMs } from './api/duration.ts'
import type { LogLevel } from './observe/logger.ts'

/** Where a server listens. */
export interface BindAddress {
  /** Undefined listens on every address of the machine. */
  readonly host: string | undefined
  /** 0 lets the system choose. */
  readonly port: number
}

export interface RunOptions {
  readonly providersConfig: string
  readonly kubeconfig: string | undefined
  readonly installationId: string | undefined
  readonly providerCheckIntervalMs: number
  readonly providerCheckTimeoutMs: number
  readonly maxConcurrentReconciles: number
  /** Undefined serves none. */
  readonly metrics: BindAddress | undefined
  readonly healthProbe: BindAddress | undefined
  readonly discovery: BindAddress
  /** Fetched through every proxy whose spec names no URL of its own. */
  readonly healthCheckUrl: string | undefined
  /** Whether a loopback address can be an instance's own, as those of the stub's instances are. */
  readonly allowLoopbackInstances: boolean
  readonly logLevel: LogLevel
}

export type ParsedOptions =
  | { readonly kind: 'valid'; readonly options: RunOptions }
  | { readonly kind: 'help' }
  | { readonly kind: 'invalid'; readonly problems: readonly string[] }

interface Flag {
  readonly fallback?: string
  readonly meaning: string
}

/** Every flag of `run` that takes a value, in the order of the help. */
const valueFlags = {
  'providers-config': { fallback: '/etc/proxy-operator/providers.yaml', meaning: 'file with the providers' },
  kubeconfig: { meaning: 'kubeconfig file; default $KUBECONFIG, then the service account of the Pod' },
  'installation-id': { meaning: 'DNS label that marks every instance; default the UID of namespace kube-system' },
  'provider-check-interval': { fallback: '1m', meaning: 'time between two health checks of each host' },
  'provider-check-timeout': { fallback: '15s', meaning: 'budget of one round of health checks' },
  'max-concurrent-reconciles': { fallback: '64', meaning: 'Proxies reconciled at the same time' },
  'metrics-bind-address': { fallback: ':8080', meaning: 'address of /metrics; 0 serves none' },
  'health-probe-bind-address': { fallback: ':8081', meaning: 'address of /healthz and /readyz; 0 serves none' },
  'discovery-bind-address': {
    fallback: ':8090',
    meaning: 'address of the discovery API; loopback unless --discovery-insecure is given',
  },
  'health-check-url': { meaning: 'page fetched through each proxy that names none; required unless every Proxy does' },
  'log-level': { fallback: 'info', meaning: 'error, info, debug (or 1) or 2' },
  'zap-log-level': { meaning: 'the same as --log-level' },
} as const satisfies Record<string, Flag>

/** Every flag of `run` that takes none. */
const switches = {
  'discovery-insecure': 'let the discovery API listen beyond loopback without authentication',
  'allow-loopback-instances': 'take loopback addresses for those of instances: for a host that is a stub',
} as const satisfies Record<string, string>

type ValueFlag = keyof typeof valueFlags
type Switch = keyof typeof switches

const logLevels: Readonly<Record<string, LogLevel>> = {
  error: 'error',
  info: 'info',
  debug: 'debug',
  '0': 'info',
  '1': 'debug',
  '2': 'trace',
}

/** Judges the arguments after `run`. */
export function parseRunOptions(args: readonly string[]): ParsedOptions {
  const names = Object.keys(valueFlags) as ValueFlag[]
  const parsed = parseArgs({
    args: [...args],
    strict: false,
    tokens: true,
    options: {
      ...Object.fromEntries(names.map((name) => [name, { type: 'string' as const }])),
      ...Object.fromEntries(Object.keys(switches).map((name) => [name, { type: 'boolean' as const }])),
      help: { type: 'boolean', short: 'h' },
    },
  })
  if (parsed.values['help'] === true) return { kind: 'help' }
  const problems: string[] = []
  for (const token of parsed.tokens) {
    if (token.kind === 'positional') problems.push(`unexpected argument ${JSON.stringify(token.value)}`)
    if (token.kind !== 'option') continue
    if (Object.hasOwn(switches, token.name)) {
      if (token.value !== undefined) problems.push(`${token.rawName} takes no value`)
      continue
    }
    if (!names.some((name) => name === token.name)) problems.push(`unknown flag ${token.rawName}; see run --help`)
    else if (token.value === undefined) problems.push(`${token.rawName} needs a value`)
  }
  const text = (name: ValueFlag): string | undefined => {
    const value = parsed.values[name]
    const flag: Flag = valueFlags[name]
    return typeof value === 'string' ? value : flag.fallback
  }
  const given = (name: Switch) => parsed.values[name] !== undefined
  const read = <T>(name: ValueFlag, parse: (value: string) => T | undefined, allowed: string, otherwise: T): T => {
    const value = text(name) ?? ''
    const result = parse(value)
    if (result === undefined) problems.push(`--${name} ${JSON.stringify(value)} must be ${allowed}`)
    return result ?? otherwise
  }
  const bind = (name: ValueFlag) => read(name, parseBindAddress, 'host:port or :port', { host: undefined, port: 0 })
  const optional = (name: ValueFlag) => (text(name) === '0' ? undefined : bind(name))
  const duration = (name: ValueFlag) =>
    read(name, (value) => parseDurationMs(value) || undefined, 'a duration such as 15s or 1m', 0)
  const level = parsed.values['zap-log-level'] === undefined ? 'log-level' : 'zap-log-level'

  const options: RunOptions = {
    providersConfig: text('providers-config') ?? '',
    kubeconfig: text('kubeconfig'),
    installationId: text('installation-id'),
    providerCheckIntervalMs: duration('provider-check-interval'),
    providerCheckTimeoutMs: duration('provider-check-timeout'),
    maxConcurrentReconciles: read('max-concurrent-reconciles', parseCount, 'a whole number from 1 to 1000', 1),
    metrics: optional('metrics-bind-address'),
    healthProbe: optional('health-probe-bind-address'),
    discovery: discoveryAddress(bind('discovery-bind-address'), given('discovery-insecure'), problems),
    healthCheckUrl: text('health-check-url'),
    allowLoopbackInstances: given('allow-loopback-instances'),
    logLevel: read(level, (value) => logLevels[value], 'error, info, debug, 1 or 2', 'info'),
  }
  if (options.installationId !== undefined && !isDnsLabel(options.installationId)) {
    problems.push('--installation-id must be a DNS label: at most 63 lower-case letters, digits and dashes')
  }
  if (options.healthCheckUrl !== undefined && !isHttpUrl(options.healthCheckUrl)) {
    problems.push('--health-check-url must be an http:// or https:// URL')
  }
  return problems.length === 0 ? { kind: 'valid', options } : { kind: 'invalid', problems }
}

/** The flags of `run` as a list for people. */
export function runHelp(): string {
  const lines = Object.entries<Flag>(valueFlags).map(([name, { fallback, meaning }]) => {
    const suffix = fallback === undefined ? '' : ` (default ${fallback})`
    return `  --${name.padEnd(28)} ${meaning}${suffix}`
  })
  const more = Object.entries(switches).map(([name, meaning]) => `  --${name.padEnd(28)} ${meaning}`)
  return [...lines, ...more].join('\n')
}

/** `host:port`, `:port` or `[v6]:port`. */
function parseBindAddress(value: string): BindAddress | undefined {
  const match = /^(?:\[([0-9a-fA-F:.]+)\]|([^:[\]]*)):([0-9]{1,5})$/.exec(value)
  const port = Number(match?.[3])
  if (match === null || port > 65_535) return undefined
  const host = match[1] ?? match[2]
  return { host: host === '' ? undefined : host, port }
}

/** Nobody is asked who he is yet, so the list of proxies leaves the machine only when told to. */
function discoveryAddress(address: BindAddress, insecure: boolean, problems: string[]): BindAddress {
  if (insecure) return address
  if (address.host === undefined) return { host: '127.0.0.1', port: address.port }
  if (!/^(127\.|::1$|localhost$)/.test(address.host)) {
    problems.push(
      `--discovery-bind-address ${address.host} is not loopback: anybody who reaches it could read the list; give --discovery-insecure if that is wanted`,
    )
  }
  return address
}

function parseCount(value: string): number | undefined {
  const count = Number(value)
  return Number.isInteger(count) && count >= 1 && count <= 1000 ? count : undefined
}

function isDnsLabel(value: string): boolean {
  return /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/.test(value)
}

function isHttpUrl(value: string): boolean {
  return URL.canParse(value) && /^https?:$/.test(new URL(value).protocol)
}

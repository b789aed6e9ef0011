// Corpus: Proxies by their healthCheck, good and bad.
import { bad, good, proxy, type CorpusEntry, type Verdict } from './entry.ts'

const check = (name: string, healthCheck: unknown, verdict: Verdict) => proxy(`check-${name}`, { healthCheck }, verdict)

const durations: readonly CorpusEntry[] = [
  ['1s', good],
  ['1000ms', good],
  ['90s', good],
  ['1m30s', good],
  ['1h30m', good],
  ['24h', good],
  ['0h5m', good],
  ...[
    '',
    '0s',
    '999ms',
    '24h1s',
    '999999h',
    '30',
    '30 s',
    '30S',
    '-30s',
    '1.5h',
    '30s1m',
    '1d',
    'PT30S',
    '10000000s',
  ].map((text) => [text, bad('spec.healthCheck.interval', 'must be a duration from 1s to 24h')] as const),
].map(([interval, verdict], index) => check(`interval-${index}`, { interval }, verdict as Verdict))

/** All Proxies with a healthCheck. */
export const healthCheckEntries: readonly CorpusEntry[] = [
  ...durations,
  check('empty', {}, good),
  check(
    'all',
    { url: 'https://example.net/ip', interval: '1m', timeout: '5s', failureThreshold: 5, successThreshold: 2 },
    good,
  ),
  check('timeout-shortest', { timeout: '100ms' }, good),
  check('timeout-too-short', { timeout: '99ms' }, bad('spec.healthCheck.timeout', 'from 100ms to 5m')),
  check('timeout-too-long', { timeout: '5m1s' }, bad('spec.healthCheck.timeout', 'from 100ms to 5m')),
  check('timeout-number', { timeout: 10 }, bad('spec.healthCheck.timeout')),
  check('failures-zero', { failureThreshold: 0 }, bad('spec.healthCheck.failureThreshold')),
  check('failures-too-many', { failureThreshold: 1001 }, bad('spec.healthCheck.failureThreshold')),
  check('successes-zero', { successThreshold: 0 }, bad('spec.healthCheck.successThreshold')),
  check('replace-after', { replaceAfter: '30m' }, good),
  check('replace-shortest', { replaceAfter: '1m' }, good),
  check('replace-longest', { replaceAfter: '720h' }, good),
  check('replace-too-late', { replaceAfter: '721h' }, bad('spec.healthCheck.replaceAfter', 'from 1m to 720h')),
  check('replace-never', { replaceAfter: 'never' }, bad('spec.healthCheck.replaceAfter', 'from 1m to 720h')),
  check('replace-too-soon', { replaceAfter: '10s' }, bad('spec.healthCheck.replaceAfter', 'from 1m to 720h')),
  check('url-http-port', { url: 'http://192.0.2.1:8080' }, good),
  check('url-ipv6', { url: 'https://[2001:db8::1]/ip?x=y' }, good),
  check('url-ftp', { url: 'ftp://example.net/' }, bad('spec.healthCheck.url', 'must be an http:// or https:// URL')),
  check('url-bare', { url: 'example.net/ip' }, bad('spec.healthCheck.url', 'must be an http:// or https:// URL')),
  check('url-no-host', { url: 'http:///ip' }, bad('spec.healthCheck.url', 'must be an http:// or https:// URL')),
  check(
    'url-password',
    { url: 'http://user:secret@example.net/' },
    bad('spec.healthCheck.url', 'without user and password'),
  ),
  check(
    'url-space',
    { url: 'http://example.net/a b' },
    bad('spec.healthCheck.url', 'must be an http:// or https:// URL'),
  ),
  check(
    'url-port-too-high',
    { url: 'http://example.net:65536/' },
    bad('spec.healthCheck.url', 'a port of at most 65535'),
  ),
  check('url-empty', { url: '' }, bad('spec.healthCheck.url', 'must be an http:// or https:// URL')),
  check('unknown', { path: '/ip' }, bad('spec.healthCheck.path')),
  check('text', '30s', bad('spec.healthCheck')),
]

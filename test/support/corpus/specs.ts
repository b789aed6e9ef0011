// Corpus: Proxies as they are created, good and bad, one matter an entry.
import { bad, good, managed, proxy, proxyWith, type CorpusEntry } from './entry.ts'

const { placement } = managed
const kib = 1024
const secretRef = { secretKeyRef: { name: 'squid-userdata', key: 'user-data' } }
const notYet = 'is not supported yet by this version'

const modes: readonly CorpusEntry[] = [
  proxy('least', {}, good),
  proxy('mode-written-out', { mode: 'Managed' }, good),
  proxy('null-is-absent', { mode: null, cloudInit: null, healthCheck: null, host: null }, good),
  proxy('mode-unknown', { mode: 'Hosted' }, bad('spec.mode')),
  proxy('mode-lower-case', { mode: 'managed' }, bad('spec.mode')),
  proxy('mode-number', { mode: 1 }, bad('spec.mode')),
  proxyWith('no-spec', undefined, bad('spec')),
  proxyWith('spec-is-text', 'Managed', bad('spec')),
  proxyWith('provider-missing', { placement }, bad('spec.provider', 'provider is required for mode Managed')),
  proxyWith(
    'placement-missing',
    { provider: 'kvm-a' },
    bad('spec.placement.machineType', 'placement.machineType is required for mode Managed'),
  ),
  proxy(
    'image-missing',
    { placement: { machineType: 'small' } },
    bad('spec.placement.image', 'placement.image is required for mode Managed'),
  ),
  proxy('host-managed', { host: 'proxy.example.net' }, bad('spec.host', 'host is only for mode External')),
  proxyWith('external', { mode: 'External', host: 'proxy.example.net' }, good),
  proxyWith(
    'external-all',
    {
      mode: 'External',
      host: '2001:db8::1',
      port: 8080,
      credentialsSecretRef: { name: 'auth' },
      healthCheck: { url: 'https://example.net/ip', interval: '1m', failureThreshold: 5 },
      suspend: true,
      deletionPolicy: 'Delete',
    },
    good,
  ),
  proxyWith(
    'external-replace-after',
    { mode: 'External', host: 'a.example.net', healthCheck: { replaceAfter: '30m' } },
    bad('spec.healthCheck.replaceAfter', 'only for mode Managed'),
  ),
  proxyWith(
    'external-retain',
    { mode: 'External', host: 'a.example.net', deletionPolicy: 'Retain' },
    bad('spec.deletionPolicy', 'only for mode Managed'),
  ),
  proxyWith('external-no-host', { mode: 'External' }, bad('spec.host', 'host is required for mode External')),
  proxy(
    'external-provider',
    { mode: 'External', host: 'a.example.net' },
    bad('spec.provider', 'only for mode Managed'),
  ),
  proxy(
    'external-placement',
    { mode: 'External', host: 'a.example.net' },
    bad('spec.placement', 'only for mode Managed'),
  ),
  proxyWith(
    'external-cloud-init',
    { mode: 'External', host: '192.0.2.1', cloudInit: '#' },
    bad('spec.cloudInit', 'only for mode Managed'),
  ),
  proxyWith(
    'external-cloud-init-from',
    { mode: 'External', host: '2001:db8::1', cloudInitFrom: secretRef },
    bad('spec.cloudInitFrom', 'only for mode Managed'),
  ),
  proxy('suspended', { suspend: true }, good),
  proxy('not-suspended', { suspend: false }, good),
  proxy('suspend-text', { suspend: 'yes' }, bad('spec.suspend')),
  proxy('deletion-delete', { deletionPolicy: 'Delete' }, good),
  proxy('deletion-retain', { deletionPolicy: 'Retain' }, bad('spec.deletionPolicy', `deletionPolicy Retain ${notYet}`)),
  proxy('deletion-unknown', { deletionPolicy: 'Orphan' }, bad('spec.deletionPolicy')),
  proxy('unknown-field', { instanceType: 'small' }, bad('spec.instanceType')),
  proxy('unknown-nested-field', { placement: { ...placement, size: 'small' } }, bad('spec.placement.size')),
  proxy('unknown-case', { cloudinit: '#cloud-config' }, bad('spec.cloudinit')),
]

const hosts: readonly CorpusEntry[] = [
  ...['192.0.2.1', '2001:db8::1', 'a', 'proxy', 'xn--bcher-kva.example', '3com.example.net', '10.proxy'].map((host) =>
    proxyWith(`host-good-${host.replaceAll(/[^a-z0-9]+/g, '-')}`, { mode: 'External', host }, good),
  ),
  ...[
    ['scheme', 'http://proxy.example.net'],
    ['port', 'proxy.example.net:3128'],
    ['brackets', '[2001:db8::1]'],
    ['zone', 'fe80::1%eth0'],
    ['mapped', '::ffff:192.0.2.1'],
    ['octet', '192.0.2.256'],
    ['upper-case', 'Proxy.example.net'],
    ['underscore', 'proxy_1.example.net'],
    ['dash', '-proxy.example.net'],
    ['empty', ''],
  ].map(([name = '', host]) =>
    proxyWith(
      `host-${name}`,
      { mode: 'External', host },
      bad('spec.host', 'must be a DNS name in lower case or an IP'),
    ),
  ),
]

const names: readonly CorpusEntry[] = [
  proxy('provider-longest', { provider: 'k'.repeat(63) }, good),
  proxy('provider-digit-first', { provider: '1-kvm' }, good),
  proxy('provider-too-long', { provider: 'k'.repeat(64) }, bad('spec.provider')),
  proxy('provider-upper-case', { provider: 'Kvm' }, bad('spec.provider', 'must be a DNS label')),
  proxy('provider-dot', { provider: 'kvm.home' }, bad('spec.provider', 'must be a DNS label')),
  proxy('provider-dash-last', { provider: 'kvm-' }, bad('spec.provider', 'must be a DNS label')),
  proxy('provider-empty', { provider: '' }, bad('spec.provider', 'must be a DNS label')),
  proxy('provider-newline', { provider: 'kvm\n' }, bad('spec.provider', 'must be a DNS label')),
  proxy('credentials', { credentialsSecretRef: { name: 'squid-auth.v1' } }, good),
  proxy('credentials-empty', { credentialsSecretRef: {} }, bad('spec.credentialsSecretRef.name')),
  proxy(
    'credentials-upper-case',
    { credentialsSecretRef: { name: 'Squid' } },
    bad('spec.credentialsSecretRef.name', 'must be an object name'),
  ),
  proxy(
    'credentials-two-dots',
    { credentialsSecretRef: { name: 'a..b' } },
    bad('spec.credentialsSecretRef.name', 'must be an object name'),
  ),
]

const placements: readonly CorpusEntry[] = [
  proxy('zone', { placement: { ...placement, zone: 'Rack_2.b', region: 'home' } }, good),
  proxy('zone-slash', { placement: { ...placement, zone: 'a/b' } }, bad('spec.placement.zone', 'must be a name')),
  proxy('zone-dots', { placement: { ...placement, zone: '..' } }, good),
  proxy('zone-empty', { placement: { ...placement, zone: '' } }, bad('spec.placement.zone', 'must be a name')),
  proxy('zone-number', { placement: { ...placement, zone: 7 } }, bad('spec.placement.zone')),
  proxy('zone-too-long', { placement: { ...placement, zone: 'z'.repeat(254) } }, bad('spec.placement.zone')),
  proxy(
    'machine-type-space',
    { placement: { ...placement, machineType: 'very small' } },
    bad('spec.placement.machineType', 'must be a name'),
  ),
  proxy(
    'region-umlaut',
    { placement: { ...placement, region: 'Köln' } },
    bad('spec.placement.region', 'must be a name'),
  ),
  proxy('image-url', { placement: { ...placement, image: 'https://images.example.net/a%20b/d.qcow2?x=1#y' } }, good),
  proxy('image-url-port', { placement: { ...placement, image: 'http://[2001:db8::1]:8080/d.qcow2' } }, good),
  proxy(
    'image-file-url',
    { placement: { ...placement, image: 'file:///d.qcow2' } },
    bad('spec.placement.image', 'must be a key of the providers config'),
  ),
  proxy(
    'image-url-password',
    { placement: { ...placement, image: 'https://user:secret@images.example.net/d.qcow2' } },
    bad('spec.placement.image', 'without user and password'),
  ),
  proxy(
    'image-url-space',
    { placement: { ...placement, image: 'https://images.example.net/d 13.qcow2' } },
    bad('spec.placement.image', 'must be a key of the providers config'),
  ),
  proxy('placement-list', { placement: [] }, bad('spec.placement')),
]

const userData: readonly CorpusEntry[] = [
  proxy('cloud-init', { cloudInit: '#cloud-config\npackages: [squid]\n' }, good),
  proxy('cloud-init-blank', { cloudInit: ' ' }, good),
  proxy('cloud-init-largest', { cloudInit: 'x'.repeat(128 * kib) }, good),
  proxy('cloud-init-largest-wide', { cloudInit: 'é'.repeat(64 * kib) }, good),
  proxy('cloud-init-empty', { cloudInit: '' }, bad('spec.cloudInit', 'is empty')),
  proxy('cloud-init-byte-too-many', { cloudInit: 'x'.repeat(128 * kib + 1) }, bad('spec.cloudInit', 'cloudInitFrom')),
  proxy('cloud-init-wide', { cloudInit: 'é'.repeat(64 * kib) + 'x' }, bad('spec.cloudInit', 'cloudInitFrom')),
  proxy('cloud-init-emoji', { cloudInit: '🦑'.repeat(32 * kib + 1) }, bad('spec.cloudInit', 'cloudInitFrom')),
  proxy('cloud-init-200-kib', { cloudInit: 'x'.repeat(200 * kib) }, bad('spec.cloudInit', 'cloudInitFrom')),
  proxy('cloud-init-over-1-mib', { cloudInit: 'x'.repeat(1024 * kib + 1) }, bad('spec.cloudInit')),
  proxy('cloud-init-list', { cloudInit: ['#cloud-config'] }, bad('spec.cloudInit')),
  proxy('cloud-init-from', { cloudInitFrom: secretRef }, good),
  proxy('cloud-init-twice', { cloudInit: '#', cloudInitFrom: secretRef }, bad('spec.cloudInitFrom', 'at most one of')),
  proxy('cloud-init-from-nothing', { cloudInitFrom: {} }, bad('spec.cloudInitFrom.secretKeyRef')),
  proxy(
    'cloud-init-from-no-key',
    { cloudInitFrom: { secretKeyRef: { name: 'a' } } },
    bad('spec.cloudInitFrom.secretKeyRef.key'),
  ),
  proxy(
    'cloud-init-from-bad-key',
    { cloudInitFrom: { secretKeyRef: { name: 'a', key: 'user data' } } },
    bad('spec.cloudInitFrom.secretKeyRef.key', 'must be a key of a Secret'),
  ),
  proxy(
    'cloud-init-from-config-map',
    { cloudInitFrom: { ...secretRef, configMapKeyRef: { name: 'a', key: 'b' } } },
    bad('spec.cloudInitFrom.configMapKeyRef'),
  ),
]

const ports: readonly CorpusEntry[] = [
  proxy('port-lowest', { port: 1 }, good),
  proxy('port-highest', { port: 65535 }, good),
  proxy('port-zero', { port: 0 }, bad('spec.port')),
  proxy('port-too-high', { port: 65536 }, bad('spec.port')),
  proxy('port-negative', { port: -1 }, bad('spec.port')),
  proxy('port-fraction', { port: 3128.5 }, bad('spec.port')),
  proxy('port-text', { port: '3128' }, bad('spec.port')),
]

/** All Proxies that are created. */
export const specEntries: readonly CorpusEntry[] = [...modes, ...hosts, ...names, ...placements, ...userData, ...ports]

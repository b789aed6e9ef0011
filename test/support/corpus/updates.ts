// Corpus: changes of a stored Proxy, good and bad.
import { apiVersion, proxyKind } from '../../../src/api/group.ts'
import { bad, good, managed, proxyObject, update, type CorpusEntry, type Json, type Verdict } from './entry.ts'

const { placement } = managed
const secretRef = { secretKeyRef: { name: 'squid-userdata', key: 'user-data' } }

/** An External proxy whose fields `before` become `after`. */
function external(name: string, before: Json, after: Json, verdict: Verdict): CorpusEntry {
  const mode = 'External'
  const [old, object] = [proxyObject({ mode, ...before }), proxyObject({ mode, ...after })]
  return { name: `external-${name}`, kind: proxyKind.kind, old, object, verdict }
}

/** All changes. */
export const updateEntries: readonly CorpusEntry[] = [
  update('nothing', {}, {}, good),
  update('port', {}, { port: 8888 }, good),
  update('placement', {}, { placement: { ...placement, image: 'debian-14', zone: 'b' } }, good),
  update('cloud-init-added', {}, { cloudInit: '#cloud-config\n' }, good),
  update('cloud-init-removed', { cloudInit: '#cloud-config\n' }, {}, good),
  update('cloud-init-to-secret', { cloudInit: '#cloud-config\n' }, { cloudInitFrom: secretRef }, good),
  update('cloud-init-emptied', { cloudInit: '#cloud-config\n' }, { cloudInit: '' }, bad('spec.cloudInit', 'is empty')),
  update('credentials-added', {}, { credentialsSecretRef: { name: 'squid-auth' } }, good),
  update('interval', { healthCheck: { interval: '10s' } }, { healthCheck: { interval: '20s' } }, good),
  update('mode-written-out', {}, { mode: 'Managed' }, good),
  update('provider', {}, { provider: 'kvm-b' }, bad('spec.provider', 'provider is immutable')),
  update('provider-removed', {}, { provider: undefined }, bad('spec.provider', 'provider is immutable')),
  update('mode', {}, { mode: 'External', host: 'a.example.net' }, bad('spec.mode', 'mode is immutable')),
  update(
    'managed-to-external',
    {},
    { mode: 'External', host: 'a.example.net', provider: undefined, placement: undefined },
    bad('spec.provider', 'provider is immutable'),
  ),
  update('suspend', {}, { suspend: true }, good),
  update('resume', { suspend: true }, { suspend: false }, good),
  update('replace-after', {}, { healthCheck: { replaceAfter: '1h' } }, good),
  external('host', { host: 'a.example.net' }, { host: '192.0.2.7', port: 8080 }, good),
  external(
    'to-managed',
    { host: 'a.example.net' },
    { mode: 'Managed', ...managed },
    bad('spec.mode', 'mode is immutable'),
  ),
  external('host-removed', { host: 'a.example.net' }, {}, bad('spec.host', 'host is required for mode External')),
  update('retain', {}, { deletionPolicy: 'Retain' }, bad('spec.deletionPolicy', 'not supported yet')),
  update('port-out-of-range', {}, { port: 70_000 }, bad('spec.port')),
  {
    name: 'spec-removed',
    kind: proxyKind.kind,
    old: proxyObject(managed),
    object: { apiVersion, kind: proxyKind.kind },
    verdict: bad('spec'),
  },
].map((entry) => ({ ...entry, name: `update-${entry.name}` }))

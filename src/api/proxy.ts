// The kind Proxy: schemas of spec and status, and their types. Rules across fields are in proxy-rules.ts.
import { isIPv4, isIPv6 } from 'node:net'
import { z } from 'zod'
import { conditionsSchema } from './conditions.ts'
import {
  catalogueKey,
  celRegex,
  dnsLabel,
  dnsSubdomain,
  durationBetween,
  httpUrlPattern,
  matching,
  ruledString,
  text,
  timestamp,
} from './fields.ts'
import type { apiVersion, proxyKind } from './group.ts'
import type { NamespacedMeta } from './meta.ts'

/** Most bytes of an inline cloudInit: `kubectl apply` keeps a copy of the object in an annotation of at most 256 KiB. */
export const maxInlineCloudInitBytes = 128 * 1024

/**
 * Most characters of cloudInit that the structural schema lets through. Far above the limit in bytes on purpose: a
 * schema's maxLength counts characters and answers without naming the way out, so the limit itself is a rule.
 */
const maxCloudInitChars = 1024 * 1024

const httpUrl = () =>
  ruledString(2048, [
    {
      ...matching(
        httpUrlPattern,
        'must be an http:// or https:// URL without user and password, for example https://example.net/ip',
      ),
      unquoted: true,
    },
    {
      cel: `!isURL(self) || url(self).getPort() == '' || int(url(self).getPort()) <= 65535`,
      message: 'must have a port of at most 65535',
      holds: (value) => Number(httpUrlPattern.exec(value)?.[3]?.slice(1) ?? 0) <= 65_535,
    },
  ])

const cataloguePattern = /^[A-Za-z0-9._-]+$/

const image = () =>
  ruledString(2048, [
    {
      cel: `self.matches(${celRegex(cataloguePattern)}) || self.matches(${celRegex(httpUrlPattern)})`,
      message:
        'must be a key of the providers config (letters, digits, dots, dashes, underscores) or an http(s) URL without user and password',
      holds: (value) => cataloguePattern.test(value) || httpUrlPattern.test(value),
      unquoted: true,
    },
  ])

const cloudInit = () =>
  ruledString(maxCloudInitChars, [
    {
      cel: `self != ''`,
      message: 'is empty: leave it out to boot the image without user-data',
      holds: (value) => value !== '',
      unquoted: true,
    },
    {
      cel: `bytes(self).size() <= ${maxInlineCloudInitBytes}`,
      message: `must be at most 128 KiB (${maxInlineCloudInitBytes} bytes) inline: put it in a Secret and name that in cloudInitFrom`,
      holds: (value) => Buffer.byteLength(value) <= maxInlineCloudInitBytes,
      unquoted: true,
    },
  ])

/** The last label holds a letter, so that no malformed IPv4 address passes for a name. */
const hostNamePattern = /^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z]([a-z0-9-]{0,61}[a-z0-9])?$/

const host = () =>
  ruledString(253, [
    {
      cel: `isIP(self) || self.matches(${celRegex(hostNamePattern)})`,
      message: 'must be a DNS name in lower case or an IP address, without scheme, port and brackets',
      holds: (value) => isPlainIp(value) || hostNamePattern.test(value),
    },
  ])

/** As the API server's isIP: no zone, no IPv4-mapped IPv6. */
function isPlainIp(value: string): boolean {
  return isIPv4(value) || (isIPv6(value) && !value.includes('%') && !value.includes('.'))
}

export const placementSchema = z.object({
  zone: catalogueKey()
    .exactOptional()
    .describe('Host or node to run on. May be left out when the provider has just one.'),
  machineType: catalogueKey().exactOptional().describe('Size: a key of machineTypes in the providers config.'),
  image: image()
    .exactOptional()
    .describe(
      'Disk image: a key of images (templates on Proxmox) in the providers config, or an http(s) URL on libvirt.',
    ),
  region: catalogueKey()
    .exactOptional()
    .describe('Not used by libvirt and Proxmox; a change still replaces the instance.'),
})

export const healthCheckSchema = z.object({
  url: httpUrl()
    .exactOptional()
    .describe('Page that the probe fetches through the proxy. Default: --health-check-url.'),
  interval: durationBetween('1s', '24h').default('30s').describe('Time between two probes, 1s to 24h.'),
  timeout: durationBetween('100ms', '5m').default('10s').describe('Budget of one probe, 100ms to 5m.'),
  failureThreshold: z.int32().min(1).max(1000).default(3).describe('Failures in a row that make the proxy unhealthy.'),
  successThreshold: z.int32().min(1).max(1000).default(1).describe('Successes in a row that make it healthy.'),
  replaceAfter: durationBetween('1m', '720h')
    .exactOptional()
    .describe('Replace the instance when it was unhealthy this long, 1m to 720h. Default: never.'),
})

const secretKeyRefSchema = z.object({
  name: dnsSubdomain().describe('Name of the Secret, in the namespace of the Proxy.'),
  key: text(253, /^[A-Za-z0-9._-]+$/, 'a key of a Secret: letters, digits, dots, dashes and underscores').describe(
    'Key in the Secret.',
  ),
})

export const modes = ['Managed', 'External'] as const
export const deletionPolicies = ['Delete', 'Retain'] as const
export const phases = ['Pending', 'Provisioning', 'Running', 'Ready', 'Failed', 'Deleting'] as const

export const proxySpecSchema = z.object({
  mode: z
    .enum(modes)
    .default('Managed')
    .describe('Managed: the operator owns a VM. External: an endpoint that already exists. Immutable.'),
  provider: dnsLabel().exactOptional().describe('Managed: name of the entry in the providers config. Immutable.'),
  placement: placementSchema
    .exactOptional()
    .describe('Managed: where the instance runs, how big it is, what it boots.'),
  cloudInit: cloudInit()
    .exactOptional()
    .describe('User-data handed to the instance byte for byte, at most 128 KiB. Larger or secret: cloudInitFrom.'),
  cloudInitFrom: z
    .object({ secretKeyRef: secretKeyRefSchema.describe('The Secret and the key that hold the user-data.') })
    .exactOptional()
    .describe('User-data from a Secret: bytes of any kind, gzip included.'),
  host: host().exactOptional().describe('External: DNS name or IP address of the proxy.'),
  port: z.int32().min(1).max(65_535).default(3128).describe('TCP port on which the proxy listens.'),
  credentialsSecretRef: z
    .object({ name: dnsSubdomain().describe('Name of the Secret, in the namespace of the Proxy.') })
    .exactOptional()
    .describe('Secret with the keys username and password, used by the probe and offered to clients.'),
  healthCheck: healthCheckSchema.prefault({}).describe('How the proxy is probed.'),
  deletionPolicy: z
    .enum(deletionPolicies)
    .default('Delete')
    .describe('Delete: the instance goes with the object. Retain: it stays.'),
  suspend: z.boolean().default(false).describe('true: observe and probe only, change nothing on the hypervisor.'),
})

/** What was about to be made on a target, recorded before the first mutating call there. */
export const intentSchema = z.object({
  target: z.string().min(1).max(253).describe('Host or node.'),
  at: timestamp().describe('When it was recorded.'),
  vmid: z.int32().min(1).exactOptional().describe('Proxmox: the VMID that was about to be cloned to.'),
})

export const errorOrigins = ['spec', 'environment'] as const

/** Why a Proxy is Failed, and what it takes to decide when that ends. */
export const latchSchema = z.object({
  code: z.string().min(1).max(256).describe('Stable code of the error.'),
  specHash: z.string().min(1).max(256).describe('Spec hash that failed.'),
  origin: z.enum(errorOrigins).describe('Whether the spec or the environment is to blame.'),
  target: z.string().max(253).exactOptional().describe('Host or node that failed, when one was chosen.'),
  configHash: z.string().max(256).exactOptional().describe('Hash of the provider entry, when there was one.'),
  retry: z.string().max(4096).exactOptional().describe('Value of the annotation egressproxies.dev/retry at the time.'),
  since: timestamp().describe('When it failed.'),
  message: z.string().max(32_768).exactOptional().describe('What failed, for people.'),
  repeated: z
    .boolean()
    .exactOptional()
    .describe('Whether it came back after a healthy target had ended it: the next attempt then waits 10 minutes.'),
})

/** An unhealthy instance that is being replaced: until the next one works. */
export const replacementSchema = z.object({
  since: timestamp().describe('When it was begun.'),
  deleted: z.boolean().describe('Whether the unhealthy instance is gone.'),
})

export const proxyStatusSchema = z.object({
  phase: z.enum(phases).exactOptional().describe('Where the Proxy stands.'),
  providerID: z.string().max(1024).exactOptional().describe('What the provider calls the instance.'),
  instanceName: z.string().max(253).exactOptional().describe('Name of the instance on the hypervisor.'),
  ip: z.string().max(64).exactOptional().describe('Last good address of the instance.'),
  endpoint: z.string().max(2048).exactOptional().describe('URL of the proxy.'),
  egressIP: z.string().max(64).exactOptional().describe('Address that the internet sees.'),
  specHash: z.string().max(256).exactOptional().describe('Hash of what the instance was made from.'),
  observedGeneration: z.int().min(0).exactOptional().describe('The metadata.generation last acted on.'),
  intents: z.array(intentSchema).max(64).exactOptional().describe('What was about to be made, and where.'),
  replacement: replacementSchema.exactOptional().describe('The replacement of an unhealthy instance.'),
  latch: latchSchema.exactOptional().describe('Why the Proxy is Failed, and when that ends.'),
  conditions: conditionsSchema.exactOptional().describe('Provisioned, Healthy, Ready, Outdated.'),
})

/** The spec as it is stored: defaults are in. */
export type ProxySpec = z.output<typeof proxySpecSchema>
/** The spec as a person may write it. */
export type ProxySpecInput = z.input<typeof proxySpecSchema>
export type ProxyStatus = z.output<typeof proxyStatusSchema>
export type Placement = z.output<typeof placementSchema>
export type HealthCheckSpec = z.output<typeof healthCheckSchema>
export type ProxyIntent = z.output<typeof intentSchema>
export type ProxyLatch = z.output<typeof latchSchema>
export type ProxyPhase = (typeof phases)[number]
export type ErrorOrigin = (typeof errorOrigins)[number]

/** The object as the API server returns it. */
export interface Proxy {
  apiVersion: typeof apiVersion
  kind: typeof proxyKind.kind
  metadata: NamespacedMeta
  spec: ProxySpec
  status?: ProxyStatus
}

/** A spec of mode Managed that the API server accepted: these fields are certain. */
export type ManagedSpec = ProxySpec & {
  mode: 'Managed'
  provider: string
  placement: Placement & { machineType: string; image: string }
}

/** A spec of mode External that the API server accepted. */
export type ExternalSpec = ProxySpec & { mode: 'External'; host: string }

/** Condition types of a Proxy. */
export const proxyConditions = {
  provisioned: 'Provisioned',
  healthy: 'Healthy',
  ready: 'Ready',
  outdated: 'Outdated',
} as const

/** True for mode Managed with all that mode requires. */
export function isManaged(spec: ProxySpec): spec is ManagedSpec {
  return (
    spec.mode === 'Managed' &&
    spec.provider !== undefined &&
    spec.placement?.machineType !== undefined &&
    spec.placement.image !== undefined
  )
}

/** True for mode External with the host that it requires. */
export function isExternal(spec: ProxySpec): spec is ExternalSpec {
  return spec.mode === 'External' && spec.host !== undefined
}

// Rules on a Proxy's spec that span fields or versions, each stated for both judges: CEL for the API server, a function for us.
import type { ProxySpec } from './proxy.ts'

/** Kubernetes' reasons for refusing a field. */
export type RuleReason = 'FieldValueRequired' | 'FieldValueForbidden' | 'FieldValueInvalid'

interface RuleWords {
  /** Path below spec, for example `placement.image`: the field that the message is about. */
  readonly field: string
  readonly reason: RuleReason
  /** Evaluated at spec level with defaults in, so that it also fires when a field is added or removed. */
  readonly cel: string
  readonly message: string
}

/** A rule on one version of the spec. */
export interface StateRule extends RuleWords {
  readonly kind: 'state'
  readonly holds: (spec: ProxySpec) => boolean
}

/** A rule on a change of the spec. */
export interface TransitionRule extends RuleWords {
  readonly kind: 'transition'
  readonly holds: (spec: ProxySpec, old: ProxySpec) => boolean
}

export type ProxyRule = StateRule | TransitionRule

const required = (field: string, cel: string, holds: (spec: ProxySpec) => boolean, message: string): StateRule => {
  return { kind: 'state', field, reason: 'FieldValueRequired', cel, message, holds }
}

const forbidden = (field: string, cel: string, holds: (spec: ProxySpec) => boolean, message: string): StateRule => {
  return { kind: 'state', field, reason: 'FieldValueForbidden', cel, message, holds }
}

const immutable = (field: 'mode' | 'provider', cel: string): TransitionRule => ({
  kind: 'transition',
  field,
  reason: 'FieldValueForbidden',
  cel,
  message: `${field} is immutable: delete the Proxy and create it again`,
  holds: (spec, old) => spec[field] === old[field],
})

const notForExternal = (field: 'provider' | 'placement' | 'cloudInit' | 'cloudInitFrom'): StateRule =>
  forbidden(
    field,
    `self.mode != 'External' || !has(self.${field})`,
    (spec) => spec.mode !== 'External' || spec[field] === undefined,
    `${field} is only for mode Managed: an External proxy has no instance`,
  )

/** Which fields go with which mode. */
const modeRules: readonly ProxyRule[] = [
  required(
    'provider',
    `self.mode != 'Managed' || has(self.provider)`,
    (spec) => spec.mode !== 'Managed' || spec.provider !== undefined,
    'provider is required for mode Managed: the name of an entry in the providers config',
  ),
  required(
    'placement.machineType',
    `self.mode != 'Managed' || (has(self.placement) && has(self.placement.machineType))`,
    (spec) => spec.mode !== 'Managed' || spec.placement?.machineType !== undefined,
    'placement.machineType is required for mode Managed: a key of machineTypes in the providers config',
  ),
  required(
    'placement.image',
    `self.mode != 'Managed' || (has(self.placement) && has(self.placement.image))`,
    (spec) => spec.mode !== 'Managed' || spec.placement?.image !== undefined,
    'placement.image is required for mode Managed: a key of images (templates on Proxmox) in the providers config',
  ),
  forbidden(
    'host',
    `self.mode != 'Managed' || !has(self.host)`,
    (spec) => spec.mode !== 'Managed' || spec.host === undefined,
    'host is only for mode External: the operator finds the address of an instance itself',
  ),
  required(
    'host',
    `self.mode != 'External' || has(self.host)`,
    (spec) => spec.mode !== 'External' || spec.host !== undefined,
    'host is required for mode External: the DNS name or IP address of the proxy',
  ),
  notForExternal('provider'),
  notForExternal('placement'),
  notForExternal('cloudInit'),
  notForExternal('cloudInitFrom'),
  forbidden(
    'healthCheck.replaceAfter',
    `self.mode != 'External' || !has(self.healthCheck.replaceAfter)`,
    (spec) => spec.mode !== 'External' || spec.healthCheck.replaceAfter === undefined,
    'healthCheck.replaceAfter is only for mode Managed: an External proxy has no instance to replace',
  ),
  forbidden(
    'deletionPolicy',
    `self.mode != 'External' || self.deletionPolicy != 'Retain'`,
    (spec) => spec.mode !== 'External' || spec.deletionPolicy !== 'Retain',
    'deletionPolicy Retain is only for mode Managed: an External proxy has no instance to retain',
  ),
  forbidden(
    'cloudInitFrom',
    `!(has(self.cloudInit) && has(self.cloudInitFrom))`,
    (spec) => spec.cloudInit === undefined || spec.cloudInitFrom === undefined,
    'at most one of cloudInit and cloudInitFrom may be set',
  ),
]

const changeRules: readonly ProxyRule[] = [
  immutable('mode', `self.mode == oldSelf.mode`),
  immutable(
    'provider',
    `has(self.provider) == has(oldSelf.provider) && (!has(self.provider) || self.provider == oldSelf.provider)`,
  ),
]

/** What this version does not do yet. Whoever builds a feature deletes its line. */
const notSupportedYet: readonly ProxyRule[] = [
  notYet('deletionPolicy', `self.deletionPolicy != 'Retain'`, (spec) => spec.deletionPolicy !== 'Retain', 'Retain'),
]

function notYet(field: string, cel: string, holds: (spec: ProxySpec) => boolean, value: string): ProxyRule {
  return forbidden(field, cel, holds, `${field} ${value} is not supported yet by this version: leave it out`)
}

/** All rules, in the order in which the CRD lists them. */
export const proxyRules: readonly ProxyRule[] = [...modeRules, ...changeRules, ...notSupportedYet]

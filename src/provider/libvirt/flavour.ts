// In what the types kvm and kvm2 differ: marks, and the words of their health checks and logs. Everything else is one engine.
import type { CheckReason } from './errors.ts'

export interface Flavour {
  /** The type, its block in the providers config, its logger, the prefix of its spans and of its mark in documents. */
  readonly name: 'kvm' | 'kvm2'
  /** XML namespace of the mark. Each type sees only its own. */
  readonly markNamespace: string
  /** First word of the log lines about operations. */
  readonly subject: string
  /** Logger of the lines about calls. */
  readonly callLogger: string
  /** What a call is named in its log line. @param method as kvm2 names it: `DomainLookupByName` */
  readonly callName: (method: string) => string
  /** Whether the lines about calls say at debug already what a word or a number can of the result; at level 2 all do. */
  readonly briefResults: boolean
  /** What the health check calls where it broke. */
  readonly reasons: Readonly<Record<CheckReason, string>>
  /** Names of the details about a pool, and what follows their numbers. */
  readonly poolDetails: { readonly capacity: string; readonly available: string; readonly unit: string }
}

const namespaces = 'https://gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator'

export const kvm2Flavour: Flavour = {
  name: 'kvm2',
  markNamespace: `${namespaces}/kvm2`,
  subject: 'kvm2',
  callLogger: 'kvm2',
  callName: (method) => method,
  briefResults: false,
  reasons: {
    CredentialsUnavailable: 'CredentialsUnavailable',
    Unreachable: 'Unreachable',
    HandshakeFailed: 'Unreachable',
    Unauthorized: 'Unauthorized',
    SocketRefused: 'Unreachable',
    Forbidden: 'Forbidden',
    Timeout: 'Timeout',
    PoolNotFound: 'PoolNotFound',
    PoolNotActive: 'PoolNotActive',
    APIError: 'APIError',
  },
  poolDetails: { capacity: 'poolCapacityGiB', available: 'poolAvailableGiB', unit: '' },
}

export const kvmFlavour: Flavour = {
  name: 'kvm',
  markNamespace: `${namespaces}/kvm`,
  subject: 'KVM',
  callLogger: 'kvm.libvirt',
  callName: (method) => `vir${method.replace('EventCallback', 'Event')}`,
  briefResults: true,
  reasons: {
    CredentialsUnavailable: 'SSHMaterialUnavailable',
    Unreachable: 'Unreachable',
    HandshakeFailed: 'SSHHandshakeFailed',
    Unauthorized: 'SSHHandshakeFailed',
    SocketRefused: 'LibvirtConnectFailed',
    Forbidden: 'LibvirtConnectFailed',
    Timeout: 'Timeout',
    PoolNotFound: 'PoolNotFound',
    PoolNotActive: 'PoolNotActive',
    APIError: 'LibvirtError',
  },
  poolDetails: { capacity: 'poolCapacity', available: 'poolAvailable', unit: ' GiB' },
}

export const flavours = { kvm: kvmFlavour, kvm2: kvm2Flavour } as const

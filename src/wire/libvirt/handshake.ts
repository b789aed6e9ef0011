// The calls that make a fresh connection usable, in the order the daemon wants them; it owns no socket and no budget.
import { LibvirtConnectionError } from './errors.ts'
import type { ProcedureName, Procedures } from './protocol.gen.ts'

/** remote_protocol.x: remote_auth_type. */
export const AuthType = { NONE: 0, SASL: 1, POLKIT: 2 } as const

/** Features asked for (libvirt_internal.h: virDrvFeature). */
export const Feature = { PROGRAM_KEEPALIVE: 10, REMOTE_EVENT_CALLBACK: 14 } as const

export interface HandshakeOptions {
  readonly uri: string
  /** Whether to ask the daemon to watch this client, which makes it answer and send keepalives. */
  readonly keepalive: boolean
}

export interface HandshakeResult {
  readonly keepalive: boolean
  readonly events: boolean
}

type CallFunction = <P extends ProcedureName>(
  procedure: P,
  args: Procedures[P]['args'],
) => Promise<Procedures[P]['ret']>

/** Throws `LibvirtError` as the daemon answers, and `LibvirtConnectionError` when it wants an authentication we lack. */
export async function handshake(call: CallFunction, options: HandshakeOptions): Promise<HandshakeResult> {
  const { types } = await call('AUTH_LIST', null)
  if (types.length > 0 && !types.includes(AuthType.NONE)) {
    if (!types.includes(AuthType.POLKIT)) {
      throw new LibvirtConnectionError(
        'AUTH_UNSUPPORTED',
        `libvirtd offers only authentication ${types.map(authName).join(', ')}; use a socket with auth_unix_rw none or polkit`,
      )
    }
    const { complete } = await call('AUTH_POLKIT', null)
    if (complete === 0) throw new LibvirtConnectionError('AUTH_FAILED', 'libvirtd wants more than polkit could give')
  }
  // The only feature question that the daemon takes before the open.
  const keepalive = options.keepalive && (await supports(call, Feature.PROGRAM_KEEPALIVE))
  await call('CONNECT_OPEN', { name: options.uri, flags: 0 })
  return { keepalive, events: await supports(call, Feature.REMOTE_EVENT_CALLBACK) }
}

async function supports(call: CallFunction, feature: number): Promise<boolean> {
  const { supported } = await call('CONNECT_SUPPORTS_FEATURE', { feature })
  return supported !== 0
}

function authName(type: number): string {
  for (const [name, number] of Object.entries(AuthType)) {
    if (number === type) return name.toLowerCase()
  }
  return `type ${type}`
}

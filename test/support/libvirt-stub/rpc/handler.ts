// What a procedure of the stub is: a function of the host, the connection's own state, and the call's arguments.
import type { ProcedureName, Procedures } from '../../../../src/wire/libvirt/protocol.gen.ts'
import type { StubHost } from '../host.ts'
import type { StubEvent } from '../model/events.ts'
import type { ServerStream, StreamIdentity } from './streams.ts'

/** What one connection knows about itself. */
export interface Session {
  readonly host: StubHost
  /** CONNECT_OPEN worked. */
  open: boolean
  readOnly: boolean
  /** The client asked for PROGRAM_KEEPALIVE: from now on it is pinged. */
  keepalive: boolean
  /** Stands for the connection in registrations. */
  readonly owner: object
  deliver(event: StubEvent, callbackID: number): void
}

export interface Call extends Session {
  /** An event that is sent behind the reply; those emitted at once go out before it. */
  emitAfterReply(event: StubEvent): void
  /** Opens the call's stream; `make` gets its procedure and serial. */
  openStream(make: (identity: StreamIdentity) => ServerStream): void
  /** After the reply the server hangs up. */
  hangUp(): void
}

export type Handler<P extends ProcedureName> = (
  call: Call,
  args: Procedures[P]['args'],
) => Procedures[P]['ret'] | Promise<Procedures[P]['ret']>

export type Handlers = { readonly [P in ProcedureName]?: Handler<P> }

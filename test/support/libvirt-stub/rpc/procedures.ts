// Every procedure that the stub serves, found by name with its types intact.
import type { ProcedureName } from '../../../../src/wire/libvirt/protocol.gen.ts'
import { connectProcedures } from './connect-procedures.ts'
import { domainProcedures } from './domain-procedures.ts'
import type { Handler, Handlers } from './handler.ts'
import { storageProcedures } from './storage-procedures.ts'

const all: Handlers = { ...connectProcedures, ...domainProcedures, ...storageProcedures }

/** Undefined for a procedure that the protocol has and the stub does not serve. */
export function handlerOf<P extends ProcedureName>(procedure: P): Handler<P> | undefined {
  return all[procedure]
}

// Starts and ends HTTP servers of the tests on ports of the system's choice; what they answer is others' business.
import { once } from 'node:events'
import type { Server } from 'node:http'
import type { AddressInfo } from 'node:net'

/** @returns the port */
export async function listen(server: Server, address: string): Promise<number> {
  server.listen(0, address)
  await once(server, 'listening')
  return (server.address() as AddressInfo).port
}

/** Cuts the connections that are still open. */
export async function close(server: Server): Promise<void> {
  const closed = once(server, 'close')
  server.close()
  server.closeAllConnections()
  await closed
}

// A TCP relay on loopback that can turn into a black hole, as a host does that loses its power or its route; it knows no protocol.
import { once } from 'node:events'
import { connect, createServer, type AddressInfo, type Socket } from 'node:net'

export interface TcpRelay {
  readonly port: number
  /** All so far. */
  readonly accepted: number
  /** Connections of clients that are open. */
  readonly open: number
  /** Bytes that came from clients, swallowed ones included. */
  readonly fromClients: number
  /** Bytes that went back to clients. */
  readonly toClients: number
  /** From now on the present connections carry nothing in either direction, the end of one included, and stay open. */
  swallow(): void
  close(): Promise<void>
}

export async function startTcpRelay(target: { readonly host: string; readonly port: number }): Promise<TcpRelay> {
  const clients = new Set<Socket>()
  const carriers = new Set<{ carries: boolean }>()
  const sockets = new Set<Socket>()
  const count = { accepted: 0, fromClients: 0, toClients: 0 }
  const listener = createServer({ noDelay: true, allowHalfOpen: true }, (client) => {
    count.accepted++
    const upstream = connect({ ...target, noDelay: true, allowHalfOpen: true })
    const carrier = { carries: true }
    carriers.add(carrier)
    clients.add(client)
    for (const socket of [client, upstream]) {
      sockets.add(socket)
      // What an end means is told by its close.
      socket.on('error', () => undefined)
    }
    client.on('data', (bytes: Buffer) => {
      count.fromClients += bytes.length
      if (carrier.carries) upstream.write(bytes)
    })
    upstream.on('data', (bytes: Buffer) => {
      if (!carrier.carries) return
      count.toClients += bytes.length
      client.write(bytes)
    })
    client.on('end', () => {
      if (carrier.carries) upstream.end()
      else client.destroy()
    })
    upstream.on('end', () => carrier.carries && client.end())
    client.on('close', () => {
      clients.delete(client)
      if (carrier.carries) upstream.destroy()
    })
    upstream.on('close', () => carrier.carries && client.destroy())
  })
  listener.listen(0, '127.0.0.1')
  await once(listener, 'listening')
  return {
    port: (listener.address() as AddressInfo).port,
    get accepted() {
      return count.accepted
    },
    get open() {
      return clients.size
    },
    get fromClients() {
      return count.fromClients
    },
    get toClients() {
      return count.toClients
    },
    swallow: () => {
      for (const carrier of carriers) carrier.carries = false
    },
    close: async () => {
      const closed = once(listener, 'close')
      listener.close()
      for (const socket of sockets) socket.destroy()
      await closed
    },
  }
}

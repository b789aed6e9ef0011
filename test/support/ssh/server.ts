// A real SSH server on loopback that lets one user in by key and answers streamlocal forwards; it has no shell.
import { once } from 'node:events'
import { createServer, type AddressInfo, type Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import ssh2, { type AuthContext, type ServerConfig } from 'ssh2'
import { ForwardedStream } from '../../../src/wire/ssh/forwarded-stream.ts'

export interface TestSshServerOptions {
  /** Private key texts. */
  readonly hostKeys: readonly string[]
  readonly user: string
  /** Public keys in SSH wire form. */
  readonly authorizedKeys: readonly Buffer[]
  /** Connects a forward, or refuses it by giving undefined; a promise that stays open leaves it unanswered. */
  readonly onForward: (path: string) => ForwardTarget | undefined | Promise<ForwardTarget | undefined>
  /** Loopback address to listen on; default 127.0.0.1. */
  readonly host?: string
  /** Default 0: any free port. */
  readonly port?: number
  /** Software version in the banner. */
  readonly ident?: string
  readonly algorithms?: ServerConfig['algorithms']
}

export type ForwardTarget = (stream: Duplex) => void

export interface TestSshServer {
  readonly host: string
  readonly port: number
  /** Open TCP connections. */
  connections(): number
  /** Resets every connection, as a host that goes away does. */
  cut(): void
  /** Stops reading from and answering every present connection, without closing any. */
  freeze(): void
  /** Asks every client for new session keys. */
  rekey(): void
  close(): Promise<void>
}

export async function startTestSshServer(options: TestSshServerOptions): Promise<TestSshServer> {
  const sockets = new Set<Socket>()
  const clients = new Set<{ rekey(): void }>()
  const server = new ssh2.Server(
    {
      hostKeys: [...options.hostKeys],
      ...(options.ident === undefined ? {} : { ident: options.ident }),
      ...(options.algorithms === undefined ? {} : { algorithms: options.algorithms }),
    },
    (client) => {
      clients.add(client)
      const streams = new Set<ForwardedStream>()
      let alive = true
      const onEnd = () => {
        alive = false
        clients.delete(client)
        for (const stream of streams) stream.destroy()
      }
      // An error is a client that vanished in the middle of a packet; its socket is closed all the same.
      client.on('end', onEnd).on('close', onEnd).on('error', onEnd)
      client.on('authentication', (context) => {
        if (mayEnter(context, options)) context.accept()
        else context.reject(['publickey'])
      })
      client.on('openssh.streamlocal', (accept, reject, info) => {
        void Promise.resolve(options.onForward(info.socketPath)).then((target) => {
          if (target === undefined) reject()
          else if (alive) {
            const stream = new ForwardedStream(accept(), () => alive)
            streams.add(stream)
            stream.on('close', () => streams.delete(stream))
            // What a stream's user does not hear of ends with the stream.
            stream.on('error', () => undefined)
            target(stream)
          }
        })
      })
    },
  )
  const listener = createServer({ noDelay: true }, (socket) => {
    sockets.add(socket)
    socket.on('close', () => sockets.delete(socket))
    server.injectSocket(socket)
  })
  listener.listen(options.port ?? 0, options.host ?? '127.0.0.1')
  await once(listener, 'listening')
  const { address, port } = listener.address() as AddressInfo
  return {
    host: address,
    port,
    connections: () => sockets.size,
    cut: () => {
      for (const socket of sockets) socket.resetAndDestroy()
    },
    freeze: () => {
      for (const socket of sockets) socket.removeAllListeners('data').pause()
    },
    rekey: () => {
      for (const client of clients) client.rekey()
    },
    close: async () => {
      const closed = once(listener, 'close')
      listener.close()
      for (const socket of sockets) socket.destroy()
      await closed
    },
  }
}

function mayEnter(context: AuthContext, { user, authorizedKeys }: TestSshServerOptions): boolean {
  if (context.username !== user || context.method !== 'publickey') return false
  const known = authorizedKeys.find((key) => key.equals(context.key.data))
  if (known === undefined) return false
  const { signature, blob } = context
  // Without a signature the client only asks whether the key would do.
  if (signature === undefined || blob === undefined) return true
  const key = ssh2.utils.parseKey(known)
  if (key instanceof Error) return false
  const verified: unknown = key.verify(blob, signature, context.hashAlgo)
  return verified === true
}

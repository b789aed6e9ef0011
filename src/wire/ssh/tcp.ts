// Opens the TCP connection under an SSH connection; the dialer's seam for tests and simulations.
import { connect as netConnect, type Socket } from 'node:net'
import { abortReason } from '../../lib/clock.ts'

/** Resolves with a connected socket; rejects with the socket's error, or with the signal's reason. */
export type TcpConnect = (host: string, port: number, signal: AbortSignal) => Promise<Socket>

/** The machine's own network. */
export const tcpConnect: TcpConnect = (host, port, signal) =>
  new Promise((resolve, reject) => {
    if (signal.aborted) {
      reject(abortReason(signal))
      return
    }
    const socket = netConnect({ host, port, noDelay: true })
    const settle = () => {
      signal.removeEventListener('abort', onAbort)
      socket.off('connect', onConnect)
      socket.off('error', onError)
    }
    const onAbort = () => {
      settle()
      // A refused connection may still be reported after the abort; nobody listens for it any more.
      socket.on('error', () => undefined)
      socket.destroy()
      reject(abortReason(signal))
    }
    const onConnect = () => {
      settle()
      resolve(socket)
    }
    const onError = (error: Error) => {
      settle()
      reject(error)
    }
    signal.addEventListener('abort', onAbort, { once: true })
    socket.on('connect', onConnect)
    socket.on('error', onError)
  })

/** The message of a failed connect; where every address of a name failed, node leaves the outer message empty. */
export function connectFailure(error: Error): string {
  if (error instanceof AggregateError) {
    const messages = error.errors.map((inner: unknown) => (inner instanceof Error ? inner.message : String(inner)))
    return [...new Set(messages)].join(', ')
  }
  return error.message
}

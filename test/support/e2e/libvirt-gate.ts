// Stands between the operator and libvirtd on a real host and holds back calls to order, so that a test can stop the world
// between two of them. It forwards everything else unchanged and knows no operator.
import { once } from 'node:events'
import { readFile, rm } from 'node:fs/promises'
import { createConnection, createServer, type Socket } from 'node:net'
import { dirname, join } from 'node:path'
import { Transform } from 'node:stream'
import { procedureName } from '../../../src/wire/libvirt/codec.ts'
import { encodeFrame, FrameDecoder, MessageType, type Frame } from '../../../src/wire/libvirt/frame.ts'
import type { ProcedureName } from '../../../src/wire/libvirt/protocol.gen.ts'
import type { LibvirtHost } from '../libvirt-host.ts'

export interface LibvirtGate {
  /** The gate's socket as the host names it, for `hosts[].socket`. */
  readonly socketPath: string
  /**
   * From now on holds back every call of the procedure whose arguments contain `text`; resolves when there is one. A call
   * that is held when its connection ends is never made.
   */
  hold(procedure: ProcedureName, text?: string): Promise<unknown>
  /** Holds back no further call. Those that are held stay so: whoever made them is to be killed. */
  open(): void
  close(): Promise<void>
}

interface Hold {
  readonly procedure: ProcedureName
  readonly text: string
  readonly reached: () => void
}

export async function startLibvirtGate(host: LibvirtHost): Promise<LibvirtGate> {
  // The pool's parent is a folder that both sides see; a unix socket in it is the same one for both.
  const socketName = 'gate.sock'
  const outside = join(dirname(host.poolDirOutside), socketName)
  const daemonPath = await seenFromOutside(host, host.socketPath)
  let holds: Hold[] = []
  const sockets = new Set<Socket>()

  const isHeld = (frame: Frame): boolean => {
    if (frame.type !== MessageType.CALL) return false
    const procedure = procedureName(frame.program, frame.procedure)
    const hold = holds.find((one) => one.procedure === procedure && frame.payload.includes(one.text))
    hold?.reached()
    return hold !== undefined
  }
  const server = createServer((client) => {
    const daemon = createConnection(daemonPath)
    for (const [socket, other] of [
      [client, daemon],
      [daemon, client],
    ] as const) {
      sockets.add(socket)
      // The end of one side is the end of the other; what the error was is seen by whoever spoke.
      socket.on('error', () => other.destroy())
      socket.on('close', () => {
        sockets.delete(socket)
        other.destroy()
      })
    }
    client.pipe(framesExcept(isHeld)).pipe(daemon)
    daemon.pipe(client)
  })
  await rm(outside, { force: true })
  server.listen(outside)
  await once(server, 'listening')

  return {
    socketPath: join(dirname(host.poolDir), socketName),
    hold: (procedure, text = '') => {
      const { promise, resolve } = Promise.withResolvers<undefined>()
      holds.push({ procedure, text, reached: () => resolve(undefined) })
      return promise
    },
    open: () => {
      holds = []
    },
    close: async () => {
      const closed = once(server, 'close')
      server.close()
      for (const socket of sockets) socket.destroy()
      await closed
    },
  }
}

/** A path of the host, by way of the root folder of its first process, whose number is in the file `init` beside the logs. */
async function seenFromOutside(host: LibvirtHost, path: string): Promise<string> {
  const [pid] = (await readFile(join(dirname(host.logDir), 'init'), 'utf8')).split(' ')
  return join('/proc', pid ?? '', 'root', path.replace(/^\/var\/run\//, '/run/'))
}

function framesExcept(isHeld: (frame: Frame) => boolean): Transform {
  const decoder = new FrameDecoder()
  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      decoder.push(chunk, (frame) => {
        if (!isHeld(frame)) this.push(encodeFrame(frame, frame.payload))
      })
      done()
    },
  })
}

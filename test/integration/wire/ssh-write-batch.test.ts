// What leaves in one turn of the event loop leaves together: shown by the pieces in which it comes in at the other end of a socket.
import { once } from 'node:events'
import { createServer, type AddressInfo, type Socket } from 'node:net'
import { afterEach, expect, it } from 'vitest'
import { tcpConnect } from '../../../src/wire/ssh/tcp.ts'
import { WriteBatch } from '../../../src/wire/ssh/write-batch.ts'

const ends: (() => void)[] = []
afterEach(() => {
  for (const end of ends.splice(0)) end()
})

async function pair(): Promise<{ client: Socket; server: Socket }> {
  const listener = createServer().listen(0, '127.0.0.1')
  await once(listener, 'listening')
  const accepted = once(listener, 'connection') as Promise<[Socket]>
  const { port } = listener.address() as AddressInfo
  const client = await tcpConnect('127.0.0.1', port, new AbortController().signal)
  const [server] = await accepted
  ends.push(() => {
    client.destroy()
    server.destroy()
    listener.close()
  })
  return { client, server }
}

/** Writes that reached the kernel, as buffers in each. */
function countSystemCalls(socket: Socket): number[] {
  const calls: number[] = []
  const write = socket._write.bind(socket)
  const writev = socket._writev?.bind(socket)
  socket._write = (chunk: Buffer, encoding, callback) => {
    calls.push(1)
    write(chunk, encoding, callback)
  }
  socket._writev = (chunks, callback) => {
    calls.push(chunks.length)
    writev?.(chunks, callback)
  }
  return calls
}

it('joins the writes of a turn that was begun, and nothing waits beyond it', async () => {
  const { client, server } = await pair()
  const calls = countSystemCalls(client)
  const batch = new WriteBatch(client)
  batch.begin()
  batch.begin()
  for (const text of ['length', 'body', 'tag']) client.write(text)
  const [received] = (await once(server, 'data')) as [Buffer]
  expect(received.toString()).toBe('lengthbodytag')
  expect(calls).toEqual([3])
  client.write('alone')
  expect(((await once(server, 'data')) as [Buffer])[0].toString()).toBe('alone')
  batch.begin()
  client.write('a')
  client.write('b')
  expect(((await once(server, 'data')) as [Buffer])[0].toString()).toBe('ab')
  expect(calls).toEqual([3, 1, 2])
})

it('joins what is written in answer to data', async () => {
  const { client, server } = await pair()
  const calls = countSystemCalls(client)
  client.on('data', () => {
    client.write('one')
    client.write('two')
  })
  // Later than the listener, as ssh2's is earlier; it acts first all the same.
  const batch = new WriteBatch(client)
  expect(batch).toBeDefined()
  server.write('?')
  expect(((await once(server, 'data')) as [Buffer])[0].toString()).toBe('onetwo')
  expect(calls).toEqual([2])
})

it('lets a socket end with what was written before', async () => {
  const { client, server } = await pair()
  const batch = new WriteBatch(client)
  batch.begin()
  client.write('last ')
  client.end('words')
  const parts: Buffer[] = []
  for await (const part of server) parts.push(part as Buffer)
  expect(Buffer.concat(parts).toString()).toBe('last words')
})

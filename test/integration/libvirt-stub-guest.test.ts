// The stub's VMs: what a boot finds on its seed, what the agent tells and when, and that the proxy is a real one.
import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { createServer as createHttpServer } from 'node:http'
import { connect, createServer, type AddressInfo, type Server } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { ErrorCode } from '../../src/wire/libvirt/error-codes.ts'
import type { Domain } from '../../src/wire/libvirt/protocol.gen.ts'
import { domainXml, domainUuid } from '../../src/provider/libvirt/domain-xml.ts'
import { buildSeed } from '../../src/provider/nocloud/seed.ts'
import { canRun, programAvailable } from '../support/e2e/availability.ts'
import { getThrough } from '../support/e2e/through-proxy.ts'
import { eventually } from '../support/eventually.ts'
import { refusal } from '../support/libvirt-peer/peer.ts'
import { callOptions, StubClient } from '../support/libvirt-stub/client.ts'
import { startLibvirtStub, type LibvirtStub } from '../support/libvirt-stub/stub.ts'
import type { DomainView } from '../support/libvirt-stub/views.ts'

const budgetMs = 60_000
const mac = '52:54:00:0a:0b:0c'
const images = '/var/lib/libvirt/images'

let stub: LibvirtStub
let client: StubClient
let servers: Server[] = []

beforeEach(async () => {
  stub = await startLibvirtStub()
  client = await StubClient.connect(stub)
})
afterEach(async () => {
  for (const server of servers) server.close()
  servers = []
  await client.close()
  await stub.close()
})

function seed(userData = '#cloud-config\n'): Buffer {
  return buildSeed({
    owner: { installation: 'test', uid: 'u-1' },
    instanceName: 'vm',
    userData: Buffer.from(userData),
    createdAt: new Date(0),
    installGuestAgent: true,
  })
}

/** A domain as the product defines one, on volumes that are there. */
async function define(name: string, seedContent: Buffer): Promise<Domain> {
  await client.createVolume(`${name}.qcow2`, 2 ** 30, 'qcow2')
  await client.putVolume(`${name}-seed.iso`, seedContent)
  return await client.define(
    domainXml({
      name,
      uuid: domainUuid(name),
      mac,
      vcpus: 1,
      memoryMiB: 256,
      firmware: 'uefi',
      nic: { kind: 'bridge', bridge: 'br0' },
      overlayPath: `${images}/${name}.qcow2`,
      seedPath: `${images}/${name}-seed.iso`,
      markNamespace: 'https://example.org/mark',
      mark: { uid: 'u-1', installation: 'test' },
    }),
  )
}

async function addressed(name: string): Promise<DomainView & { address: string }> {
  return await eventually(`an address of ${name}`, budgetMs, () => {
    const view = stub.domain(name)
    return Promise.resolve(view?.address === undefined ? undefined : { ...view, address: view.address })
  })
}

async function listen(server: Server): Promise<number> {
  servers.push(server.listen(0, '127.0.0.1'))
  await once(server, 'listening')
  return (server.address() as AddressInfo).port
}

async function accepts(host: string, port: number): Promise<boolean> {
  const socket = connect(port, host)
  try {
    await once(socket, 'connect')
    return true
  } catch {
    return false
  } finally {
    socket.destroy()
  }
}

describe('a VM with a seed', () => {
  it('serves as a forward proxy on an address of its own until it is ended', async () => {
    const page = await listen(
      createHttpServer((request, response) => response.end(`hello ${request.headers.via ?? ''}`)),
    )
    const dom = await define('vm', seed())
    expect(stub.domain('vm')?.state).toBe('shutoff')
    await client.start(dom)
    const { address, proxy, userData } = await addressed('vm')
    expect(address).toMatch(/^127\.0\.[1-9]\d*\.\d+$/)
    expect(proxy).toMatchObject({ host: address, port: 3128 })
    expect(userData?.toString()).toBe('#cloud-config\n')

    const got = await getThrough(`http://${address}:3128`, `http://127.0.0.1:${page}/x`)
    expect(got).toMatchObject({ status: 200, body: 'hello 1.1 libvirt-stub', via: '1.1 libvirt-stub' })
    expect(stub.domain('vm')?.proxy?.requests).toBe(1)

    await client.libvirt.call('DOMAIN_DESTROY', { dom }, callOptions)
    await eventually('the proxy is gone', budgetMs, async () => !(await accepts(address, 3128)) || undefined)
    expect(stub.domain('vm')).toMatchObject({ state: 'shutoff', address: undefined, proxy: undefined })
  })

  it('tunnels by CONNECT, and says when the target does not answer', async () => {
    const echo = await listen(createServer((socket) => socket.pipe(socket)))
    await client.start(await define('vm', seed()))
    const { address } = await addressed('vm')

    const socket = connect(3128, address)
    socket.write(`CONNECT 127.0.0.1:${echo} HTTP/1.1\r\nHost: 127.0.0.1:${echo}\r\n\r\n`)
    const [answer] = (await once(socket, 'data')) as [Buffer]
    expect(answer.toString()).toBe('HTTP/1.1 200 Connection established\r\n\r\n')
    socket.end('through the tunnel')
    expect(await text(socket)).toBe('through the tunnel')

    const closed = createServer()
    const nobody = await listen(closed)
    closed.close()
    await once(closed, 'close')
    const refused = connect(3128, address)
    refused.write(`CONNECT 127.0.0.1:${nobody} HTTP/1.1\r\nHost: x\r\n\r\n`)
    expect(await text(refused)).toContain('502 Bad Gateway')
    expect((await getThrough(`http://${address}:3128`, `http://127.0.0.1:${nobody}/`)).status).toBe(502)
  })

  it('cuts its tunnels when the plug is pulled', async () => {
    const echo = await listen(createServer((socket) => socket.pipe(socket).on('error', () => undefined)))
    const dom = await define('vm', seed())
    await client.start(dom)
    const { address } = await addressed('vm')
    const socket = connect(3128, address)
    socket.on('error', () => undefined)
    socket.write(`CONNECT 127.0.0.1:${echo} HTTP/1.1\r\nHost: x\r\n\r\n`)
    await once(socket, 'data')
    const closed = once(socket, 'close')
    await client.libvirt.call('DOMAIN_DESTROY', { dom }, callOptions)
    await closed
  })

  it('keeps its address over a stop and a start, and gives every VM another', async () => {
    const dom = await define('vm', seed())
    await client.start(dom)
    const { address } = await addressed('vm')
    await client.libvirt.call('DOMAIN_DESTROY', { dom }, callOptions)
    await eventually('the proxy is gone', budgetMs, async () => !(await accepts(address, 3128)) || undefined)
    await client.start(dom)
    expect((await addressed('vm')).address).toBe(address)
    const other = await startLibvirtStub()
    await other.close()
  })

  it.skipIf(!canRun('seeds made by genisoimage', [programAvailable('genisoimage', 'genisoimage')]))(
    'reads a seed that genisoimage made',
    async () => {
      const folder = await mkdtemp(join(tmpdir(), 'seed-'))
      const userData = 'a'.repeat(5000)
      await writeFile(join(folder, 'user-data'), userData)
      await writeFile(join(folder, 'meta-data'), 'instance-id: x\n')
      const image = join(folder, 'seed.iso')
      execFileSync('genisoimage', [
        '-quiet',
        '-output',
        image,
        '-volid',
        'cidata',
        '-joliet',
        '-rock',
        `${folder}/user-data`,
        `${folder}/meta-data`,
      ])
      await client.start(await define('vm', await readFile(image)))
      await rm(folder, { recursive: true })
      expect((await addressed('vm')).userData?.toString()).toBe(userData)
    },
  )
})

describe('a VM without a seed that can be read', () => {
  it.each([
    ['is cut off', () => seed('x'.repeat(9000)).subarray(0, 45_000)],
    ['is something else', () => Buffer.alloc(100_000, 'no image')],
    ['has another label', () => Buffer.from(seed().toString('latin1').replace('cidata', 'config'), 'latin1')],
    ['is empty', () => Buffer.alloc(1)],
    ['has no user-data in it', () => seed('')],
  ])('has an agent and an address, and no proxy: the seed %s', async (_what, make) => {
    await client.start(await define('vm', make()))
    const view = await addressed('vm')
    expect(view.proxy).toBeUndefined()
    expect(await accepts(view.address, 3128)).toBe(false)
  })
})

describe('the agent', () => {
  it('is not there before the boot is over, then knows lo first, then the NIC by its MAC', async () => {
    stub.knobs.bootDelayMs = 500
    stub.knobs.addressDelayMs = 1500
    const dom = await define('vm', seed())
    await client.start(dom)
    const early = await refusal(client.addresses(dom, 1))
    expect(early.code).toBe(ErrorCode.AGENT_UNRESPONSIVE)
    expect(early.message).toBe('Guest agent is not responding: QEMU guest agent is not connected')

    const first = await eventually('the agent', budgetMs, () => client.addresses(dom, 1))
    expect(first[0]).toMatchObject({ name: 'lo', addrs: [{ addr: '127.0.0.1' }, { addr: '::1' }] })
    const { address } = await addressed('vm')
    const [lo, nic, ...more] = await client.addresses(dom, 1)
    expect(more).toEqual([])
    expect(lo?.name).toBe('lo')
    expect(nic).toMatchObject({ name: 'eth0', hwaddr: mac })
    expect(nic?.addrs[0]).toMatchObject({ type: 0, addr: address })
    expect(nic?.addrs[1]).toEqual({ type: 1, addr: 'fe80::5054:ff:fe0a:b0c', prefix: 64 })
  })

  it('tells of itself in events', async () => {
    const seen: string[] = []
    await client.libvirt.registerDomainEvents('DOMAIN_EVENT_CALLBACK_AGENT_LIFECYCLE', callOptions)
    client.libvirt.onEvent((event) => {
      if (event.kind !== 'DOMAIN_EVENT_CALLBACK_AGENT_LIFECYCLE') return
      seen.push(`${event.message.state} ${event.message.reason}`)
    })
    await client.start(await define('vm', seed()))
    await addressed('vm')
    await eventually('both events', budgetMs, () => Promise.resolve(seen.length >= 2 || undefined))
    expect(seen).toEqual(['2 1', '1 2'])
  })

  it('blocks for five seconds when frozen, and then says so', async () => {
    const dom = await define('vm', seed())
    await client.start(dom)
    await addressed('vm')
    stub.knobs.frozenAgents.add('vm')
    const began = performance.now()
    const error = await refusal(client.addresses(dom, 1))
    expect(performance.now() - began).toBeGreaterThan(4900)
    expect(error.message).toBe('Guest agent is not responding: Guest agent not available for now')
  })

  it('has the host’s ARP table beside it, which may be broken', async () => {
    const dom = await define('vm', seed())
    await client.start(dom)
    const { address } = await addressed('vm')
    expect(await client.addresses(dom, 2)).toEqual([
      { name: 'vnet0', hwaddr: mac, addrs: [{ type: 0, addr: address, prefix: 0 }] },
    ])
    stub.knobs.arpBroken = true
    const error = await refusal(client.addresses(dom, 2))
    expect(error).toMatchObject({ code: ErrorCode.INTERNAL_ERROR, message: 'internal error: wrong nlmsg len' })
  })
})

it('a VM that shuts itself down is off, with the events of it', async () => {
  const seen: string[] = []
  await client.libvirt.registerDomainEvents('DOMAIN_EVENT_CALLBACK_LIFECYCLE', callOptions)
  client.libvirt.onEvent((event) => {
    if (event.kind === 'DOMAIN_EVENT_CALLBACK_LIFECYCLE')
      seen.push(`${event.message.msg.event} ${event.message.msg.detail}`)
  })
  const dom = await define('vm', seed())
  await client.start(dom)
  await addressed('vm')
  await client.libvirt.call('DOMAIN_SHUTDOWN', { dom }, callOptions)
  await eventually('it is off', budgetMs, () => Promise.resolve(stub.domain('vm')?.state === 'shutoff' || undefined))
  expect(await client.libvirt.call('DOMAIN_GET_STATE', { dom, flags: 0 }, callOptions)).toEqual({ state: 5, reason: 1 })
  expect(seen).toEqual(['0 0', '4 0', '2 0', '6 1', '5 0'])
})

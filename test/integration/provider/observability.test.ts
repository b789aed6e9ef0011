// What both types write to the log at each level, and the spans they make, over real SSH and RPC.
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { createLogger, type LogLevel } from '../../../src/observe/logger.ts'
import type { Provider } from '../../../src/provider/contract.ts'
import { createCanary } from '../../support/e2e/canary.ts'
import { remoteError } from '../../support/libvirt-stub/model/errors.ts'
import { Secret } from '../../../src/lib/secret.ts'
import { recordSpans, type RecordedSpan, type SpanRecorder } from '../../support/span-recorder.ts'
import { context, createRequest, deleteRequest, failure, imageBytes, startWorld, type World } from './stub-world.ts'

type Line = Readonly<Record<string, unknown>>

const { instanceName: name } = createRequest()
const id = `hosts/lab/domains/${name}`
const number = expect.any(Number) as number
const types = [
  { type: 'kvm2', subject: 'kvm2', callLogger: 'kvm2', rpc: (method: string) => method },
  {
    type: 'kvm',
    subject: 'KVM',
    callLogger: 'kvm.libvirt',
    rpc: (method: string) => `vir${method.replace('EventCallback', 'Event')}`,
  },
] as const

let world: World
let recorder: SpanRecorder
beforeEach(async () => {
  world = await startWorld()
  recorder = recordSpans()
})
afterEach(async () => {
  recorder[Symbol.dispose]()
  await world[Symbol.asyncDispose]()
})

/** @returns the provider, and what it said since this was asked last */
function listen(type: 'kvm' | 'kvm2', level: LogLevel, block: object = {}) {
  const lines: Line[] = []
  const log = createLogger({ level, destination: { write: (line) => void lines.push(JSON.parse(line) as Line) } })
  return { provider: world.provider(block, { log }, type), take: () => lines.splice(0) }
}

const isCall = ({ msg }: Line) => msg === 'libvirt call'
const withoutTime = (lines: readonly Line[]) =>
  lines.map((line) =>
    Object.fromEntries(Object.entries(line).filter(([key]) => !['time', 'traceID', 'spanID'].includes(key))),
  )

function steps(provider: Provider): readonly (readonly [operation: string, () => Promise<unknown>])[] {
  return [
    ['create', () => provider.create(createRequest(), context())],
    ['create', () => provider.create(createRequest('b'), context())],
    ['create', () => provider.create(createRequest('b'), context())],
    ['get', () => provider.get(id, context())],
    ['list', () => provider.list(context())],
    ['delete', () => provider.delete(deleteRequest(), context())],
    ['get', () => failure(provider.get(id, context()))],
    ['check', () => provider.check(context())],
  ]
}

describe.each(types)('the log of $type', ({ type, subject, callLogger, rpc }) => {
  const own = { logger: type, provider: 'kvm2-lab', host: 'lab' }
  const debug = { level: 'debug', ...own }
  const connected = () => ({
    ...{ ...debug, msg: 'libvirt host connected' },
    ...{ address: world.stub.address, user: world.stub.user, durationMs: number },
  })
  const volume = 'base-tiny.qcow2'
  const made = (one: string) => {
    const about = { ...debug, name: createRequest(one).instanceName }
    return [
      { ...about, msg: 'seed volume uploaded', bytes: number },
      { ...about, msg: 'overlay volume created', base: volume },
      { ...about, msg: 'domain defined', uid: `uid-${one}`, firmware: 'uefi' },
      { ...about, msg: 'domain started' },
      { ...about, msg: `${subject} domain ensured running`, id: `hosts/lab/domains/${about.name}` },
    ]
  }

  it('has one line for every operation and step at debug', async () => {
    const { provider, take } = listen(type, 'debug')
    const said: unknown[] = []
    for (const [, step] of steps(provider)) {
      await step()
      said.push(withoutTime(take().filter((line) => !isCall(line))))
    }
    const fetched = { ...own, level: 'info', volume, sizeBytes: imageBytes.byteLength }
    const { ip } = await world
      .provider({}, {}, type)
      .get(`hosts/lab/domains/${createRequest('b').instanceName}`, context())
    const b = { ...debug, name: createRequest('b').instanceName }
    expect(said).toEqual([
      [
        connected(),
        { ...fetched, msg: 'fetching base image into host pool', url: 'tiny' },
        // The transfer has a connection of its own.
        connected(),
        {
          ...fetched,
          msg: 'base image cached',
          durationMs: number,
          digest: expect.stringMatching(/^[0-9a-f]{64}$/) as string,
        },
        ...made('a'),
      ],
      made('b'),
      [
        { ...b, msg: `${subject} domain already defined` },
        { ...b, msg: `${subject} domain ensured running`, id: `hosts/lab/domains/${b.name}` },
      ],
      // The guest agents have one too.
      [
        connected(),
        {
          ...debug,
          name,
          msg: `${subject} domain fetched`,
          state: 'running',
          ip: expect.any(String) as string,
          uid: 'uid-a',
        },
      ],
      [{ level: 'debug', logger: type, provider: 'kvm2-lab', msg: `${subject} domains listed`, hosts: 1, managed: 2 }],
      [{ ...debug, name, msg: `${subject} domain deleted`, found: true }],
      [
        { ...debug, name, msg: `${subject} domain not found` },
        {
          ...debug,
          name,
          msg: `${subject} backend call failed`,
          op: 'get',
          error: expect.stringContaining(name) as string,
        },
      ],
      [connected(), { ...debug, msg: `${subject} host checked`, ready: true, reason: 'Reachable', latencyMs: number }],
    ])
    expect(ip).toBeDefined()
  })

  it('has at info an image that came, and nothing of what goes its way', async () => {
    const { provider, take } = listen(type, 'info')
    const said: unknown[] = []
    for (const [, step] of steps(provider)) {
      await step()
      said.push(take().map(({ level, msg }) => [level, msg]))
    }
    const image = ['fetching base image into host pool', 'base image cached'].map((msg) => ['info', msg])
    expect(said).toEqual([image, [], [], [], [], [], [], []])
  })

  it('has one line for every call, written inside the span of that call, under the operation', async () => {
    const { provider, take } = listen(type, 'debug')
    for (const [operation, step] of steps(provider)) {
      const before = recorder.spans.length
      await step()
      const spans = recorder.spans.slice(before)
      const calls = spans.filter((span) => new RegExp(`^${type}\\.[A-Z]`).test(span.name))
      const byID = new Map(calls.map((span) => [span.spanID, span]))
      const lines = take()
      const told = lines.filter(isCall)
      expect(told.length).toBeGreaterThan(0)
      expect(new Set(told.map(({ spanID }) => spanID))).toEqual(new Set(byID.keys()))
      expect(told).toHaveLength(calls.length)
      for (const line of told) {
        const span = byID.get(String(line['spanID']))
        const { domain, pool, volume: of } = line
        expect(line).toMatchObject({
          ...{ level: 'debug', logger: callLogger, provider: 'kvm2-lab', host: 'lab', durationMs: number },
          ...{ rpc: rpc(span?.name.slice(type.length + 1) ?? ''), traceID: span?.traceID },
        })
        expect(span?.attributes).toMatchObject({
          [`${type}.host`]: 'lab',
          ...(domain === undefined ? {} : { [`${type}.domain`]: domain }),
          ...(pool === undefined ? {} : { [`${type}.pool`]: pool }),
          ...(of === undefined ? {} : { [`${type}.volume`]: of }),
        })
        expect([span?.error, span?.attributes[`${type}.libvirt_code`]]).toEqual([line['error'], line['libvirtCode']])
      }
      expect(new Set(lines.map(({ traceID }) => traceID))).toEqual(new Set([spans[0]?.traceID]))
      for (const span of spans.slice(1)) {
        expect([span.name, span.kind, span.ended, rootOf(span).name]).toEqual([
          ...[span.name, 'client', true, `provider.${operation}`],
        ])
      }
    }
  })

  it("names libvirt's errors", async () => {
    const { provider, take } = listen(type, 'debug')
    await failure(provider.get(id, context()))
    world.stub.knobs.failNext('CONNECT_GET_ALL_DOMAIN_STATS', remoteError(27, 'XML error: odd'))
    await failure(provider.list(context()))
    expect(take().filter((line) => isCall(line) && 'error' in line)).toMatchObject([
      { rpc: rpc('DomainLookupByUUID'), libvirtCode: 42, libvirtError: 'ErrNoDomain' },
      { rpc: rpc('DomainLookupByName'), domain: name, libvirtCode: 42, libvirtError: 'ErrNoDomain' },
      { rpc: rpc('ConnectGetAllDomainStats'), error: 'XML error: odd', libvirtCode: 27, libvirtError: 'ErrXMLError' },
    ])
  })

  it('has documents and results at level 2 only, of which kvm has the short ones at debug', async () => {
    const keysAt = async (level: LogLevel) => {
      const { provider, take } = listen(type, level)
      for (const [, step] of steps(provider)) await step()
      await provider.delete(deleteRequest('b'), context())
      const told = take().filter((line) => isCall(line))
      const keys = new Map<unknown, Set<string>>()
      for (const line of told) {
        const known = keys.get(line['rpc']) ?? new Set()
        keys.set(line['rpc'], known)
        for (const key of Object.keys(line)) known.add(key)
      }
      return (method: string, ...wanted: string[]) => wanted.filter((key) => keys.get(rpc(method))?.has(key))
    }
    const low = await keysAt('trace')
    const high = await keysAt('debug')
    for (const [method, brief, full] of [
      ['DomainDefineXML', [], ['xml']],
      ['StorageVolCreateXML', [], ['xml']],
      ['DomainGetXMLDesc', [], ['xml']],
      ['DomainGetMetadata', [], ['metadata']],
      ['DomainInterfaceAddresses', ['interfaces'], ['addresses']],
      ['DomainGetState', ['state'], ['stateReason']],
      ['ConnectListAllDomains', [], ['names']],
      ['ConnectGetAllDomainStats', [], ['names']],
      ['StoragePoolGetInfo', ['state'], ['capacityBytes', 'availableBytes']],
      ['StorageVolGetPath', ['path'], []],
    ] as const) {
      const keys = [...brief, ...full]
      expect([method, low(method, ...keys)]).toEqual([method, keys])
      expect([method, high(method, ...keys)]).toEqual([method, type === 'kvm' ? brief : []])
    }
  })

  it('has at level 2 what a create was resolved to, the document, and every instance of a list', async () => {
    const { provider, take } = listen(type, 'trace')
    const userData = new Secret(Buffer.from('#cloud-config\n'))
    await provider.create(createRequest('a', { userData }), context())
    await provider.list(context())
    const lines = withoutTime(take()).filter((line) => !isCall(line) && line['level'] === 'trace')
    const about = { level: 'trace', ...own, name }
    expect(lines).toEqual([
      {
        ...{ ...about, msg: `${subject} create resolved`, pool: 'default', bridge: 'br0', machineType: 'small' },
        ...{ vcpus: 1, memoryMiB: 512, diskGiB: 1, image: volume, firmware: 'uefi', cloudInitBytes: 14 },
      },
      {
        ...about,
        msg: 'domain defined',
        uid: 'uid-a',
        firmware: 'uefi',
        xml: expect.stringContaining('<domain') as string,
      },
      expect.objectContaining({ ...about, msg: `${subject} listed instance`, providerID: id, state: 'running' }),
    ])
  })

  it.each<[string, () => object]>([
    ['credentials', () => ({ sshKeyFile: '/nonexistent/id' })],
    ['tcp', () => ({ hosts: [{ ...host(), address: '127.0.0.1:1' }] })],
    ['ssh', () => ({ hosts: [{ ...host(), user: 'nobody' }] })],
    ['socket', () => ({ hosts: [{ ...host(), socket: '/elsewhere' }] })],
  ])('says that a dial failed at stage %s', async (stage, block) => {
    const { provider, take } = listen(type, 'debug', block())
    // What is missing at the start is told then, loudly.
    const atStart = take()
    expect(atStart.every(({ level }) => level === 'warn')).toBe(true)
    const [health] = await provider.check(context())
    const lines = take()
    expect(withoutTime(lines)).toEqual([
      {
        ...{ ...debug, msg: 'libvirt host connect failed', stage, durationMs: number },
        ...{ address: health?.address, user: health?.details['user'], error: health?.message },
      },
      { ...debug, msg: `${subject} host checked`, ready: false, reason: health?.reason, latencyMs: number },
    ])
    const [check, dial] = recorder.spans
    expect(recorder.spans).toHaveLength(2)
    expect(lines[0]).toMatchObject({ traceID: check?.traceID, spanID: dial?.spanID })
    expect(dial).toMatchObject({ name: `${type}.dial`, kind: 'client', ended: true, error: health?.message })
    expect(dial?.parent).toBe(check)
  })

  it('says which domains a list leaves out, and why an image is fetched again', async () => {
    const { provider, take } = listen(type, 'debug')
    const other = world.provider({}, {}, type === 'kvm' ? 'kvm2' : 'kvm')
    await other.create(createRequest(), context())
    await provider.list(context())
    expect(withoutTime(take())).toContainEqual({ ...debug, name, msg: 'domain skipped', why: 'unmarked' })
    await other.delete(deleteRequest(), context())
    world.stub.host.pools.byName('default').volumes.get(`${volume}.sha256`)?.content.write(0, Buffer.alloc(64, 'x'))
    await provider.create(createRequest(), context())
    const again = withoutTime(take()).filter(({ msg }) => msg === 'base image is not whole')
    expect(again[0]).toEqual({
      ...debug,
      volume,
      msg: 'base image is not whole',
      why: expect.stringMatching(/./) as string,
    })
  })
})

describe.each(types)('spans of $type', ({ type }) => {
  it('have a dial and a download with their attributes, the URL by its host only', async () => {
    const url = new URL(world.images.url)
    url.search = 'token=x'
    const images = { tiny: { url: url.href, sha256: '0'.repeat(64) } }
    const { provider } = listen(type, 'info', { images })
    expect(await failure(provider.create(createRequest(), context()))).toMatchObject({ kind: 'permanent' })
    const [root] = recorder.spans
    const [dial] = recorder.spans.filter(({ name: one }) => one === `${type}.dial`)
    expect(dial).toMatchObject({ kind: 'client', parent: root, error: undefined, ended: true })
    expect(dial?.attributes).toEqual({
      ...{ [`${type}.host`]: 'lab', [`${type}.address`]: world.stub.address, [`${type}.user`]: world.stub.user },
    })
    const [download, ...more] = recorder.spans.filter(({ name: one }) => one === `${type}.download`)
    expect(more).toEqual([])
    expect(download).toMatchObject({ kind: 'client', parent: root, ended: true })
    expect(download?.error).toContain('0'.repeat(64))
    expect(download?.attributes).toEqual({
      [`${type}.host`]: 'lab',
      [`${type}.volume`]: 'base-tiny.qcow2',
      [`${type}.url_host`]: url.host,
      [`${type}.sha256_configured`]: true,
      [`${type}.bytes`]: imageBytes.byteLength,
    })
    expect(JSON.stringify(recorder.spans.map(({ attributes, error }) => [attributes, error]))).not.toContain('token')
  })
})

describe.each(types)('secrets of $type', ({ type }) => {
  it('stand in no line at level 2, no span and no error, whether all goes well or not', async () => {
    const canary = await createCanary({ 'the SSH key': world.stub.keyFile, known_hosts: world.stub.knownHostsFile })
    const { text } = canary
    const url = new URL(world.images.url)
    url.search = `token=${text}`
    const missing = new URL(`/missing.qcow2${url.search}`, url)
    const withPassword = new URL(missing)
    withPassword.username = 'user'
    withPassword.password = text
    const { provider, take } = listen(type, 'trace', {
      images: { tiny: { url: url.href }, gone: { url: missing.href } },
      vendorData: `#cloud-config\n# ${text}\n`,
    })
    const userData = new Secret(Buffer.from(`#cloud-config\n# ${text}\n`))
    const errors: Error[] = []
    for (const [, step] of steps(provider)) await step()
    await provider.create(createRequest('c', { userData }), context())
    await provider.check(context())
    await provider.leftovers(context())
    const server = world.images.answer
    world.images.answer = (_request, response) => response.writeHead(404).end()
    for (const image of ['gone', missing.href, withPassword.href]) {
      const placement = { machineType: 'small', image }
      errors.push(await failure(provider.create(createRequest('d', { userData, placement }), context())))
    }
    world.images.answer = server
    for (const procedure of ['STORAGE_VOL_UPLOAD', 'DOMAIN_DEFINE_XML'] as const) {
      world.stub.knobs.failNext(procedure, remoteError(1, 'internal error: odd'))
      errors.push(await failure(provider.create(createRequest('e', { userData }), context())))
    }
    world.stub.knobs.refuseForwarding = true
    world.stub.cutConnections()
    errors.push(await failure(provider.create(createRequest('f', { userData }), context())))
    const health = await provider.check(context())
    const lines = take()
    expect(lines.filter(isCall).length).toBeGreaterThan(50)
    expect(errors).toHaveLength(6)
    expect(
      canary.leaks([
        ['log', JSON.stringify([lines, world.lines])],
        ['spans', JSON.stringify(recorder.spans.map((span) => [span.name, span.attributes, span.error]))],
        ['errors', errors.map(chain).join('\n')],
        ['health', JSON.stringify(health)],
      ]),
    ).toEqual([])
  })
})

const host = () => ({ name: 'lab', address: world.stub.address, user: world.stub.user, bridge: 'br0' })

function rootOf(span: RecordedSpan): RecordedSpan {
  return span.parent === undefined ? span : rootOf(span.parent)
}

/** All that an error and its causes say. */
function chain(error: Error): string {
  const own = `${error.stack ?? ''} ${JSON.stringify(error)}`
  return error.cause instanceof Error ? `${own}\n${chain(error.cause)}` : own
}

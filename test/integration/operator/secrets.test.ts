// Secrets of every kind go through the whole operator, while it works and while it fails, and stand in nothing that it tells.
import { readFile } from 'node:fs/promises'
import { expect, it } from 'vitest'
import { findCondition } from '../../../src/api/conditions.ts'
import type { KubeClient } from '../../../src/kube/client.ts'
import { createLogger } from '../../../src/observe/logger.ts'
import { secretResource } from '../../../src/reconcile/resources.ts'
import { createCanary, type Canary, type Told } from '../../support/e2e/canary.ts'
import { startWitness } from '../../support/e2e/witness.ts'
import { remoteError } from '../../support/libvirt-stub/model/errors.ts'
import { startStubWorld, type StubWorld } from '../../support/stub-world.ts'
import { createProxy, deleteProxy, startOperator, untilGone, untilProxies, untilReady } from './world.ts'

const startMark = 'the operator begins'

interface Talk {
  readonly lines: string[]
  readonly canary: Canary
  told(): Told
}

it('tells no key, user-data or password while all goes well', async () => {
  await using world = await startStubWorld()
  await using closing = new AsyncDisposableStack()
  const { client, stub } = world
  const talk = await listen(world, closing)
  const cloudInit = `#cloud-config\n# ${talk.canary.text}\n`
  await createSecret(world, 'userdata', { 'user-data': cloudInit })
  await createSecret(world, 'login', { username: 'crawler', password: talk.canary.text })
  const credentialsSecretRef = { name: 'login' }

  await createProxy(client, 'inline', { cloudInit, credentialsSecretRef })
  await createProxy(client, 'by-secret', {
    cloudInitFrom: { secretKeyRef: { name: 'userdata', key: 'user-data' } },
    credentialsSecretRef,
  })
  for (const name of ['inline', 'by-secret']) {
    const { status } = await untilReady(client, name)
    const domain = stub.domain(status?.instanceName ?? '')
    expect(domain?.userData?.toString()).toBe(cloudInit)
  }
  const asked = world.api.requests.map(({ url }) => url)
  expect(asked).toEqual(
    expect.arrayContaining(['login', 'userdata'].map((name) => expect.stringMatching(`/secrets/${name}$`) as string)),
  )
  for (const name of ['inline', 'by-secret']) await deleteProxy(client, name)
  await untilGone(client)

  expect(talk.canary.leaks(talk.told())).toEqual([])
})

it('tells none while creates fail, a host is lost and a Secret is wrong', async () => {
  await using world = await startStubWorld()
  await using closing = new AsyncDisposableStack()
  const { client, stub, images } = world
  const talk = await listen(world, closing)
  const { text } = talk.canary
  const cloudInit = `#cloud-config\n# ${text}\n`
  const placement = { zone: 'kvm-1', machineType: 'small' }
  stub.knobs.failNext('DOMAIN_DEFINE_XML', remoteError(1, 'internal error: out of luck'))
  const missing = new URL(images.url('missing.qcow2'))
  // as signed URLs do
  missing.searchParams.set('token', text)

  await createProxy(client, 'first-fails', { cloudInit })
  await createProxy(client, 'no-image', { cloudInit, placement: { ...placement, image: missing.href } })
  await createSecret(world, 'login', { username: 'crawler', secret: text })
  await createProxy(client, 'no-password', { cloudInit, credentialsSecretRef: { name: 'login' } })
  await untilProvisioned(client, 'no-image', /its server answered 404/)
  await untilReady(client, 'first-fails')
  stub.knobs.refuseForwarding = true
  stub.cutConnections()
  await createProxy(client, 'host-lost', { cloudInit })
  await untilProvisioned(client, 'host-lost', /host kvm-1/)
  stub.knobs.refuseForwarding = false
  for (const name of ['first-fails', 'no-image', 'no-password', 'host-lost']) await deleteProxy(client, name)
  await untilGone(client)

  expect(talk.canary.leaks(talk.told())).toEqual([])
})

/** Starts an operator that says all it can, and writes down all that it says. */
async function listen(world: StubWorld, closing: AsyncDisposableStack): Promise<Talk> {
  const { api, client, stub } = world
  const canary = await createCanary({ 'the SSH key': stub.keyFile, known_hosts: stub.knownHostsFile })
  expect(canary.leaks([['itself', canary.text]])).not.toEqual([])
  const [, keyLine = ''] = (await readFile(stub.keyFile, 'utf8')).split('\n')
  expect(canary.leaks([['itself', keyLine]])).not.toEqual([])

  const lines: string[] = []
  const log = createLogger({ level: 'trace', destination: { write: (line: string) => lines.push(line) } })
  log.trace(startMark)
  expect(lines.join('')).toContain(startMark)
  const witness = closing.adopt(startWitness(client), (it) => it.stop())
  closing.adopt(await startOperator(world, log), (it) => it.stop())
  return {
    lines,
    canary,
    told: () => {
      expect(witness.proxies.length).toBeGreaterThan(0)
      const events = api.stored({ group: '', plural: 'events' })
      expect(events.length).toBeGreaterThan(0)
      expect(lines.filter((line) => line.includes('provider call')).length).toBeGreaterThan(0)
      return [
        ['log', lines.join('')],
        ['Events', JSON.stringify(events)],
        ['statuses', JSON.stringify(witness.proxies.map(({ object }) => object.status))],
        ['ProviderHealths', JSON.stringify(witness.healths)],
      ]
    },
  }
}

async function createSecret(
  { client }: StubWorld,
  name: string,
  stringData: Readonly<Record<string, string>>,
): Promise<void> {
  await client.create(secretResource, { metadata: { name, namespace: 'default' }, stringData })
}

async function untilProvisioned(client: KubeClient, name: string, message: RegExp): Promise<void> {
  await untilProxies(client, `${name} says ${String(message)}`, (proxies) => {
    const status = proxies.find(({ metadata }) => metadata.name === name)?.status
    return message.test(findCondition(status?.conditions, 'Provisioned')?.message ?? '')
  })
}

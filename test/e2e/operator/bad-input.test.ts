// What a person gets wrong, on a real API server and a real libvirt host: each mistake is named with its way out, and leaves nothing.
import { randomBytes } from 'node:crypto'
import { copyFile, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { ProxySpecInput } from '../../../src/api/proxy.ts'
import { seedName } from '../../../src/provider/libvirt/volume-xml.ts'
import { clusterAvailable } from '../../support/cluster.ts'
import { CommandError } from '../../support/command.ts'
import { canRun } from '../../support/e2e/availability.ts'
import { provisioned } from '../../support/e2e/kube-view.ts'
import { baseFiles, startRealWorld, type RealWorld } from '../../support/e2e/real-world.ts'
import { proxyUserData, sampleProvider, sampleProxy } from '../../support/e2e/samples.ts'
import { getThrough } from '../../support/e2e/through-proxy.ts'
import { eventually } from '../../support/eventually.ts'
import { libvirtHostAvailable } from '../../support/libvirt-host.ts'
import { generateTestKey, knownHostsLine } from '../../support/ssh/keys.ts'

const runs = canRun('bad input on a real libvirt host', [clusterAvailable(), libvirtHostAvailable()])
const failedBudgetMs = 120_000
const readyBudgetMs = 300_000
const goneBudgetMs = 60_000

const stoppedPool = 'stopped'
const placement = { zone: 'kvm-1', machineType: 'small', image: 'tiny' }

/** A Proxy that fails, why, and what its condition says. `$folder` is the suite's, `$host` the host's address and port. */
interface Mistake {
  readonly spec: ProxySpecInput
  readonly reason: string
  readonly says: readonly string[]
}

const mistakes: Readonly<Record<string, Mistake>> = {
  'unknown-zone': {
    spec: { placement: { ...placement, zone: 'nowhere' } },
    reason: 'ZoneUnknown',
    says: ['placement.zone "nowhere" is not in kvm2.hosts', 'kvm-1'],
  },
  'unknown-image': {
    spec: { placement: { ...placement, image: 'debian-99' } },
    reason: 'ImageUnknown',
    says: ['placement.image "debian-99" is neither a key in kvm2.images nor an http(s) URL', 'tiny'],
  },
  'unknown-machine-type': {
    spec: { placement: { ...placement, machineType: 'huge' } },
    reason: 'MachineTypeUnknown',
    says: ['placement.machineType "huge" is not in kvm2.machineTypes', 'small'],
  },
  'image-not-found': {
    spec: { placement: { ...placement, image: 'missing' } },
    reason: 'ImageNotAvailable',
    says: ['image missing', '404', 'kvm2.images.missing.url'],
  },
  'image-of-other-digest': {
    spec: { placement: { ...placement, image: 'altered' } },
    reason: 'ImageDigestMismatch',
    says: ['image altered', 'kvm2.images.altered.sha256', '0'.repeat(64)],
  },
  'wrong-key': {
    spec: { provider: 'wrong-key', placement },
    reason: 'Unauthorized',
    says: ['$host', '$folder/key', 'authorized_keys'],
  },
  'wrong-host-key': {
    spec: { provider: 'wrong-host-key', placement },
    reason: 'Unauthorized',
    says: ['$host', '$folder/known_hosts', 'ssh-keyscan'],
  },
  'stopped-pool': {
    spec: { provider: 'stopped-pool', placement },
    reason: 'PoolNotActive',
    says: ['storage pool stopped is not running', 'virsh pool-start stopped', 'virsh pool-autostart stopped'],
  },
}

/** Those whose cause is mended, in the name of the provider too. */
const mended = ['wrong-key', 'wrong-host-key', 'stopped-pool'] as const

describe.skipIf(!runs)('bad input', () => {
  let world: RealWorld

  beforeAll(async () => {
    world = await startRealWorld('bad-input')
    const { host, images, folder, kube, canary } = world
    await host.virsh(['pool-define-as', stoppedPool, 'dir', '--target', `${host.poolDir}/../${stoppedPool}`])
    await host.virsh(['pool-build', stoppedPool])
    const [otherKey, otherHostKey] = [generateTestKey(), generateTestKey()]
    await writeFile(join(folder, 'key'), otherKey.privateKey, { mode: 0o600 })
    await writeFile(join(folder, 'known_hosts'), knownHostsLine(host.sshHost, host.sshPort, otherHostKey.publicKey))
    const tiny = { url: images.url('tiny.qcow2') }
    const block = {
      images: { tiny, missing: { url: images.url('missing.qcow2') }, altered: { ...tiny, sha256: '0'.repeat(64) } },
    }
    await world.operator(
      [
        await sampleProvider(host, { block }),
        await sampleProvider(host, { name: 'wrong-key', block: { ...block, sshKeyFile: join(folder, 'key') } }),
        await sampleProvider(host, {
          name: 'wrong-host-key',
          block: { ...block, knownHostsFile: join(folder, 'known_hosts') },
        }),
        await sampleProvider(host, { name: 'stopped-pool', host: { pool: stoppedPool }, block }),
      ],
      ['--provider-check-interval=2s'],
    )
    const cloudInit = proxyUserData('mended', canary.text)
    const proxies = Object.entries(mistakes).flatMap(([name, { spec }]) => [
      sampleProxy(name, { ...spec, cloudInit }),
      sampleProxy(`${name}-given-up`, { ...spec, cloudInit }),
    ])
    await kube.apply(...(await Promise.all(proxies)))
  })

  afterAll(async () => {
    await world.host.virsh(['pool-destroy', stoppedPool]).catch(() => undefined) // when it was never started
    await world.host.virsh(['pool-undefine', stoppedPool])
    await world.host.exec(['rm', '-r', `${world.host.poolDir}/../${stoppedPool}`])
    await world.close()
  })

  const expectedTexts = ({ says }: Mistake): string[] => {
    const { host, folder } = world
    return says.map((text) => text.replace('$folder', folder).replace('$host', `${host.sshHost}:${host.sshPort}`))
  }

  it.each(Object.entries(mistakes))('%s is told in condition and Event, with the way out', async (name, mistake) => {
    const { kube } = world
    const failed = await kube.until(name, 'is Failed', failedBudgetMs, (proxy) => {
      return proxy.status?.phase === 'Failed' && provisioned(proxy)?.reason === mistake.reason
    })
    const condition = provisioned(failed)
    expect(condition?.status).toBe('False')
    for (const text of expectedTexts(mistake)) expect(condition?.message).toContain(text)
    const event = await eventually(`an Event tells of ${name}`, failedBudgetMs, async () =>
      (await kube.events(name)).find(({ reason }) => reason === mistake.reason),
    )
    expect(event.type).toBe('Warning')
    for (const text of expectedTexts(mistake)) expect(event.message).toContain(text)
  })

  /** A failed download is tried once more by itself when its host is found ready: what it writes then goes again at once. */
  const expectNothingOnHost = async () => {
    await eventually('there is nothing on the host', failedBudgetMs, async () => {
      const found = [...(await world.hostView.domains()), ...(await world.hostView.files())]
      if (found.length === 0) return true
      throw new Error(JSON.stringify(found))
    })
  }

  it('leaves no domain and no volume', async () => {
    await expectNothingOnHost()
  })

  it.each(Object.keys(mistakes))('%s goes when it is deleted, with its cause still there', async (name) => {
    await world.kube.remove(`${name}-given-up`, goneBudgetMs)
    await expectNothingOnHost()
  })

  it('shows in the health of the provider', async () => {
    const table = await world.cluster.kubectl(['get', 'ph', '--no-headers'])
    const rows = Object.fromEntries(
      table
        .trim()
        .split('\n')
        .map((line) => line.split(/\s+/))
        .map(([name = '', , ready, , reason]) => [name, [ready, reason]]),
    )
    expect(rows).toEqual({
      'kvm2-home': ['true', 'Reachable'],
      'wrong-key': ['false', 'Unauthorized'],
      'wrong-host-key': ['false', 'Unauthorized'],
      'stopped-pool': ['false', 'PoolNotActive'],
    })
  })

  it('is over by itself when the cause is mended', async () => {
    const { host, folder, kube } = world
    await copyFile(host.sshKeyPath, join(folder, 'key'))
    await copyFile(host.knownHostsPath, join(folder, 'known_hosts'))
    await host.virsh(['pool-start', stoppedPool])
    for (const name of mended) {
      const { status } = await kube.untilPhase(name, 'Ready', readyBudgetMs)
      expect(status?.latch).toBeUndefined()
      const page = await getThrough(status?.endpoint ?? '', world.targets.httpUrl)
      expect(page).toMatchObject({ status: 200, body: status?.ip })
    }
    expect((await world.hostView.domains()).map(({ state }) => state)).toEqual(mended.map(() => 'running'))
  })

  it('leaves nothing but the cached image after the deletes', async () => {
    const { kube } = world
    await kube.askToRemove(...Object.keys(mistakes))
    for (const name of Object.keys(mistakes)) await kube.untilGone(name, goneBudgetMs)
    expect(await world.hostView.domains()).toEqual([])
    expect(await world.hostView.files()).toEqual(baseFiles('tiny'))
    expect(
      (await world.host.exec(['ls', `${world.host.poolDir}/../${stoppedPool}`])).trim().split('\n').sort(),
    ).toEqual(baseFiles('tiny'))
  })

  const refusal = async (cloudInit: string): Promise<string> => {
    const object = await sampleProxy('refused', { placement, cloudInit })
    const error: unknown = await world.kube.apply(object).catch((thrown: unknown) => thrown)
    expect(error).toBeInstanceOf(CommandError)
    return (error as CommandError).result.stderr
  }

  it('refuses cloud-init of 0 bytes, naming the field', async () => {
    expect(await refusal('')).toMatch(/spec\.cloudInit: /)
    expect(await world.kube.proxy('refused')).toBeUndefined()
  })

  it('refuses 200 KiB of cloud-init, naming the field and the way out', async () => {
    const message = await refusal(proxyUserData('large', world.canary.text.repeat(5000)).slice(0, 200 << 10))
    expect(message).toContain('spec.cloudInit')
    expect(message).toContain('put it in a Secret and name that in cloudInitFrom')
    expect(message).not.toContain(world.canary.text)
    expect(await world.kube.proxy('refused')).toBeUndefined()
  })

  it('takes 300 KiB of cloud-init from a Secret, byte for byte', async () => {
    const { kube, canary, hostView } = world
    const userData = Buffer.from(proxyUserData('from-secret', canary.text + randomBytes(150 << 10).toString('hex')))
    expect(userData.length).toBeGreaterThan(300 << 10)
    const secret = {
      apiVersion: 'v1',
      kind: 'Secret',
      metadata: { name: 'large-userdata', namespace: 'default' },
      data: { 'user-data': userData.toString('base64') },
    }
    await world.cluster.kubectl(['create', '-f', '-'], { input: JSON.stringify(secret) })
    const { cloudInit: _, ...rest } = (await sampleProxy('from-secret', { placement })).spec
    const cloudInitFrom = { secretKeyRef: { name: 'large-userdata', key: 'user-data' } }
    await kube.apply({ ...(await sampleProxy('from-secret', {})), spec: { ...rest, cloudInitFrom } })
    const { status } = await kube.untilPhase('from-secret', 'Ready', readyBudgetMs)
    const seed = await readFile(hostView.path(seedName(status?.instanceName ?? '')))
    expect(seed.includes(userData)).toBe(true)
    const page = await getThrough(status?.endpoint ?? '', world.targets.httpUrl)
    expect(page.via).toContain('from-secret')
    await kube.remove('from-secret', goneBudgetMs)
    expect(await hostView.domains()).toEqual([])
    expect(await hostView.files()).toEqual(baseFiles('tiny'))
  })

  it('tells no secret', async () => {
    expect(world.canary.leaks(await world.told())).toEqual([])
  })
})

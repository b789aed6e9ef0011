// The operator killed without warning between two steps on a real libvirt host, and started again: one VM, then none.
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { proxyFinalizer } from '../../../src/api/group.ts'
import { overlayName, seedName } from '../../../src/provider/libvirt/volume-xml.ts'
import { clusterAvailable } from '../../support/cluster.ts'
import { canRun } from '../../support/e2e/availability.ts'
import type { DomainView } from '../../support/e2e/host-view.ts'
import { startLibvirtGate, type LibvirtGate } from '../../support/e2e/libvirt-gate.ts'
import type { OperatorProcess } from '../../support/e2e/operator-process.ts'
import { baseFiles, startRealWorld, type RealWorld } from '../../support/e2e/real-world.ts'
import { proxyUserData, sampleProvider, sampleProxy, type ProviderEntry } from '../../support/e2e/samples.ts'
import { eventually } from '../../support/eventually.ts'
import { libvirtHostAvailable } from '../../support/libvirt-host.ts'

const runs = canRun('the operator killed on a real libvirt host', [clusterAvailable(), libvirtHostAvailable()])
const readyBudgetMs = 240_000
const stepBudgetMs = 120_000
const heldImageBytes = 4 << 20

/** What there is of one Proxy on the host: its volumes by role and its domain's state. */
interface Remains {
  readonly seed: boolean
  readonly overlay: boolean
  readonly domain: string | undefined
}

interface Moment {
  /** The call that is held back while the operator is killed, and what its arguments contain. */
  readonly hold: Parameters<LibvirtGate['hold']>
  /** What is on the host then. */
  readonly remains: Remains
}

interface Round {
  readonly name: string
  readonly create: Moment
  readonly remove: Moment
}

const creates = {
  'the seed there and no overlay': {
    hold: ['STORAGE_VOL_CREATE_XML', '<backingStore>'],
    remains: { seed: true, overlay: false, domain: undefined },
  },
  'the overlay there and no domain': {
    hold: ['DOMAIN_DEFINE_XML'],
    remains: { seed: true, overlay: true, domain: undefined },
  },
  'the domain defined and not started': {
    hold: ['DOMAIN_CREATE'],
    remains: { seed: true, overlay: true, domain: 'shut off' },
  },
  'the domain running without an address': {
    hold: ['DOMAIN_INTERFACE_ADDRESSES'],
    remains: { seed: true, overlay: true, domain: 'running' },
  },
} as const satisfies Record<string, Moment>

const removes = {
  'the domain destroyed and still defined': {
    hold: ['DOMAIN_UNDEFINE_FLAGS'],
    remains: { seed: true, overlay: true, domain: 'shut off' },
  },
  'the domain gone and both volumes there': {
    hold: ['STORAGE_VOL_DELETE'],
    remains: { seed: true, overlay: true, domain: undefined },
  },
  'the domain and the overlay gone and the seed there': {
    hold: ['STORAGE_VOL_DELETE', '-seed.iso'],
    remains: { seed: true, overlay: false, domain: undefined },
  },
} as const satisfies Record<string, Moment>

/** Every moment of a create, each followed by a moment of the delete. */
const rounds = Object.entries<Moment>(creates).map(([created, create], index): [string, string, Round] => {
  const all = Object.entries<Moment>(removes)
  const [removed, remove] = all[index % all.length] ?? ['', create]
  return [created, removed, { name: `round-${index + 1}`, create, remove }]
})

/** A gate that nobody comes to is an error of its own. */
async function within(reached: Promise<unknown>): Promise<void> {
  let seen = false
  void reached.then(() => (seen = true))
  await eventually('the call to be held back is made', stepBudgetMs, () => Promise.resolve(seen ? true : undefined))
}

describe.skipIf(!runs)('an operator that is killed', () => {
  let world: RealWorld
  let gate: LibvirtGate
  let providers: readonly ProviderEntry[]
  let operator: OperatorProcess

  beforeAll(async () => {
    world = await startRealWorld('crash')
    const { host, images } = world
    gate = await startLibvirtGate(host)
    const block = { images: { tiny: { url: images.url('tiny.qcow2') }, slow: { url: images.url('slow.qcow2') } } }
    providers = [await sampleProvider(host, { host: { socket: gate.socketPath }, block })]
    operator = await world.operator(providers)
  })

  afterAll(async () => {
    await world.close()
    await gate.close()
  })

  const remainsOf = async (instance: string): Promise<Remains> => {
    const files = await world.hostView.files()
    const domain = (await world.hostView.domains()).find(({ name }) => name === instance)
    return {
      seed: files.includes(seedName(instance)),
      overlay: files.includes(overlayName(instance)),
      domain: domain?.state,
    }
  }

  const instanceOf = async (name: string): Promise<string> => {
    const proxy = await world.kube.until(name, 'has a named instance', stepBudgetMs, ({ status }) => {
      return status?.instanceName !== undefined
    })
    return proxy.status?.instanceName ?? ''
  }

  const apply = async (name: string, image: string) => {
    const placement = { zone: 'kvm-1', machineType: 'small', image }
    await world.kube.apply(await sampleProxy(name, { placement, cloudInit: proxyUserData(name, world.canary.text) }))
  }

  const killAndLetGo = async () => {
    await operator.kill()
    expect(operator.running()).toBe(false)
    gate.open()
  }

  const restart = async () => {
    operator = await world.operator(providers)
  }

  /** After the new operator carried on: one VM, and exactly its files. */
  const expectOneReady = async (name: string, image: string): Promise<DomainView> => {
    const proxy = await world.kube.untilPhase(name, 'Ready', readyBudgetMs)
    const instance = proxy.status?.instanceName ?? ''
    const [domain, ...more] = await world.hostView.domains()
    expect(more).toEqual([])
    expect(domain).toMatchObject({ name: instance, state: 'running' })
    const files = (await world.hostView.files()).filter((file) => !file.startsWith('base-'))
    expect(files).toEqual([seedName(instance), overlayName(instance)].sort())
    expect(await world.hostView.files()).toEqual(expect.arrayContaining(baseFiles(image)))
    if (domain === undefined) throw new Error('there is no domain')
    return domain
  }

  const expectNothingLeft = async (name: string) => {
    await world.kube.untilGone(name, stepBudgetMs)
    expect(await world.hostView.domains()).toEqual([])
    const files = await world.hostView.files()
    const bases = ['tiny', 'slow'].filter((image) => files.includes(`base-${image}.qcow2`)).flatMap(baseFiles)
    expect(files).toEqual(bases.sort())
  }

  it('with the base volume half written makes one VM, and none after a delete', async () => {
    const { images, hostView, kube } = world
    images.holdAfter('slow.qcow2', heldImageBytes)
    await apply('half-image', 'slow')
    const base = 'base-slow.qcow2'
    await eventually('the base volume is half written', stepBudgetMs, async () => {
      return ((await hostView.writtenBytes(base)) ?? 0) >= heldImageBytes / 2 ? true : undefined
    })
    await killAndLetGo()
    expect(await hostView.writtenBytes(base)).toBeLessThanOrEqual(heldImageBytes + 4096)
    expect(await hostView.files()).not.toContain(`${base}.sha256`)
    expect(await remainsOf(await instanceOf('half-image'))).toEqual({ seed: false, overlay: false, domain: undefined })
    images.release('slow.qcow2')
    await restart()
    await expectOneReady('half-image', 'slow')
    await kube.remove('half-image', stepBudgetMs)
    await expectNothingLeft('half-image')
  })

  it.each(rounds)('with %s makes one VM, and killed with %s leaves none', async (_create, _remove, round) => {
    const { kube, hostView } = world
    const { name, create, remove } = round
    const createReached = gate.hold(...create.hold)
    await apply(name, 'tiny')
    await within(createReached)
    await killAndLetGo()
    const instance = await instanceOf(name)
    expect(await remainsOf(instance)).toEqual(create.remains)
    expect((await kube.proxy(name))?.status?.ip).toBeUndefined()
    const [before] = await hostView.domains()
    await restart()
    const after = await expectOneReady(name, 'tiny')
    if (before !== undefined) expect(after.uuid).toBe(before.uuid)
    if (before?.id !== undefined) expect(after.id, 'the VM was started anew').toBe(before.id)

    const removeReached = gate.hold(...remove.hold)
    await kube.askToRemove(name)
    await within(removeReached)
    await killAndLetGo()
    expect(await remainsOf(instance)).toEqual(remove.remains)
    expect((await kube.proxy(name))?.metadata.finalizers).toContain(proxyFinalizer)
    await restart()
    await expectNothingLeft(name)
  })

  it('tells no secret', async () => {
    expect(world.canary.leaks(await world.told())).toEqual([])
  })
})

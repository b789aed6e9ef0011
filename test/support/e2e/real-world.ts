// The world of one end-to-end suite: control plane, libvirt host, servers around them, and the operators started in it.
import { mkdir, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { startCluster, type Cluster } from '../cluster.ts'
import { startLibvirtHost, type LibvirtHost } from '../libvirt-host.ts'
import { createCanary, type Canary, type Told } from './canary.ts'
import { viewOf, type HostView } from './host-view.ts'
import { startImageServer, type ImageServer } from './image-server.ts'
import { KubeView } from './kube-view.ts'
import { startOperator, type OperatorProcess } from './operator-process.ts'
import { writeProviders, type ProviderEntry } from './samples.ts'
import { startTargetServers, type TargetServers } from './target-server.ts'
import { startWitness, type Witness } from './witness.ts'

export interface RealWorld {
  readonly cluster: Cluster
  readonly host: LibvirtHost
  /** What happens on the host. */
  readonly hostView: HostView
  readonly kube: KubeView
  /** Serves `tiny` and `cloudinit`, and `slow`, which is tiny too. */
  readonly images: ImageServer
  /** Pages to ask for through proxies. */
  readonly targets: TargetServers
  readonly canary: Canary
  readonly witness: Witness
  /** Files of the suite; gone after {@link close} unless E2E_DIR names where to keep them. */
  readonly folder: string
  /** Starts the operator with these providers; one at a time. */
  operator(providers: readonly ProviderEntry[], flags?: readonly string[]): Promise<OperatorProcess>
  /** Everything that operators, Events and statuses told so far. */
  told(): Promise<Told>
  close(): Promise<void>
}

/** Brings everything up, and down again what came up when something does not. */
export async function startRealWorld(suite: string): Promise<RealWorld> {
  const cleanups: (() => Promise<unknown>)[] = []
  const close = async () => {
    const failures: unknown[] = []
    for (const cleanup of cleanups.splice(0).reverse()) {
      try {
        await cleanup()
      } catch (error) {
        failures.push(error)
      }
    }
    if (failures.length > 0) throw new AggregateError(failures, `${suite}: not everything could be ended`)
  }
  /** Registers how to end what was just started. */
  const started = <T>(thing: T, end: (thing: T) => Promise<unknown>): T => {
    cleanups.push(() => end(thing))
    return thing
  }
  try {
    const folder = await createFolder(suite, cleanups)
    const cluster = started(await startCluster(), (it) => it.down())
    const host = started(await startLibvirtHost(), (it) => it.down())
    const hostView = viewOf(host)
    await requireEmpty(hostView)
    if (!host.owned) cleanups.push(() => removeVolumes(host, hostView))
    const kube = started(new KubeView(cluster), (it) => it.close())
    await cluster.kubectl(['apply', '-f', 'crds'])
    await cluster.kubectl(['wait', '--for=condition=Established', '--timeout=60s', '-f', 'crds'])
    const { tiny, cloudinit } = host.images
    const files = { 'tiny.qcow2': tiny, 'slow.qcow2': tiny, 'cloudinit.qcow2': cloudinit }
    const images = started(await startImageServer(host.gateway, files), (it) => it.close())
    const targets = started(await startTargetServers(host.gateway), (it) => it.close())
    const canary = await createCanary({ 'the SSH key': host.sshKeyPath, known_hosts: host.knownHostsPath })
    const witness = started(startWitness(kube.client), (it) => it.stop())
    const operators: OperatorProcess[] = []
    cleanups.push(async () => {
      await Promise.all(operators.filter((it) => it.running()).map((it) => it.stop()))
    })
    return {
      cluster,
      host,
      hostView,
      kube,
      images,
      targets,
      canary,
      witness,
      folder,
      operator: async (providers, flags = []) => {
        const providersConfig = join(folder, 'providers.yaml')
        await writeProviders(providersConfig, providers)
        const operator = await startOperator(
          {
            kubeconfig: cluster.kubeconfigPath,
            providersConfig,
            healthCheckUrl: targets.httpUrl,
            more: flags,
          },
          join(folder, 'operator.log'),
        )
        operators.push(operator)
        return operator
      },
      told: async () => [
        ...operators.map(
          (operator, index) => [`log of operator ${index + 1}`, operator.logLines().join('\n')] as const,
        ),
        ['Events', JSON.stringify(await kube.events())],
        ['statuses', JSON.stringify(witness.proxies.map(({ object }) => object.status))],
        ['ProviderHealths', JSON.stringify(witness.healths)],
      ],
      close,
    }
  } catch (error) {
    await close()
    throw error
  }
}

/** The suites count what is there, so a host that was up before must be as empty as a new one. */
async function requireEmpty(view: HostView): Promise<void> {
  const found = [...(await view.domains()).map(({ name }) => name), ...(await view.files())]
  if (found.length === 0) return
  throw new Error(
    `the libvirt host that is up has ${found.join(', ')}: remove them, or end it with hack/libvirt-host/libvirt-host down`,
  )
}

async function removeVolumes(host: LibvirtHost, view: HostView): Promise<void> {
  for (const file of await view.files()) await host.virsh(['vol-delete', file, '--pool', host.pool])
}

async function createFolder(suite: string, cleanups: (() => Promise<unknown>)[]): Promise<string> {
  const kept = process.env['E2E_DIR']
  if (kept !== undefined && kept !== '') {
    const folder = join(kept, suite)
    await mkdir(folder, { recursive: true })
    return folder
  }
  const folder = await mkdtemp(join(tmpdir(), `e2e-${suite}-`))
  cleanups.push(() => rm(folder, { recursive: true }))
  return folder
}

/** Files that a base image leaves in the pool for good: the image, its marker and the facts beside it. */
export function baseFiles(image: string): string[] {
  return ['', '.info', '.sha256'].map((suffix) => `base-${image}.qcow2${suffix}`)
}

// Times one Proxy from its creation to Ready on a real API server, libvirtd and VM, and weighs the operator. No pass mark.
// RUNS says how often (default 3), IMAGE which image of hack/libvirt-host (tiny or cloudinit, default tiny).
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { createInterface } from 'node:readline'
import type { Proxy } from '../src/api/proxy.ts'
import { proxyResource } from '../src/reconcile/resources.ts'
import { clusterAvailable } from '../test/support/cluster.ts'
import type { OperatorProcess } from '../test/support/e2e/operator-process.ts'
import { startRealWorld, type RealWorld } from '../test/support/e2e/real-world.ts'
import { proxyUserData, sampleProvider, sampleProxy } from '../test/support/e2e/samples.ts'
import { eventually } from '../test/support/eventually.ts'
import { libvirtHostAvailable, libvirtHostScript } from '../test/support/libvirt-host.ts'
import { table, writeResults, type Measurement } from './report.ts'
import { makeByHand, type VirshRun } from './virsh-peer.ts'

/** Moments of one Proxy, milliseconds since the epoch. */
interface Moments {
  readonly appliedMs: number
  readonly runningMs: number
  readonly addressMs: number
  readonly readyMs: number
}

const readyBudgetMs = 600_000
const memoryMiB = 1024

await main()

async function main(): Promise<void> {
  const missing = [clusterAvailable(), libvirtHostAvailable()].filter((part) => part.kind === 'no')
  if (missing.length > 0) {
    console.error(`cannot be measured here: ${missing.map(({ reason }) => reason).join('; ')}`)
    process.exitCode = 1
    return
  }
  const runs = Number(process.env['RUNS'] ?? 3)
  const image = process.env['IMAGE'] ?? 'tiny'
  if (!Number.isInteger(runs) || runs < 1) throw new Error('RUNS must be a whole number of at least 1')
  const world = await startRealWorld('bench-libvirt')
  try {
    await measure(world, image, runs)
  } finally {
    await world.close()
  }
}

async function measure(world: RealWorld, image: string, runs: number): Promise<void> {
  const { host, images, folder } = world
  const block = { images: { [image]: { url: images.url(`${image}.qcow2`) } } }
  const operator = await world.operator(
    [await sampleProvider(host, { block })],
    [`--log-level=${process.env['LOG_LEVEL'] ?? 'info'}`],
  )
  const starts = followStarts()
  try {
    const idle = await memory(operator)
    console.log(`${image}, ${host.accel}: the first Proxy, with the image still to be fetched`)
    const first = await oneProxy(world, starts, image, 'first')
    const fetched = await memory(operator)
    const warm: Moments[] = []
    const byHand: VirshRun[] = []
    for (let run = 1; run <= runs; run++) {
      console.log(`run ${run} of ${runs}: by the operator, then by hand with virsh`)
      warm.push(await oneProxy(world, starts, image, `run-${run}`))
      const userData = proxyUserData('by-hand')
      byHand.push(await makeByHand({ host, folder, base: `base-${image}.qcow2`, memoryMiB, userData }))
    }
    const after = await memory(operator)
    const measurements = [
      ...timesOf(warm, byHand),
      {
        name: 'apply -> running with the image fetched',
        unit: 's',
        values: [seconds(first.appliedMs, first.runningMs)],
      },
      { name: 'RSS of the operator, idle', unit: 'MiB', values: [idle.rssMiB] },
      { name: 'RSS after the image was fetched', unit: 'MiB', values: [fetched.rssMiB] },
      { name: 'RSS after all runs', unit: 'MiB', values: [after.rssMiB] },
      { name: 'RSS at its highest', unit: 'MiB', values: [after.peakMiB] },
    ] as const satisfies readonly Measurement[]
    console.log(`\n${table(measurements)}\n`)
    console.log(await writeResults('libvirt', measurements, { image, accel: host.accel, runs }))
  } finally {
    await starts.stop()
  }
}

function timesOf(warm: readonly Moments[], byHand: readonly VirshRun[]): Measurement[] {
  const virsh = (values: readonly number[]) => ({ name: 'virsh by hand', values })
  return [
    {
      name: 'apply -> running',
      unit: 's',
      values: warm.map((run) => seconds(run.appliedMs, run.runningMs)),
      peer: virsh(byHand.map(({ runningSeconds }) => runningSeconds)),
    },
    {
      name: 'running -> first usable address',
      unit: 's',
      values: warm.map((run) => seconds(run.runningMs, run.addressMs)),
      peer: virsh(byHand.map(({ addressSeconds }) => addressSeconds)),
    },
    {
      name: 'address -> Ready',
      unit: 's',
      values: warm.map((run) => seconds(run.addressMs, run.readyMs)),
      target: 1,
    },
    { name: 'apply -> Ready', unit: 's', values: warm.map((run) => seconds(run.appliedMs, run.readyMs)) },
  ]
}

/** Makes a Proxy, waits until it is Ready, and deletes it. */
async function oneProxy(world: RealWorld, starts: Starts, image: string, name: string): Promise<Moments> {
  const { kube, witness } = world
  const placement = { zone: 'kvm-1', machineType: 'small', image }
  const proxy = await sampleProxy(name, { placement, cloudInit: proxyUserData(name) })
  const appliedMs = Date.now()
  // What kubectl sends, without the time that kubectl itself takes to start.
  await kube.client.create(proxyResource, { ...proxy })
  const ready = await kube.untilPhase(name, 'Ready', readyBudgetMs)
  const moment = async (what: string, wanted: (seen: Proxy) => boolean) =>
    await eventually(what, 10_000, () => {
      const found = witness.proxies.find(({ object }) => object.metadata.uid === ready.metadata.uid && wanted(object))
      return Promise.resolve(found === undefined ? undefined : performance.timeOrigin + found.atMs)
    })
  const addressMs = await moment('the address was seen', ({ status }) => status?.ip !== undefined)
  const readyMs = await moment('Ready was seen', ({ status }) => status?.phase === 'Ready')
  const runningMs = await starts.startOf(ready.status?.instanceName ?? '')
  await kube.remove(name, readyBudgetMs)
  return { appliedMs, runningMs, addressMs, readyMs }
}

interface Starts {
  /** When libvirt said that the domain was started last, milliseconds since the epoch. */
  startOf(domain: string): Promise<number>
  stop(): Promise<void>
}

/** libvirt's own word on when a domain runs, from `virsh event`, whose lines carry the time. */
function followStarts(): Starts {
  const args = ['virsh', 'event', '--event', 'lifecycle', '--loop', '--timestamp']
  const child = spawn(libvirtHostScript, args, { stdio: ['ignore', 'pipe', 'inherit'], detached: true })
  const startedMs = new Map<string, number>()
  createInterface({ input: child.stdout }).on('line', (line) => {
    const match = /^(\S+ \S+): event 'lifecycle' for domain '([^']+)': Started/.exec(line)
    const [, time, domain] = match ?? []
    if (time === undefined || domain === undefined) return
    startedMs.set(domain, Date.parse(time.replace(' ', 'T').replace('+0000', 'Z')))
  })
  return {
    startOf: (domain) =>
      eventually(`libvirt told of the start of ${domain}`, 30_000, () => Promise.resolve(startedMs.get(domain))),
    stop: async () => {
      const closed = once(child, 'close')
      // The script has started virsh in turn: the group is both.
      if (child.pid !== undefined) process.kill(-child.pid, 'SIGTERM')
      await closed
    },
  }
}

interface Memory {
  readonly rssMiB: number
  readonly peakMiB: number
}

/** From the kernel's books: proc(5), VmRSS and VmHWM. */
async function memory(operator: OperatorProcess): Promise<Memory> {
  const status = await readFile(`/proc/${operator.pid}/status`, 'utf8')
  const field = (name: string): number => {
    const kibibytes = new RegExp(`^${name}:\\s+(\\d+) kB$`, 'm').exec(status)?.[1]
    if (kibibytes === undefined) throw new Error(`no ${name} in /proc/${operator.pid}/status`)
    return Number(kibibytes) / 1024
  }
  return { rssMiB: field('VmRSS'), peakMiB: field('VmHWM') }
}

function seconds(fromMs: number, toMs: number): number {
  return (toMs - fromMs) / 1000
}

// The same VM made by hand: virsh on the host, from a base image that is cached to an address. What the operator is measured against.
import { randomUUID } from 'node:crypto'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { domainXml, randomMac } from '../src/provider/libvirt/domain-xml.ts'
import { overlayName, seedName } from '../src/provider/libvirt/volume-xml.ts'
import { buildSeed } from '../src/provider/nocloud/seed.ts'
import type { LibvirtHost } from '../test/support/libvirt-host.ts'

export interface VirshRun {
  /** From the first command to the started domain, seconds. */
  readonly runningSeconds: number
  /** From there to the first address that the agent tells, seconds. */
  readonly addressSeconds: number
}

const pollMs = 250
const addressBudgetMs = 300_000

export interface VirshPlan {
  readonly host: LibvirtHost
  /** For the files that virsh reads. */
  readonly folder: string
  /** Volume of the base image, qcow2. */
  readonly base: string
  readonly memoryMiB: number
  readonly userData: string
}

/** Makes the VM with one virsh process, asks for its address every 250 ms as the operator does, and removes it again. */
export async function makeByHand({ host, folder, base, memoryMiB, userData }: VirshPlan): Promise<VirshRun> {
  const name = `by-hand-${randomUUID().slice(0, 8)}`
  const [overlay, seed] = [overlayName(name), seedName(name)]
  const owner = { installation: 'by-hand', uid: randomUUID() }
  const content = buildSeed({
    owner,
    instanceName: name,
    userData: Buffer.from(userData),
    createdAt: new Date(),
    installGuestAgent: true,
  })
  const xml = domainXml({
    name,
    uuid: randomUUID(),
    mac: randomMac(Math.random),
    vcpus: 1,
    memoryMiB,
    firmware: 'uefi',
    nic: { kind: 'bridge', bridge: host.bridge },
    overlayPath: join(host.poolDir, overlay),
    seedPath: join(host.poolDir, seed),
    markNamespace: 'https://example.test/by-hand',
    mark: { uid: owner.uid },
  })
  const [seedFile, xmlFile] = [join(folder, seed), join(folder, `${name}.xml`)]
  await writeFile(seedFile, content)
  await writeFile(xmlFile, xml)
  const { pool } = host
  const commands = [
    `vol-create-as ${pool} ${seed} ${content.length}b --format raw`,
    `vol-upload ${seed} ${seedFile} --pool ${pool}`,
    `vol-create-as ${pool} ${overlay} 2G --format qcow2 --backing-vol ${base} --backing-vol-format qcow2`,
    `define ${xmlFile}`,
    `autostart ${name}`,
    `start ${name}`,
  ]
  const began = performance.now()
  await host.virsh(['-q', commands.join('; ')])
  const running = performance.now()
  try {
    while (!(await hasAddress(host, name))) {
      if (performance.now() - running > addressBudgetMs) throw new Error(`${name} has no address`)
      await sleep(pollMs)
    }
    const addressed = performance.now()
    return { runningSeconds: (running - began) / 1000, addressSeconds: (addressed - running) / 1000 }
  } finally {
    const removal = [
      `destroy ${name}`,
      `undefine ${name} --nvram`,
      `vol-delete ${overlay} --pool ${pool}`,
      `vol-delete ${seed} --pool ${pool}`,
    ]
    await host.virsh(['-q', removal.join('; ')])
  }
}

async function hasAddress(host: LibvirtHost, name: string): Promise<boolean> {
  try {
    const table = await host.virsh(['-q', 'domifaddr', name, '--source', 'agent'])
    return /^ (?!lo ).* ipv4 /m.test(table)
  } catch {
    // The agent is not there yet.
    return false
  }
}

// A connection to a host beside the provider's own, for a suite to see what is there and to clear up; the provider knows nothing of it.
import { systemClock } from '../../../src/lib/clock.ts'
import { silentLogger } from '../../../src/observe/logger.ts'
import { defaultBudgets } from '../../../src/provider/libvirt/budgets.ts'
import { defaultSocketPaths } from '../../../src/provider/libvirt/config.ts'
import { createDialer } from '../../../src/provider/libvirt/dial.ts'
import { kvm2Flavour } from '../../../src/provider/libvirt/flavour.ts'
import { parseHostPort } from '../../../src/provider/config-fields.ts'
import type { ProviderHost } from './provider-host.ts'

export interface Eye {
  /** Names, sorted: all domains of the host, and all volumes that the pool's folder has now. */
  see(): Promise<{ readonly domains: readonly string[]; readonly volumes: readonly string[] }>
  /** The document of a domain as libvirt completed it. */
  domainXml(name: string): Promise<string>
  /** Removes the volumes whose names begin like this. */
  removeVolumes(beginning: string): Promise<void>
  close(): Promise<void>
}

export async function openEye(host: ProviderHost): Promise<Eye> {
  const ssh = parseHostPort(host.address)
  if (ssh === undefined) throw new Error(`${host.address} is no host:port`)
  const { name, address, user, pool, bridge } = host
  const dial = createDialer({
    targets: [
      {
        ...{ name, address, user, pool, ssh, drain: false, nic: { kind: 'bridge', bridge } },
        socketPaths: host.socket === undefined ? defaultSocketPaths : [host.socket],
      },
    ],
    credentials: { keyFile: host.keyFile, knownHostsFile: host.knownHostsFile, insecureIgnoreHostKey: false },
    flavour: kvm2Flavour,
    budgets: defaultBudgets,
    clock: systemClock,
    log: silentLogger,
    callLog: silentLogger,
  })
  const guard = { signal: new AbortController().signal, mayMutate: () => true }
  const session = await dial(name, guard.signal)
  const { api } = session
  const storage = await api.findPool(pool, guard)
  return {
    async see() {
      await api.refreshPool(storage, guard)
      const domains = await api.listDomains(guard)
      const volumes = await api.listVolumes(storage, guard)
      return { domains: namesOf(domains), volumes: namesOf(volumes) }
    },
    async domainXml(wanted) {
      const domain = (await api.listDomains(guard)).find((found) => found.name === wanted)
      if (domain === undefined) throw new Error(`there is no domain ${wanted}`)
      return await api.domainXml(domain, guard)
    },
    async removeVolumes(beginning) {
      for (const volume of await api.listVolumes(storage, guard)) {
        if (volume.name.startsWith(beginning)) await api.deleteVolume(volume, guard)
      }
    },
    close: () => session.close(),
  }
}

function namesOf(things: readonly { readonly name: string }[]): string[] {
  return things.map((thing) => thing.name).sort()
}

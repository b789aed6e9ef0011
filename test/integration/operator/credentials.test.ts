// An operator that starts before its SSH credentials are there: it says so, its Proxies wait, and all is well once they land.
import { mkdir, readFile, rename, rm, symlink, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { expect, it } from 'vitest'
import { findCondition } from '../../../src/api/conditions.ts'
import { getThrough } from '../../support/e2e/through-proxy.ts'
import { sampleProvider, writeProviders } from '../../support/e2e/samples.ts'
import { recordingLogger } from '../../support/recording-logger.ts'
import { accessTo, startStubWorld } from '../../support/stub-world.ts'
import { createProxy, startOperator, untilProxies, untilReady } from './world.ts'

it('starts without the Secret, and makes the proxy when it is mounted, without a restart', async () => {
  await using world = await startStubWorld({ bootDelayMs: 200 })
  const { client, stub, images, pages, providersConfigFile } = world
  const mount = join(dirname(providersConfigFile), 'kvm')
  const block = {
    images: { 'debian-13': { url: images.url('image.qcow2') } },
    sshKeyFile: join(mount, 'id_ed25519'),
    knownHostsFile: join(mount, 'known_hosts'),
  }
  await writeProviders(providersConfigFile, [await sampleProvider(accessTo(stub), { block })])
  const log = recordingLogger()
  const operator = await startOperator(world, log)
  try {
    const warnings = log.lines.filter(({ message }) => message.startsWith('WARNING:'))
    expect(warnings.map(({ level, message }) => [level, message.split(': ')[1]])).toEqual([
      ['warn', `SSH key file ${block.sshKeyFile} does not exist`],
      ['warn', `known_hosts file ${block.knownHostsFile} does not exist`],
    ])

    await createProxy(client, 'early')
    await untilProxies(client, 'the Proxy waits for the key', ([proxy]) => {
      const provisioned = findCondition(proxy?.status?.conditions, 'Provisioned')
      return (
        provisioned?.status !== 'True' && (provisioned?.message ?? '').includes(`${block.sshKeyFile} does not exist`)
      )
    })
    expect(stub.domains()).toEqual([])

    // As kubelet mounts a Secret that came late: a folder of links through one that is put in place as a whole.
    await mkdir(join(mount, 'generation'), { recursive: true })
    await writeFile(join(mount, 'generation', 'id_ed25519'), await readFile(stub.keyFile))
    await writeFile(join(mount, 'generation', 'known_hosts'), await readFile(stub.knownHostsFile))
    for (const name of ['id_ed25519', 'known_hosts']) await symlink(join('..data', name), join(mount, name))
    await symlink('generation', join(mount, '..data_tmp'))
    await rename(join(mount, '..data_tmp'), join(mount, '..data'))

    const proxy = await untilReady(client, 'early')
    expect(await getThrough(proxy.status?.endpoint ?? '', pages.httpUrl)).toMatchObject({ status: 200 })
    expect(stub.domains()).toHaveLength(1)

    // Read at each dial: a Secret that was taken away counts from the next connection on.
    await rm(mount, { recursive: true })
    stub.cutConnections()
    await createProxy(client, 'late')
    await untilProxies(client, 'the new Proxy waits for the key', (proxies) => {
      const late = proxies.find(({ metadata }) => metadata.name === 'late')
      const message = findCondition(late?.status?.conditions, 'Provisioned')?.message ?? ''
      return message.includes(`${block.sshKeyFile} does not exist`)
    })
    expect(stub.domains()).toHaveLength(1)
    expect(log.lines.filter(({ message }) => message.startsWith('WARNING:'))).toHaveLength(2)
  } finally {
    await operator.stop()
  }
})

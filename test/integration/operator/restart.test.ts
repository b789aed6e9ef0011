// The operator is stopped between any two steps on the host and started again in the same world: one instance, then none.
import { describe, expect, it } from 'vitest'
import type { ProcedureName } from '../../../src/wire/libvirt/protocol.gen.ts'
import { getThrough } from '../../support/e2e/through-proxy.ts'
import { startStubWorld } from '../../support/stub-world.ts'
import { createProxy, deleteProxy, emptyHost, inventory, startOperator, untilGone, untilReady } from './world.ts'

/** Calls of a create, in their order. */
const createSteps: readonly ProcedureName[] = [
  'STORAGE_VOL_CREATE_XML',
  'STORAGE_VOL_UPLOAD',
  'STORAGE_POOL_REFRESH',
  'DOMAIN_DEFINE_XML',
  'DOMAIN_SET_AUTOSTART',
  'DOMAIN_CREATE',
  'DOMAIN_INTERFACE_ADDRESSES',
]

/** Calls of a delete, in their order. */
const deleteSteps: readonly ProcedureName[] = ['DOMAIN_DESTROY', 'DOMAIN_UNDEFINE_FLAGS', 'STORAGE_VOL_DELETE']

describe('an operator that is stopped and started again', () => {
  it.each(createSteps)('during a create, at %s, makes one instance', async (step) => {
    await using world = await startStubWorld({ bootDelayMs: 200 })
    const { client, stub, pages } = world
    const reached = stub.nextCall(step)
    const first = await startOperator(world)
    await createProxy(client, 'restarted')
    await reached
    await first.stop()
    const second = await startOperator(world)
    try {
      const proxy = await untilReady(client, 'restarted')
      const instanceName = proxy.status?.instanceName ?? ''
      expect(inventory(stub)).toEqual({
        domains: [instanceName],
        files: [...emptyHost.files, `${instanceName}-seed.iso`, `${instanceName}.qcow2`].sort(),
      })
      expect(await getThrough(proxy.status?.endpoint ?? '', pages.httpUrl)).toMatchObject({ status: 200 })
      await deleteProxy(client, 'restarted')
      await untilGone(client)
      expect(inventory(stub)).toEqual(emptyHost)
    } finally {
      await second.stop()
    }
  })

  it.each(deleteSteps)('during a delete, at %s, leaves nothing', async (step) => {
    await using world = await startStubWorld()
    const { client, stub } = world
    const first = await startOperator(world)
    await createProxy(client, 'restarted')
    await untilReady(client, 'restarted')
    const reached = stub.nextCall(step)
    await deleteProxy(client, 'restarted')
    await reached
    await first.stop()
    const second = await startOperator(world)
    try {
      await untilGone(client)
      expect(inventory(stub)).toEqual(emptyHost)
    } finally {
      await second.stop()
    }
  })

  it('deletes what was deleted while nobody was there', async () => {
    await using world = await startStubWorld()
    const { client, stub } = world
    const first = await startOperator(world)
    await createProxy(client, 'restarted')
    await untilReady(client, 'restarted')
    await first.stop()
    await deleteProxy(client, 'restarted')
    expect(inventory(stub).domains).toHaveLength(1)
    const second = await startOperator(world)
    try {
      await untilGone(client)
      expect(inventory(stub)).toEqual(emptyHost)
    } finally {
      await second.stop()
    }
  })
})

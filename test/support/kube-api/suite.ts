// What the in-process API and a real API server have in common, shown of whichever is given; nothing else may be relied on.
import { randomBytes } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { KubeClient, ResourceType } from '../../../src/kube/client.ts'
import type { CommandResult } from '../command.ts'
import { suiteOfKubectl } from './suite-kubectl.ts'
import { suiteOfObjects } from './suite-objects.ts'
import { suiteOfWatches } from './suite-watches.ts'

export interface SuiteHost {
  readonly client: KubeClient
  /** Makes the server forget the snapshots of lists, at once or some time after the call. */
  readonly compact: () => void
  /** Runs kubectl against the server; undefined where there is none. */
  readonly kubectl: Kubectl | undefined
  readonly close: () => Promise<void>
}

export type Kubectl = (args: readonly string[], input?: string) => Promise<CommandResult>

/** What the tests use: set before the first of them runs. */
export interface SuiteContext {
  readonly client: KubeClient
  /** Made for this run. */
  readonly namespace: string
  readonly compact: () => void
  readonly kubectl: Kubectl | undefined
}

export const namespaces: ResourceType = {
  group: '',
  version: 'v1',
  plural: 'namespaces',
  kind: 'Namespace',
  namespaced: false,
}

/** @param open connects to a server that serves the widgets */
export function kubeApiSuite(title: string, open: () => Promise<SuiteHost>): void {
  describe(title, () => {
    let host: SuiteHost | undefined
    let context: SuiteContext | undefined
    beforeAll(async () => {
      host = await open()
      const namespace = `suite-${randomBytes(4).toString('hex')}`
      await host.client.create(namespaces, { metadata: { name: namespace } })
      context = { client: host.client, namespace, compact: host.compact, kubectl: host.kubectl }
    })
    afterAll(async () => {
      await host?.close()
    })
    const use = () => {
      if (context === undefined) throw new Error('the suite has not begun')
      return context
    }

    it('has the namespaces that a new cluster has', async () => {
      const { client, namespace } = use()
      const { items } = await client.list(namespaces)
      expect(items.map((item) => item.metadata.name)).toEqual(
        expect.arrayContaining(['default', 'kube-system', namespace]),
      )
      const system = await client.get(namespaces, { name: 'kube-system' })
      expect(system.metadata.uid).toMatch(/^[0-9a-f-]{36}$/)
      expect(system['status']).toEqual({ phase: 'Active' })
      expect(system.metadata.labels).toMatchObject({ 'kubernetes.io/metadata.name': 'kube-system' })
    })

    suiteOfObjects(use)
    suiteOfWatches(use)
    suiteOfKubectl(use)
  })
}

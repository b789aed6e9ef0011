// A real Kubernetes API server against the suite that the in-process API passes too, so that neither can drift.
import { clusterAvailable, clusterScript, startCluster } from '../support/cluster.ts'
import { runCommand } from '../support/command.ts'
import { canRun } from '../support/e2e/availability.ts'
import { eventually } from '../support/eventually.ts'
import { KubeClient, isAlreadyExists } from '../../src/kube/client.ts'
import { kubeApiSuite } from '../support/kube-api/suite.ts'
import { definitions, widgetDefinition, widgets } from '../support/kube-api/widgets.ts'
import { describe, it } from 'vitest'

if (!canRun('the suite of the Kubernetes API', [clusterAvailable()])) {
  describe('a real API server', () => {
    it.skip('cannot be started here', () => undefined)
  })
} else {
  kubeApiSuite('a real API server', async () => {
    // Compaction every few seconds, so that the suite sees a snapshot forgotten.
    const cluster = await startCluster({ apiServerFlags: ['--etcd-compaction-interval=5s'] })
    const client = KubeClient.fromKubeconfig({ file: cluster.kubeconfigPath })
    await client.create(definitions, widgetDefinition).catch((error: unknown) => {
      if (!isAlreadyExists(error)) throw error
    })
    await eventually('the widgets are served', 60_000, () => client.list(widgets))
    return {
      client,
      kubectl: (args, input) =>
        runCommand(clusterScript, ['kubectl', ...args], {
          env: { ...process.env, CLUSTER_DIR: cluster.dir },
          ...(input !== undefined && { input }),
        }),
      compact: () => undefined,
      close: async () => {
        await client.close()
        await cluster.down()
      },
    }
  })
}

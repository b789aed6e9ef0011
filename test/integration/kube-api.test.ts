// The in-process Kubernetes API against the suite that a real API server passes too.
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { KubeClient } from '../../src/kube/client.ts'
import { runCommand } from '../support/command.ts'
import { canRun, programAvailable } from '../support/e2e/availability.ts'
import { startKubeApi } from '../support/kube-api/kube-api.ts'
import { kubeApiSuite } from '../support/kube-api/suite.ts'
import { widgetKind } from '../support/kube-api/widgets.ts'

const hasKubectl = canRun('kubectl against the in-process API', [programAvailable('kubectl', 'kubernetes-client')])

kubeApiSuite('the in-process API', async () => {
  const api = await startKubeApi({ kinds: [widgetKind] })
  const client = KubeClient.fromKubeconfig({ text: api.kubeconfig() })
  const dir = await mkdtemp(join(tmpdir(), 'kube-api-'))
  const kubeconfig = join(dir, 'kubeconfig')
  await api.writeKubeconfig(kubeconfig)
  // A cache of its own, as kubectl keeps what it discovered by host and port, which others may have used before.
  const env = { ...process.env, KUBECONFIG: kubeconfig, KUBECACHEDIR: join(dir, 'cache') }
  return {
    client,
    kubectl: hasKubectl
      ? (args, input) => runCommand('kubectl', args, { env, ...(input !== undefined && { input }) })
      : undefined,
    compact: () => api.compact(),
    close: async () => {
      await client.close()
      await api.stop()
      await rm(dir, { recursive: true })
    },
  }
})

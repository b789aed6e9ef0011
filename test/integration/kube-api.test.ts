// The in-process Kubernetes API against the suite that a real API server passes too.
import { KubeClient } from '../../src/kube/client.ts'
import { startKubeApi } from '../support/kube-api/kube-api.ts'
import { kubeApiSuite } from '../support/kube-api/suite.ts'
import { widgetKind } from '../support/kube-api/widgets.ts'

kubeApiSuite('the in-process API', async () => {
  const api = await startKubeApi({ kinds: [widgetKind] })
  const client = KubeClient.fromKubeconfig({ text: api.kubeconfig() })
  return {
    client,
    compact: () => api.compact(),
    close: async () => {
      await client.close()
      await api.stop()
    },
  }
})

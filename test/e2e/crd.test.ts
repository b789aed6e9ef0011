// The generated CRDs on a real API server: it judges the corpus as the schemas do, and prints the promised columns.
import { KubeConfig } from '@kubernetes/client-node'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { defaultProxy } from '../../src/api/validate.ts'
import { UndiciTransport } from '../../src/kube/transport.ts'
import { clusterAvailable, startCluster, type Cluster } from '../support/cluster.ts'
import { CommandError } from '../support/command.ts'
import { canRun } from '../support/e2e/availability.ts'
import { corpus, type CorpusEntry } from '../support/corpus/index.ts'
import { judgeEntry } from '../support/corpus/judge.ts'
import { managed, proxyObject } from '../support/corpus/entry.ts'

const runs = canRun('CRDs on a real API server', [clusterAvailable()])

describe.skipIf(!runs)('CRDs on a real API server', () => {
  const namespace = 'crd-corpus'
  let cluster: Cluster | undefined
  let transport: UndiciTransport | undefined

  beforeAll(async () => {
    cluster = await startCluster()
    await cluster.kubectl(['apply', '-f', 'crds'])
    await cluster.kubectl(['wait', '--for=condition=Established', '--timeout=60s', '-f', 'crds'])
    await cluster.kubectl(['create', 'namespace', namespace])
    const kubeConfig = new KubeConfig()
    kubeConfig.loadFromFile(cluster.kubeconfigPath)
    transport = new UndiciTransport({ kubeConfig, maxConnections: 4 })
  })

  afterAll(async () => {
    await transport?.close()
    await cluster?.down()
  })

  const kubectl = (args: readonly string[], input?: string): Promise<string> => {
    if (cluster === undefined) throw new Error('the cluster did not start')
    return cluster.kubectl(args, input === undefined ? {} : { input })
  }

  const judge = (entry: CorpusEntry) => {
    if (transport === undefined) throw new Error('the cluster did not start')
    return judgeEntry(transport, namespace, entry)
  }

  it.each(corpus.map((entry) => [entry.name, entry] as const))('%s', async (_name, entry) => {
    const { answer, complaints } = await judge(entry)
    if (entry.verdict.kind === 'good') {
      expect(complaints).toEqual([])
      if (entry.kind === 'Proxy') expect(answer.body['spec']).toEqual(defaultProxy(entry.object)['spec'])
      if (entry.object['status'] !== undefined) expect(answer.body['status'] ?? {}).toEqual(entry.object['status'])
      return
    }
    const { field, says } = entry.verdict
    expect(answer.status).toBeOneOf([400, 422])
    expect(JSON.stringify(answer.body).length, 'the refusal repeats a value').toBeLessThan(4096)
    const about = complaints.filter(
      (complaint) => complaint.startsWith(`${field}:`) || complaint.includes(`"${field}"`),
    )
    expect(about, complaints.join('\n')).not.toEqual([])
    if (says !== undefined) expect(about.join('\n')).toContain(says)
  })

  it('takes the sample', async () => {
    const printed = await kubectl(['apply', '--dry-run=server', '-f', 'hack/samples/proxy_kvm2.yaml'])
    expect(printed).toContain('proxy.egressproxies.dev/proxy-kvm2-sample created')
  })

  it('prints the promised columns', async () => {
    const object = proxyObject(managed, { metadata: { name: 'columns', namespace } })
    await kubectl(['apply', '-f', '-'], JSON.stringify(object))
    const header = async (args: readonly string[]) => (await kubectl(args)).split('\n')[0]?.trim().split(/\s+/)
    const inNamespace = ['-n', namespace, 'columns']
    expect(await header(['get', 'px', ...inNamespace])).toEqual('NAME MODE PROVIDER PHASE IP HEALTHY AGE'.split(' '))
    expect(await header(['get', 'px', '-o', 'wide', ...inNamespace])).toEqual(
      'NAME MODE PROVIDER PHASE IP HEALTHY AGE ZONE PROVIDERID EGRESSIP'.split(' '),
    )
    expect(await header(['get', 'ph'])).toEqual('NAME TYPE READY TARGETS REASON CHECKED AGE'.split(' '))
  })

  it('refuses 200 KiB of cloud-init by kubectl apply with the way out, and without repeating it', async () => {
    const secret = 'correct-horse-battery-staple\n'
    const cloudInit = secret.repeat(Math.ceil((200 * 1024) / secret.length))
    const object = proxyObject({ ...managed, cloudInit }, { metadata: { name: 'too-big', namespace } })
    const refusal: unknown = await kubectl(['apply', '-f', '-'], JSON.stringify(object)).catch(
      (error: unknown) => error,
    )
    expect(refusal).toBeInstanceOf(CommandError)
    const { stderr } = (refusal as CommandError).result
    expect(stderr).toContain('spec.cloudInit')
    expect(stderr).toContain('put it in a Secret and name that in cloudInitFrom')
    expect(stderr.includes(secret.trim()), 'the refusal repeats the cloud-init').toBe(false)
  })
})

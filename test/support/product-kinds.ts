// Proxy and ProviderHealth for the in-process Kubernetes API, made of the same schemas as the CRDs; no API server and no operator.
import { z } from 'zod'
import { customResourceDefinitions } from '../../src/api/crd.ts'
import { providerHealthKind, proxyKind } from '../../src/api/group.ts'
import {
  defaultProviderHealth,
  defaultProxy,
  validateProviderHealth,
  validateProxy,
  type RawObject,
} from '../../src/api/validate.ts'
import type { Json } from './kube-api/json.ts'
import { startKubeApi, type CustomKind, type KubeApi, type KubeApiOptions } from './kube-api/kube-api.ts'

type Judge = Required<Pick<CustomKind, 'validate'>> & { readonly setDefaults: (object: RawObject) => RawObject }

const judges: Readonly<Record<string, Judge>> = {
  [proxyKind.kind]: { setDefaults: defaultProxy, validate: validateProxy },
  [providerHealthKind.kind]: { setDefaults: defaultProviderHealth, validate: validateProviderHealth },
}

/** The part of a CRD that decides what is served where. */
const definitionSchema = z.object({
  group: z.string(),
  scope: z.enum(['Namespaced', 'Cluster']),
  names: z.object({ kind: z.string(), plural: z.string(), shortNames: z.array(z.string()) }),
  versions: z.tuple([
    z.object({
      name: z.string(),
      additionalPrinterColumns: z.array(
        z.object({ name: z.string(), type: z.string(), jsonPath: z.string(), priority: z.number().exactOptional() }),
      ),
      subresources: z.object({ status: z.object() }),
    }),
  ]),
})

/** Every kind that `crds/` defines. */
export function productKinds(): readonly CustomKind[] {
  return customResourceDefinitions().map((definition) => {
    const { group, scope, names, versions } = definitionSchema.parse(definition.spec)
    const [version] = versions
    const judge = judges[names.kind]
    if (judge === undefined) throw new Error(`nothing here judges objects of kind ${names.kind}`)
    return {
      group,
      version: version.name,
      plural: names.plural,
      kind: names.kind,
      namespaced: scope === 'Namespaced',
      shortNames: names.shortNames,
      columns: version.additionalPrinterColumns,
      prepare: (object: Json) => ({ ...judge.setDefaults(object) }),
      validate: judge.validate,
    }
  })
}

/** An API server with our kinds, listening. */
export async function startProductApi(options: Omit<KubeApiOptions, 'kinds'> = {}): Promise<KubeApi> {
  return await startKubeApi({ ...options, kinds: productKinds() })
}

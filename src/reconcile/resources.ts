// Where the API server serves the kinds that the reconcilers read and write; not their schemas.
import { apiGroup, apiVersionName, providerHealthKind, proxyKind } from '../api/group.ts'
import type { ResourceType } from '../kube/object.ts'

export const proxyResource: ResourceType = {
  group: apiGroup,
  version: apiVersionName,
  plural: proxyKind.plural,
  kind: proxyKind.kind,
  namespaced: true,
}

export const providerHealthResource: ResourceType = {
  group: apiGroup,
  version: apiVersionName,
  plural: providerHealthKind.plural,
  kind: providerHealthKind.kind,
  namespaced: false,
}

export const secretResource: ResourceType = {
  group: '',
  version: 'v1',
  plural: 'secrets',
  kind: 'Secret',
  namespaced: true,
}

// The documents by which kubectl and other clients find out what the in-process API serves.
import type { Json } from './json.ts'
import type { ServedKind } from './kinds.ts'

/** The document at `path`, or undefined when it is none of discovery's. */
export function discoveryDocument(kinds: readonly ServedKind[], path: string): Json | undefined {
  const groups = [...new Set(kinds.map((kind) => kind.group))].filter((group) => group !== '')
  switch (path) {
    case '/version':
      return { major: '1', minor: '34', gitVersion: 'v1.34.0-in-process', platform: 'node' }
    case '/api':
      return { kind: 'APIVersions', versions: ['v1'], serverAddressByClientCIDRs: [] }
    case '/apis':
      return { kind: 'APIGroupList', apiVersion: 'v1', groups: groups.map((group) => groupDocument(kinds, group)) }
    case '/openapi/v3':
      return {
        paths: Object.fromEntries(groupVersions(kinds).map((gv) => [gv, { serverRelativeURL: `/openapi/v3/${gv}` }])),
      }
    default:
      return openApiDocument(kinds, path) ?? collectionDocument(kinds, groups, path)
  }
}

/** `api/v1`, `apis/group/version`. */
function groupVersions(kinds: readonly ServedKind[]): string[] {
  return [...new Set(kinds.map(groupVersionPath))]
}

function groupVersionPath(kind: ServedKind): string {
  return kind.group === '' ? `api/${kind.version}` : `apis/${kind.group}/${kind.version}`
}

/** Says no more than that the server itself validates fields, which is what kubectl looks for before it applies. */
function openApiDocument(kinds: readonly ServedKind[], path: string): Json | undefined {
  const served = kinds.filter((kind) => path === `/openapi/v3/${groupVersionPath(kind)}`)
  if (served.length === 0) return undefined
  const operation = (kind: ServedKind) => ({
    parameters: [{ name: 'fieldValidation', in: 'query', schema: { type: 'string' } }],
    responses: {},
    'x-kubernetes-group-version-kind': { group: kind.group, version: kind.version, kind: kind.kind },
  })
  const paths = served.map((kind) => [
    `/${groupVersionPath(kind)}${kind.namespaced ? '/namespaces/{namespace}' : ''}/${kind.plural}/{name}`,
    { patch: operation(kind) },
  ])
  return { openapi: '3.0.0', info: { title: 'Kubernetes', version: 'v1' }, paths: Object.fromEntries(paths) as Json }
}

function collectionDocument(kinds: readonly ServedKind[], groups: readonly string[], path: string): Json | undefined {
  if (path === '/api/v1') return resourceList(kinds, '', 'v1')
  const [group, version] = /^\/apis\/([^/]+)(?:\/([^/]+))?$/.exec(path)?.slice(1) ?? []
  if (group === undefined || !groups.includes(group)) return undefined
  if (version === undefined) return { kind: 'APIGroup', apiVersion: 'v1', ...groupDocument(kinds, group) }
  return resourceList(kinds, group, version)
}

function groupDocument(kinds: readonly ServedKind[], group: string): Json {
  const names = [...new Set(kinds.filter((kind) => kind.group === group).map((kind) => kind.version))]
  const versions = names.map((version) => ({ groupVersion: `${group}/${version}`, version }))
  return { name: group, versions, preferredVersion: versions[0] }
}

function resourceList(kinds: readonly ServedKind[], group: string, version: string): Json | undefined {
  const served = kinds.filter((kind) => kind.group === group && kind.version === version)
  if (served.length === 0) return undefined
  const verbs = ['create', 'get', 'list', 'patch', 'update', 'watch']
  return {
    kind: 'APIResourceList',
    apiVersion: 'v1',
    groupVersion: group === '' ? version : `${group}/${version}`,
    resources: served.flatMap((kind) => [
      {
        name: kind.plural,
        singularName: kind.kind.toLowerCase(),
        namespaced: kind.namespaced,
        kind: kind.kind,
        verbs: kind.deletable ? [...verbs, 'delete'] : verbs,
        shortNames: kind.shortNames,
      },
      ...(kind.status
        ? [
            {
              name: `${kind.plural}/status`,
              singularName: '',
              namespaced: kind.namespaced,
              kind: kind.kind,
              verbs: ['get', 'patch', 'update'],
            },
          ]
        : []),
    ]),
  }
}

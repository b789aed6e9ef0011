// Writes crds/*.yaml from the schemas in src/api; with --check it only says whether they are up to date, and exits 1 if not.
import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { stringify } from 'yaml'
import { customResourceDefinitions, type CustomResourceDefinition } from '../src/api/crd.ts'
import { apiGroup } from '../src/api/group.ts'

const folder = join(import.meta.dirname, '..', 'crds')

function fileName(crd: CustomResourceDefinition): string {
  const [plural = ''] = crd.metadata.name.split('.')
  return `${apiGroup}_${plural}.yaml`
}

function render(crd: CustomResourceDefinition): string {
  const header =
    '# Generated from src/api by hack/gen-crds.ts. Do not edit: change the schema and run `make generate`.\n'
  return header + stringify(crd, { lineWidth: 0, aliasDuplicateObjects: false })
}

async function existing(): Promise<Map<string, string>> {
  await mkdir(folder, { recursive: true })
  const names = (await readdir(folder)).filter((name) => name.endsWith('.yaml'))
  return new Map(
    await Promise.all(names.map(async (name) => [name, await readFile(join(folder, name), 'utf8')] as const)),
  )
}

const wanted = new Map(customResourceDefinitions().map((crd) => [fileName(crd), render(crd)]))
const found = await existing()
const outdated = [...wanted].filter(([name, content]) => found.get(name) !== content).map(([name]) => name)
const stray = [...found.keys()].filter((name) => !wanted.has(name))

if (process.argv.includes('--check')) {
  for (const name of [...outdated, ...stray]) console.error(`crds/${name} is out of date: run \`make generate\``)
  if (outdated.length + stray.length > 0) process.exitCode = 1
  else console.log(`crds/: ${wanted.size} files up to date`)
} else {
  for (const name of outdated) await writeFile(join(folder, name), wanted.get(name) ?? '')
  for (const name of stray) await rm(join(folder, name))
  console.log(`crds/: ${outdated.length} written, ${stray.length} removed, ${wanted.size} in all`)
}

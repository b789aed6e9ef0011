import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { validateConfigCommand } from '../../../src/config/validate-command.ts'

const sample = join(import.meta.dirname, '../../../hack/samples/providers-config.yaml')
let folder = ''

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'validate-config-'))
})
afterAll(() => rm(folder, { recursive: true }))

async function run(file: string) {
  const printed = { out: '', err: '' }
  const status = await validateConfigCommand(
    file,
    { write: (text) => (printed.out += text) },
    { write: (text) => (printed.err += text) },
  )
  return { status, ...printed }
}

describe('validate-config', () => {
  it('says what a valid file holds', async () => {
    expect(await run(sample)).toEqual({
      status: 0,
      out: `${sample}: valid, 1 provider: kvm2-home (kvm2)\n`,
      err: '',
    })
  })

  it('prints a line per mistake and exits 1', async () => {
    const file = join(folder, 'bad.yaml')
    await writeFile(file, 'providers:\n  - name: a\n    type: gcp\n  - nam: b\n    type: kvm2\n    kvm2: {}\n')
    const { status, out, err } = await run(file)
    const lines = err.trimEnd().split('\n')
    expect({ status, out }).toEqual({ status: 1, out: '' })
    expect(lines).toContain(`${file}:3: providers[0] (a): type "gcp" is unknown; supported: kvm2, kvm`)
    expect(lines).toContain(`${file}:4: providers[1]: unknown key "nam", did you mean "name"?`)
    expect(lines).toContain(`${file}:6: providers[1]: kvm2: hosts is required`)
    expect(lines.at(-1)).toBe(`${file}: ${lines.length - 1} mistakes`)
  })

  it('names a file that is not there', async () => {
    const file = join(folder, 'nowhere.yaml')
    const { status, err } = await run(file)
    expect(status).toBe(1)
    expect(err).toMatch(/nowhere\.yaml: cannot be read: ENOENT/)
  })

  it('prints a fault of syntax with line and column', async () => {
    const file = join(folder, 'syntax.yaml')
    await writeFile(file, 'providers:\n  - name: a\n   type: b\n')
    const { status, err } = await run(file)
    expect(status).toBe(1)
    expect(err).toMatch(/syntax\.yaml:3:\d+: not valid YAML: /)
  })
})

// The part of the suite that a person does with kubectl: apply, look, delete.
import { describe, expect, it } from 'vitest'
import type { SuiteContext } from './suite.ts'
import { widgets } from './widgets.ts'

export function suiteOfKubectl(use: () => SuiteContext): void {
  const manifest = (spec: object) =>
    JSON.stringify({
      apiVersion: `${widgets.group}/${widgets.version}`,
      kind: widgets.kind,
      metadata: { name: 'applied', namespace: use().namespace },
      spec,
    })

  describe('kubectl', () => {
    const run = async (args: readonly string[], input?: string) => {
      const { kubectl } = use()
      if (kubectl === undefined) throw new Error('there is no kubectl')
      const { exitCode, stdout, stderr } = await kubectl(args, input)
      return { exitCode, text: `${stdout}${stderr}`.trim() }
    }
    const apply = async (spec: object) => await run(['apply', '-f', '-'], manifest(spec))

    it('applies, changes, and is refused what is not valid', async ({ skip }) => {
      const { client, namespace, kubectl } = use()
      skip(kubectl === undefined, 'kubectl is not installed')
      const name = 'widget.suite.egressproxies.dev/applied'
      expect(await apply({ size: 2, color: 'red' })).toEqual({ exitCode: 0, text: `${name} created` })
      expect(await apply({ size: 2, color: 'red' })).toEqual({ exitCode: 0, text: `${name} unchanged` })
      expect(await apply({ size: 3 })).toEqual({ exitCode: 0, text: `${name} configured` })
      const applied = await client.get(widgets, { namespace, name: 'applied' })
      expect(applied['spec']).toEqual({ size: 3 })
      const bad = await apply({ size: 0 })
      expect(bad.exitCode).toBe(1)
      expect(bad.text).toContain('The Widget "applied" is invalid: spec.size: Invalid value: 0')
      const typo = await apply({ size: 3, colour: 'red' })
      expect(typo.exitCode).toBe(1)
      expect(typo.text).toContain('strict decoding error: unknown field "spec.colour"')
    })

    it('shows the columns of the kind, by any of its names, and deletes', async ({ skip }) => {
      const { client, namespace, kubectl } = use()
      skip(kubectl === undefined, 'kubectl is not installed')
      await apply({ size: 4, color: 'blue' })
      await client.patchStatus(widgets, { namespace, name: 'applied' }, { phase: 'Ready' })
      const columns = async (...args: string[]) =>
        (await run(['get', ...args, 'applied', '-n', namespace])).text.split('\n').map((line) => line.split(/\s+/))
      const [head, row] = await columns('wd')
      expect(head).toEqual(['NAME', 'SIZE', 'PHASE', 'AGE'])
      expect(row?.slice(0, 3)).toEqual(['applied', '4', 'Ready'])
      expect(row?.[3]).toMatch(/^\d+[sm]/)
      const [wide, wideRow] = await columns('widgets', '-o', 'wide')
      expect(wide).toEqual(['NAME', 'SIZE', 'PHASE', 'COLOR', 'AGE'])
      expect(wideRow?.slice(0, 4)).toEqual(['applied', '4', 'Ready', 'blue'])
      expect(await run(['delete', 'widget', 'applied', '-n', namespace])).toMatchObject({ exitCode: 0 })
      expect((await run(['get', 'wd', 'applied', '-n', namespace])).text).toBe(
        'Error from server (NotFound): widgets.suite.egressproxies.dev "applied" not found',
      )
    })
  })
}

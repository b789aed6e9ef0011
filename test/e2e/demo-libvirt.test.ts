// `make demo-libvirt` as its users see it: a real control plane, host and VM, a story that is true, and nothing left of either.
import { existsSync } from 'node:fs'
import { dirname, resolve } from 'node:path'
import { describe, expect, it } from 'vitest'
import { clusterAvailable } from '../support/cluster.ts'
import { runCommand } from '../support/command.ts'
import { canRun } from '../support/e2e/availability.ts'
import { libvirtHostAvailable } from '../support/libvirt-host.ts'

const runs = canRun('the demo on a real libvirt host', [clusterAvailable(), libvirtHostAvailable()])
const script = resolve(import.meta.dirname, '../../hack/demo-libvirt.ts')

/** Programs and images may have to be made first. */
const budgetMs = 3_000_000

describe.skipIf(!runs)('make demo-libvirt', () => {
  it(
    'makes a proxy of a VM, uses, changes and deletes it, and ends by itself',
    async () => {
      const { exitCode, stdout, stderr } = await runCommand(process.execPath, [script], { timeoutMs: budgetMs })

      expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: '' })
      const address = /proxy-kvm2-sample +Managed +kvm2-home +Ready +([0-9.]+) +True/.exec(stdout)?.[1] ?? 'none'
      expect(address).not.toMatch(/^127\./)
      expect(stdout).toContain(`200; the page saw a client at ${address}, which is the VM`)
      expect(stdout).toContain(`200; TLS from end to end, and the page saw ${address}`)
      const [first, second] = [...stdout.matchAll(/VM (?:before|after): +libvirt id (\d+)/g)].map((match) => match[1])
      expect(first).toBeDefined()
      expect(second).not.toBe(first)
      const [, instance = 'none', left = ''] =
        /Of (proxy-[0-9a-f]{20}) nothing is left on the host:([\s\S]*)That was all/.exec(stdout) ?? []
      expect(left).toContain('base-tiny.qcow2')
      expect(left).not.toContain(instance)
      const [, folder = 'none'] = /its log is (\S+)\.log\n/.exec(stdout) ?? []
      expect([existsSync(dirname(folder)), existsSync(folder), existsSync(`${folder}.log`)]).toEqual([
        true,
        false,
        false,
      ])
    },
    budgetMs + 60_000,
  )
})

// The demo as its users see it: a process with an exit status that tells a story, beside another one if need be.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { resolve } from 'node:path'
import { describe, expect, it } from 'vitest'
import { Audience } from '../../hack/demo/audience.ts'
import type { Proxy } from '../../src/api/proxy.ts'
import { KubeClient } from '../../src/kube/client.ts'
import { systemClock } from '../../src/lib/clock.ts'
import { proxyResource } from '../../src/reconcile/resources.ts'
import { sampleProxy } from '../support/e2e/samples.ts'
import { eventually } from '../support/eventually.ts'
import { startProductApi } from '../support/product-kinds.ts'

const script = resolve(import.meta.dirname, '../../hack/demo.ts')
const budgetMs = 110_000

interface Demo {
  readonly pid: number
  stdout(): string
  stderr(): string
  /** Waits until a line of the story matches; returns what its groups caught. */
  line(pattern: RegExp): Promise<string[]>
  /** Resolves to the exit status. */
  readonly ended: Promise<number | null>
}

function startDemo(env: Readonly<Record<string, string>> = {}): Demo {
  const child = spawn(process.execPath, [script], {
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const text = { stdout: '', stderr: '' }
  child.stdout.setEncoding('utf8').on('data', (chunk: string) => (text.stdout += chunk))
  child.stderr.setEncoding('utf8').on('data', (chunk: string) => (text.stderr += chunk))
  if (child.pid === undefined) throw new Error('the demo was not started')
  return {
    pid: child.pid,
    stdout: () => text.stdout,
    stderr: () => text.stderr,
    line: (pattern) =>
      eventually(`the demo says ${String(pattern)}`, budgetMs, () => {
        const match = pattern.exec(text.stdout)
        if (match === null && child.exitCode !== null) throw new Error(`ended:\n${text.stdout}${text.stderr}`)
        return Promise.resolve(match?.slice(1))
      }),
    ended: once(child, 'close').then(() => child.exitCode),
  }
}

/** Rows of the table about one Proxy, as cells. */
function rows(story: string, name: string): string[][] {
  return story
    .split('\n')
    .filter((line) => line.startsWith(`  ${name} `) && line.includes(' kvm2-home '))
    .map((line) => line.trim().split(/\s+/))
}

describe('make demo', () => {
  it('makes proxies, uses, changes and deletes them, and ends by itself', async () => {
    const demo = startDemo()

    expect({ status: await demo.ended, stderr: demo.stderr() }).toEqual({ status: 0, stderr: '' })
    const story = demo.stdout()
    for (const name of ['proxy-kvm2-sample', 'proxy-kvm2-second', 'proxy-kvm2-third']) {
      const seen = rows(story, name)
      expect(seen.map((cells) => cells[3])).toEqual(expect.arrayContaining(['Provisioning', 'Ready']))
      expect(seen).toContainEqual([
        ...[name, 'Managed', 'kvm2-home', 'Ready', expect.stringMatching(/^127\.0\.\d+\.\d+$/) as string, 'True'],
        expect.stringMatching(/^\d+s$/) as string,
      ])
    }
    const chosen = /\/v1\/proxies\/random\n +http:\/\/(127\.[0-9.]+):3128 /.exec(story)?.[1]
    expect(chosen).toBeDefined()
    expect(story).toContain(`200; the page saw a client at ${chosen ?? ''}, which is the VM`)
    expect(story).toContain(`200; TLS from end to end, and the page saw ${chosen ?? ''}`)
    const [before, after] = [...story.matchAll(/VM (?:before|after): +libvirt id (\d+)/g)].map((match) => match[1])
    expect(before).toBeDefined()
    expect(after).not.toBe(before)
    expect(story).toContain('proxy-kvm2-third is gone')
    const deleted = /Of (proxy-[0-9a-f]{20}) nothing is left on the host:([\s\S]*)That was all/.exec(story)
    expect(deleted?.[2]).toContain('base-debian-13.qcow2')
    expect(deleted?.[2]).not.toContain(deleted?.[1])
    expect(story).toContain('make demo KEEP=1')
  })

  it('runs twice at once', async () => {
    const demos = [startDemo(), startDemo()]

    expect(await Promise.all(demos.map((demo) => demo.ended))).toEqual([0, 0])
    expect(demos.map((demo) => demo.stderr())).toEqual(['', ''])
  })

  it('with KEEP=1 goes on until Ctrl-C, with a discovery API and a kubeconfig to try', async () => {
    const demo = startDemo({ KEEP: '1' })
    const [list = ''] = await demo.line(/curl -s (http:\/\/\S+\/v1\/proxies)\n/)
    const [kubeconfig = ''] = await demo.line(/export KUBECONFIG=(\S+)\n/)

    expect(await (await fetch(list)).json()).toMatchObject({ count: 2 })
    const client = KubeClient.fromKubeconfig({ text: await readFile(kubeconfig, 'utf8') })
    const { items } = await client.list<Proxy>(proxyResource)
    await client.close()
    expect(items.map(({ metadata, status }) => [metadata.name, status?.phase])).toEqual([
      ['proxy-kvm2-sample', 'Ready'],
      ['proxy-kvm2-second', 'Ready'],
    ])
    process.kill(demo.pid, 'SIGINT')
    expect({ status: await demo.ended, stderr: demo.stderr() }).toEqual({ status: 0, stderr: '' })
    await expect(readFile(kubeconfig)).rejects.toThrow('ENOENT')
  })

  it('ends early on Ctrl-C', async () => {
    const demo = startDemo()
    const [log = ''] = await demo.line(/its log is (\S+)\n/)
    await demo.line(/ (Provisioning) /)

    process.kill(demo.pid, 'SIGINT')
    expect(await demo.ended).toBe(130)
    expect(demo.stderr()).toContain('stopped by SIGINT')
    await expect(readFile(log)).rejects.toThrow('ENOENT')
  })
})

describe('what does not come true', () => {
  it('ends the wait: with where the Proxies stand, or why it can never come', async () => {
    await using api = await startProductApi()
    const client = KubeClient.fromKubeconfig({ text: api.kubeconfig() })
    const said: string[] = []
    const { signal } = new AbortController()
    const audience = new Audience({
      client,
      clock: systemClock,
      say: (line) => said.push(line),
      signal,
      budgetMs: 2000,
    })
    audience.start()
    try {
      await client.create(proxyResource, { ...(await sampleProxy('lonely', {})) })
      const ready = audience.until('the Proxy is Ready', ([proxy]) =>
        proxy?.status?.phase === 'Ready' ? proxy : undefined,
      )

      await expect(ready).rejects.toThrow('not within 2 s: the Proxy is Ready\nlonely: no phase yet')
      expect(said.at(-1)).toContain('lonely')

      const hopeless = audience.until('it cannot be', ([proxy]) => {
        if (proxy === undefined) throw new Error('somebody deleted it')
        return undefined
      })
      await client.delete(proxyResource, { namespace: 'default', name: 'lonely' })
      await expect(hopeless).rejects.toThrow('somebody deleted it')
      expect(said.at(-1)).toContain('lonely is gone')
    } finally {
      await audience.stop()
      await client.close()
    }
  })
})

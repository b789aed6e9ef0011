// The names of instances and of where they are.
import { createHash } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { formatProviderID, instanceName, parseProviderID } from '../../../src/provider/names.ts'

describe('instanceName', () => {
  it('is proxy- and the first 20 hex digits over installation, namespace and name', () => {
    const digest = createHash('sha256').update('home/default/proxy-a').digest('hex')
    expect(instanceName({ installation: 'home', namespace: 'default', name: 'proxy-a' })).toBe(
      `proxy-${digest.slice(0, 20)}`,
    )
  })

  it('differs by each of its parts', () => {
    const parts = { installation: 'i', namespace: 'n', name: 'a' }
    const names = [
      parts,
      { ...parts, installation: 'j' },
      { ...parts, namespace: 'o' },
      { ...parts, name: 'b' },
      { ...parts, release: 'hosts/x/domains/y' },
    ].map(instanceName)
    expect(new Set(names).size).toBe(names.length)
    for (const name of names) expect(name).toMatch(/^proxy-[0-9a-f]{20}$/)
  })
})

describe('providerID', () => {
  it('comes back as it went in', () => {
    const location = { host: 'beelink.lan_1', domain: 'renamed by-hand'.replace(' ', '_') }
    expect(parseProviderID(formatProviderID(location))).toEqual(location)
  })

  it.each([
    '',
    'hosts/a',
    'hosts//domains/b',
    'hosts/a/domains/',
    'hosts/a/domains/b/c',
    'nodes/a/qemu/1',
    'hosts/a b/domains/c',
  ])('refuses %j', (text) => {
    expect(parseProviderID(text)).toBeUndefined()
  })
})

import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { stringify } from 'yaml'
import { loadProvidersConfig } from '../../../src/config/load.ts'
import { parseProvidersConfig, type ProvidersConfig } from '../../../src/config/providers-config.ts'
import { formatProblem } from '../../../src/config/validate-command.ts'

const samples = join(import.meta.dirname, '../../../hack/samples')

/** The least that a kvm2 entry needs. */
function entry(block: object = {}, more: object = {}): object {
  return {
    name: 'kvm-a',
    type: 'kvm2',
    kvm2: {
      sshKeyFile: '/keys/id',
      knownHostsFile: '/keys/known_hosts',
      machineTypes: { small: { vcpus: 1, memoryMiB: 1024 } },
      hosts: [host()],
      ...block,
    },
    ...more,
  }
}

function host(more: object = {}): object {
  return { name: 'a', address: 'kvm-1.example.net:22', user: 'operator', bridge: 'br0', ...more }
}

function valid(...entries: object[]): ProvidersConfig {
  const result = parseProvidersConfig(stringify({ providers: entries }))
  if (result.kind === 'invalid') throw new Error(JSON.stringify(result.problems))
  return result.config
}

/** The block of the first entry. */
function blockOf(config: ProvidersConfig) {
  const [first] = config.providers
  if (first?.type !== 'kvm2') throw new Error('the first entry is no kvm2')
  return first.kvm2
}

/** The mistakes as a person sees them, without file and line. */
function mistakes(text: string): string[] {
  const result = parseProvidersConfig(text)
  return result.kind === 'valid' ? [] : result.problems.map(({ path, message }) => formatProblem('', { path, message }))
}

const mistakesOf = (...entries: unknown[]) => mistakes(stringify({ providers: entries }))

describe('a valid providers config', () => {
  it('has every default applied, and units in its names', () => {
    const { providers } = valid(entry())
    expect(providers).toEqual([
      {
        name: 'kvm-a',
        type: 'kvm2',
        maxConcurrentCreates: 4,
        configHash: expect.stringMatching(/^[0-9a-f]{64}$/) as unknown,
        kvm2: {
          sshKeyFile: '/keys/id',
          hostKeys: { kind: 'knownHosts', file: '/keys/known_hosts' },
          diskSizeGiB: 10,
          installGuestAgent: true,
          images: new Map(),
          machineTypes: new Map([['small', { vcpus: 1, memoryMiB: 1024 }]]),
          hosts: [
            {
              name: 'a',
              address: 'kvm-1.example.net:22',
              ssh: { host: 'kvm-1.example.net', port: 22 },
              user: 'operator',
              socketPaths: ['/var/run/libvirt/libvirt-sock', '/var/run/libvirt/virtqemud-sock'],
              pool: 'default',
              nic: { kind: 'bridge', bridge: 'br0' },
              drain: false,
            },
          ],
          adoptFrom: [],
        },
      },
    ])
  })

  it('keeps what is written', () => {
    const images = {
      'debian-13': { url: 'https://x.example.net/d', sha256: 'AB'.repeat(32), format: 'raw', firmware: 'bios' },
    }
    const written = {
      insecureIgnoreHostKey: true,
      diskSizeGb: 20,
      installGuestAgent: false,
      vendorData: '#!/bin/sh\n',
      images,
    }
    const hosts = [host({ address: '[2001:db8::1]:2222', socket: '/run/s', pool: 'p' }), host({ name: 'b' })]
    const config = valid(entry({ ...written, hosts }, { maxConcurrentCreates: 1 }))
    expect(config.providers[0]?.maxConcurrentCreates).toBe(1)
    expect(blockOf(config)).toMatchObject({
      hostKeys: { kind: 'insecureIgnore' },
      diskSizeGiB: 20,
      installGuestAgent: false,
      vendorData: '#!/bin/sh\n',
      images: new Map([['debian-13', { ...images['debian-13'], sha256: 'ab'.repeat(32) }]]),
    })
    expect(blockOf(config).hosts.map(({ name }) => name)).toEqual(['a', 'b'])
    expect(blockOf(config).hosts[0]).toMatchObject({
      ssh: { host: '2001:db8::1', port: 2222 },
      socketPaths: ['/run/s'],
      pool: 'p',
    })
  })

  it('takes a network in place of a bridge, a host that drains and a type to take over from', () => {
    const hosts = [host({ bridge: undefined, network: 'default', drain: true })]
    const block = blockOf(valid(entry({ hosts, adoptFrom: ['kvm'] })))
    expect(block.hosts[0]).toMatchObject({ nic: { kind: 'network', network: 'default' }, drain: true })
    expect(block.adoptFrom).toEqual(['kvm'])
  })

  it('takes an empty value for an absent one, an empty list, merge keys, and JSON', () => {
    expect(blockOf(valid(entry({ images: null, vendorData: '' })))).not.toHaveProperty('vendorData')
    expect(valid()).toEqual({ providers: [] })
    expect(mistakes(JSON.stringify({ providers: [entry()] }))).toEqual([])
    const [first] = stringify({ providers: [entry()] })
      .split('providers:\n')
      .slice(1)
    const merged = `providers:\n${String(first).replace('- name', '- &a\n    name')}  - <<: *a\n    name: kvm-b\n`
    expect(parseProvidersConfig(merged)).toMatchObject({
      config: { providers: [{ name: 'kvm-a' }, { name: 'kvm-b' }] },
    })
  })

  it('takes the samples', async () => {
    const result = await loadProvidersConfig(join(samples, 'providers-config.yaml'))
    expect(result).toMatchObject({ kind: 'valid', config: { providers: [{ name: 'kvm2-home' }] } })
    const uncommented = (await readFile(join(samples, 'providers-config.yaml'), 'utf8'))
      .replace('# maxConcurrentCreates', 'maxConcurrentCreates')
      .replaceAll(/bridge: br0|# (?=network:)/g, '')
      .replaceAll(
        /# (insecureIgnoreHostKey|diskSizeGb|installGuestAgent|format|firmware|socket|pool|drain|adoptFrom):/g,
        '$1:',
      )
    expect(mistakes(uncommented)).toEqual([])
  })
})

describe('an entry of type kvm', () => {
  const kvm = { ...entry(), type: 'kvm', kvm2: undefined, kvm: { ...(entry() as { kvm2: object }).kvm2 } }

  it('has the fields of kvm2 in a block of its own name, and another hash', () => {
    const [first] = valid(kvm).providers
    const [second] = valid(entry()).providers
    if (first?.type !== 'kvm' || second?.type !== 'kvm2') throw new Error('other types')
    expect(first.kvm).toEqual(second.kvm2)
    expect(first.configHash).not.toBe(second.configHash)
  })

  it('tells mistakes with the name of its block', () => {
    expect(mistakesOf({ ...kvm, kvm: { ...kvm.kvm, hosts: [host({ bridge: undefined })] } })).toEqual([
      'providers[0] (kvm-a): kvm.hosts[0]: bridge is required',
    ])
    expect(mistakesOf({ ...kvm, kvm: { ...kvm.kvm, adoptFrom: ['kvm'] } })).toEqual([
      expect.stringMatching(/^providers\[0\] \(kvm-a\): kvm: unknown key "adoptFrom"/),
    ])
    expect(mistakesOf({ ...kvm, kvm: undefined })).toEqual(['providers[0] (kvm-a): kvm is required'])
    expect(mistakesOf({ ...kvm, kvm2: {} })).toEqual(['providers[0] (kvm-a): the block of type kvm is kvm:, not kvm2:'])
  })
})

describe('configHash', () => {
  const hashOf = (...args: Parameters<typeof entry>) => valid(entry(...args)).providers[0]?.configHash

  it('is the same for the same meaning', () => {
    const reordered = valid({ ...entry(), maxConcurrentCreates: 4, name: 'kvm-a' }).providers[0]
    expect(reordered?.configHash).toBe(hashOf())
    expect(hashOf({ diskSizeGb: 10, images: {} })).toBe(hashOf())
    const two = { a: { vcpus: 1, memoryMiB: 1 }, b: { vcpus: 2, memoryMiB: 2 } }
    expect(hashOf({ machineTypes: { b: two.b, a: two.a } })).toBe(hashOf({ machineTypes: two }))
  })

  it('changes with anything that means something', () => {
    const variants = [
      hashOf(),
      hashOf({ sshKeyFile: '/other' }),
      hashOf({ diskSizeGb: 11 }),
      hashOf({ images: { a: { url: 'http://a.example.net/' } } }),
      hashOf({ images: { b: { url: 'http://a.example.net/' } } }),
      hashOf({ hosts: [host({ pool: 'p' })] }),
      hashOf({ hosts: [host({ drain: true })] }),
      hashOf({ hosts: [host({ bridge: undefined, network: 'br0' })] }),
      hashOf({ adoptFrom: ['kvm'] }),
      hashOf({ hosts: [host(), host({ name: 'b' })] }),
      hashOf({ hosts: [host({ name: 'b' }), host()] }),
      hashOf({ insecureIgnoreHostKey: true }),
      hashOf({}, { maxConcurrentCreates: 5 }),
    ]
    expect(new Set(variants).size).toBe(variants.length)
  })
})

const at = 'providers[0] (kvm-a): '

describe('a mistake in the block is told in the words of the reference', () => {
  it.each<[string, object, string]>([
    ['no bridge', { hosts: [host({ bridge: undefined })] }, 'kvm2.hosts[0]: bridge is required'],
    [
      'bridge and network',
      { hosts: [host({ network: 'default' })] },
      'kvm2.hosts[0]: network "default" cannot stand beside bridge: an instance has one network interface',
    ],
    [
      'network of two words',
      { hosts: [host({ bridge: undefined, network: 'a b' })] },
      'kvm2.hosts[0]: network "a b" must be the name of a libvirt network, without blanks and slashes',
    ],
    ['drain', { hosts: [host({ drain: 'yes' })] }, 'kvm2.hosts[0]: drain must be true or false, not "yes"'],
    ['adoptFrom', { adoptFrom: ['kvm2'] }, 'kvm2.adoptFrom[0]: must be kvm, not "kvm2"'],
    ['no user', { hosts: [host(), host({ name: 'b', user: null })] }, 'kvm2.hosts[1]: user is required'],
    ['no key', { sshKeyFile: undefined }, 'kvm2: sshKeyFile is required'],
    ['empty key', { sshKeyFile: '' }, 'kvm2: sshKeyFile must not be empty'],
    [
      'no known_hosts',
      { knownHostsFile: undefined },
      'kvm2: knownHostsFile is required unless insecureIgnoreHostKey is true',
    ],
    ['no hosts', { hosts: undefined }, 'kvm2: hosts is required'],
    ['empty hosts', { hosts: [] }, 'kvm2: hosts must list at least one host'],
    ['hosts a map', { hosts: { a: 1 } }, 'kvm2: hosts must be a list, not a map'],
    ['host is null', { hosts: [null] }, 'kvm2.hosts[0]: must be a map of keys, not null'],
    ['same host name', { hosts: [host(), host()] }, 'kvm2.hosts[1]: name "a" is taken already by entry [0]'],
    [
      'host name',
      { hosts: [host({ name: 'a/b' })] },
      'kvm2.hosts[0]: name "a/b" may hold letters, digits, dots, dashes and underscores only',
    ],
    ['typo', { hosts: [host({ brigde: 'br1' })] }, 'kvm2.hosts[0]: unknown key "brigde", did you mean "bridge"?'],
    [
      'nothing like it',
      { hosts: [host({ gateway: 'default' })] },
      'kvm2.hosts[0]: unknown key "gateway"; known: name, address, user, socket, pool, bridge, network, drain',
    ],
    ['typo in the block', { diskSizeGB: 1 }, 'kvm2: unknown key "diskSizeGB", did you mean "diskSizeGb"?'],
    ['disk is text', { diskSizeGb: '10' }, 'kvm2: diskSizeGb must be a number, not "10"'],
    ['disk is 0', { diskSizeGb: 0 }, 'kvm2: diskSizeGb must be at least 1, not 0'],
    ['disk is a fraction', { diskSizeGb: 1.5 }, 'kvm2: diskSizeGb must be a whole number, not 1.5'],
    ['yes', { installGuestAgent: 'yes' }, 'kvm2: installGuestAgent must be true or false, not "yes"'],
    ['no machine types', { machineTypes: undefined }, 'kvm2: machineTypes is required'],
    [
      'empty machine types',
      { machineTypes: {} },
      'kvm2: machineTypes must hold at least one machine type, for example small: {vcpus: 1, memoryMiB: 1024}',
    ],
    [
      'no vcpus',
      { machineTypes: { small: { vcpus: 0, memoryMiB: 1 } } },
      'kvm2.machineTypes.small: vcpus must be at least 1, not 0',
    ],
    ['no memory', { machineTypes: { small: { vcpus: 1 } } }, 'kvm2.machineTypes.small: memoryMiB is required'],
    ['no url', { images: { 'debian-13': {} } }, 'kvm2.images.debian-13: url is required'],
    [
      'ftp',
      { images: { d: { url: 'ftp://x.example.net/d' } } },
      'kvm2.images.d: url "ftp://x.example.net/d" must be an http:// or https:// URL without user and password',
    ],
    [
      'format',
      { images: { d: { url: 'http://x.example.net/d', format: 'vmdk' } } },
      'kvm2.images.d: format must be qcow2 or raw, not "vmdk"',
    ],
    [
      'sha256',
      { images: { d: { url: 'http://x.example.net/d', sha256: 'ab' } } },
      'kvm2.images.d: sha256 "ab" must be a SHA-256 digest: 64 hex characters',
    ],
    [
      'image name',
      { images: { 'debian 13': { url: 'http://x.example.net/d' } } },
      'kvm2.images: "debian 13" may hold letters, digits, dots, dashes and underscores only',
    ],
    ['socket', { hosts: [host({ socket: 'run/s' })] }, 'kvm2.hosts[0]: socket "run/s" must be an absolute path'],
    [
      'bridge too long',
      { hosts: [host({ bridge: 'b'.repeat(16) })] },
      `kvm2.hosts[0]: bridge "${'b'.repeat(16)}" must be the name of a network interface, at most 15 characters`,
    ],
  ])('%s', (_name, block, message) => {
    expect(mistakesOf(entry(block))).toEqual([at + message])
  })

  it.each([
    'kvm-1.example.net',
    'kvm-1.example.net:',
    'kvm-1.example.net:0',
    'kvm-1:65536',
    '2001:db8::1:22',
    '[::1]',
    '[::::]:22',
    ':22',
    'ssh://kvm-1:22',
    'kvm 1:22',
    '',
  ])('address %j', (address) => {
    expect(mistakesOf(entry({ hosts: [host({ address })] }))).toEqual([
      expect.stringMatching(/kvm2\.hosts\[0\]: address .*must be host:port, for example kvm-1\.example\.net:22/),
    ])
  })

  it('a URL with a password is refused without repeating it', () => {
    const told = mistakesOf(entry({ images: { d: { url: 'https://user:hunter2@x.example.net/d' } } })).join('\n')
    expect(told).toContain('kvm2.images.d: url must be an http:// or https:// URL without user and password')
    expect(told).not.toContain('hunter2')
  })

  it('a block that is not a map', () => {
    expect(mistakesOf(entry({}, { kvm2: [] }))).toEqual([`${at}kvm2 must be a map of keys, not a list`])
    expect(mistakesOf(entry({}, { kvm2: undefined }))).toEqual([`${at}kvm2 is required`])
  })
})

describe('a mistake in an entry or in the file', () => {
  it.each<[string, unknown, string]>([
    ['no name', { ...entry(), name: undefined }, 'providers[0]: name is required'],
    ['bad name', { ...entry(), name: 'Home' }, 'providers[0] (Home): name "Home" must be a DNS label'],
    ['no type', { ...entry(), type: undefined }, `${at}type is required`],
    [
      'typo in the type',
      { ...entry(), type: 'kmv2' },
      `${at}type "kmv2" is unknown, did you mean "kvm2"?; supported: kvm2, kvm`,
    ],
    ['unknown type', { ...entry(), type: 'vmware' }, `${at}type "vmware" is unknown; supported: kvm2, kvm`],
    [
      'later type',
      { ...entry(), type: 'proxmox' },
      `${at}type "proxmox" is not supported by this version; supported: kvm2, kvm`,
    ],
    ['other block', { ...entry(), kvm: {} }, `${at}the block of type kvm2 is kvm2:, not kvm:`],
    [
      'typo',
      { ...entry(), maxConcurrentCreate: 1 },
      `${at}unknown key "maxConcurrentCreate", did you mean "maxConcurrentCreates"?`,
    ],
    ['limit 0', { ...entry(), maxConcurrentCreates: 0 }, `${at}maxConcurrentCreates must be at least 1, not 0`],
    [
      'limit too high',
      { ...entry(), maxConcurrentCreates: 1001 },
      `${at}maxConcurrentCreates must be at most 1000, not 1001`,
    ],
    ['not a map', 7, 'providers[0]: must be a map of keys, not 7'],
    ['null', null, 'providers[0]: must be a map of keys, not null'],
  ])('%s', (_name, raw, message) => {
    const told = mistakesOf(raw)
    expect(told).toHaveLength(1)
    expect(told[0]).toContain(message)
  })

  it.each([
    ['', 'providers is required: entries of the form {name, type, <type>: {...}}'],
    ['providers:', 'providers is required: entries of the form {name, type, <type>: {...}}'],
    ['providers: {}', 'providers must be a list: entries of the form {name, type, <type>: {...}}'],
    ['[]', 'the file must be a map with the key providers'],
    ['hello', 'the file must be a map with the key providers'],
    ['providers: []\nprovider: []', 'unknown key "provider", did you mean "providers"?'],
  ])('file %j', (text, message) => {
    expect(mistakes(text)).toEqual([message])
  })

  it('two entries of one name', () => {
    expect(mistakesOf(entry(), entry())).toEqual(['providers[1] (kvm-a): name is taken already by providers[0]'])
  })

  it('all at once, in the order of the file, with lines', () => {
    const text = `providers:
  - name: one
    type: kvm2
    kvm2:
      sshKeyFile: /k
      hosts:
        - name: a
          address: kvm-1
          user: root
        - name: a
          adress: kvm-1.example.net:22
          user: root
          bridge: br0
  - name: two
    type: kvm3
`
    const result = parseProvidersConfig(text)
    if (result.kind === 'valid') throw new Error('taken for valid')
    expect(result.problems.map((problem) => formatProblem('f', problem))).toEqual([
      'f:4: providers[0] (one): kvm2: machineTypes is required',
      'f:4: providers[0] (one): kvm2: knownHostsFile is required unless insecureIgnoreHostKey is true',
      'f:7: providers[0] (one): kvm2.hosts[0]: bridge is required',
      'f:8: providers[0] (one): kvm2.hosts[0]: address "kvm-1" must be host:port, for example kvm-1.example.net:22 (IPv6 in brackets)',
      'f:10: providers[0] (one): kvm2.hosts[1]: address is required',
      'f:10: providers[0] (one): kvm2.hosts[1]: name "a" is taken already by entry [0]',
      'f:11: providers[0] (one): kvm2.hosts[1]: unknown key "adress", did you mean "address"?',
      'f:15: providers[1] (two): type "kvm3" is unknown, did you mean "kvm2"?; supported: kvm2, kvm',
    ])
  })
})

describe('YAML that does not parse', () => {
  it.each([
    ['providers: [', 1],
    ['providers:\n  - name: a\n   type: b\n', 3],
    ['providers: []\nproviders: []\n', 2],
    ['providers: []\n---\nproviders: []\n', 2],
    ['providers: "a', 1],
    ['providers: !!omg 1', 1],
  ])('%j is told with line and column', (text, line) => {
    const result = parseProvidersConfig(text)
    if (result.kind === 'valid') throw new Error('taken for valid')
    expect(result.problems[0]?.line).toBe(line)
    expect(result.problems[0]?.column).toBeGreaterThan(0)
    expect(result.problems[0]?.message).toMatch(/^not valid YAML: /)
  })

  it('an alias that grows without bound is refused', () => {
    const bomb = ['a: &a [x, x, x, x, x, x, x, x, x, x]']
    for (let i = 0; i < 9; i++) {
      const [from, to] = [String.fromCharCode(97 + i), String.fromCharCode(98 + i)]
      bomb.push(`${to}: &${to} [${Array.from({ length: 10 }, () => `*${from}`).join(', ')}]`)
    }
    expect(mistakes(bomb.join('\n'))).toEqual([expect.stringMatching(/^not valid YAML: /)])
  })
})

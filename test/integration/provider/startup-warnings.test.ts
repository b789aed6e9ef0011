// What a provider of either type says when it is made: one WARNING line per file that is not there, and one for unverified hosts.
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { startupWarnings } from '../../../src/provider/libvirt/startup-warnings.ts'
import { asNobody } from '../../support/as-nobody.ts'
import { context, createRequest, failure, startWorld, type World } from './stub-world.ts'

const insecure =
  'WARNING: insecureIgnoreHostKey is on: any host key is accepted, and with it anybody between here and the hosts'
const missing = (what: string, file: string) =>
  `WARNING: ${what} ${file} does not exist: every call of this provider fails until it can be read; no restart is needed`

let world: World
let folder: string
beforeEach(async () => {
  world = await startWorld()
  folder = await mkdtemp(join(tmpdir(), 'startup-warnings-'))
})
afterEach(async () => {
  await world[Symbol.asyncDispose]()
  await rm(folder, { recursive: true })
})

/** Of all lines so far. */
function warnings(): unknown[] {
  return world.lines.filter(({ level }) => level === 'warn' || level === 'error').map(({ msg }) => msg)
}

describe.each(['kvm2', 'kvm'] as const)('a provider of type %s', (type) => {
  it('warns of nothing when both files are there', () => {
    world.provider({}, {}, type)
    expect(warnings()).toEqual([])
  })

  it('warns of each file that is not there, under its own name, and of no more', () => {
    const [sshKeyFile, knownHostsFile] = [join(folder, 'nowhere', 'id_ed25519'), join(folder, 'known_hosts')]
    world.provider({ sshKeyFile, knownHostsFile }, {}, type)
    expect(warnings()).toEqual([missing('SSH key file', sshKeyFile), missing('known_hosts file', knownHostsFile)])
    for (const line of world.lines) expect(line).toMatchObject({ logger: type, provider: 'kvm2-lab' })
  })

  it('warns of host keys that are not verified, and asks for no known_hosts then', () => {
    const knownHostsFile = join(folder, 'known_hosts')
    world.provider({ insecureIgnoreHostKey: true, knownHostsFile }, {}, type)
    expect(warnings()).toEqual([insecure])
  })

  it('fails for a while, and works when the files have landed one after the other', async () => {
    const [sshKeyFile, knownHostsFile] = [join(folder, 'id_ed25519'), join(folder, 'known_hosts')]
    const provider = world.provider({ sshKeyFile, knownHostsFile }, {}, type)
    const tryOnce = () => failure(provider.create(createRequest(), context()))
    const code = type === 'kvm2' ? 'CredentialsUnavailable' : 'SSHMaterialUnavailable'
    const noKey = await tryOnce()
    expect(noKey).toMatchObject({ kind: 'transient' })
    expect(noKey.message).toContain(sshKeyFile)
    await writeFile(sshKeyFile, world.stub.privateKey)
    const noHosts = await tryOnce()
    expect(noHosts).toMatchObject({ kind: 'transient' })
    expect(noHosts.message).toContain(knownHostsFile)
    expect((await provider.check(context())).map(({ reason }) => reason)).toEqual([code])
    await writeFile(knownHostsFile, world.stub.knownHostsLine)
    expect((await provider.check(context())).map(({ ready }) => ready)).toEqual([true])
    await provider.create(createRequest(), context())
    expect(world.stub.domains()).toHaveLength(1)
    // It was said once, when the provider was made.
    expect(warnings()).toHaveLength(2)
  })
})

it('a file that is there and may not be read is told apart', async () => {
  const sshKeyFile = join(folder, 'id_ed25519')
  await writeFile(sshKeyFile, world.stub.privateKey)
  await chmod(folder, 0o755)
  await chmod(sshKeyFile, 0)
  const [warning] = await asNobody(() =>
    Promise.resolve(startupWarnings({ sshKeyFile, hostKeys: { kind: 'insecureIgnore' } })),
  )
  expect(warning).toContain(`WARNING: SSH key file ${sshKeyFile} cannot be read (EACCES: permission denied`)
})

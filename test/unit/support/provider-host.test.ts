// How variables name the host of make test-integration-kvm2 and -kvm.
import { homedir, userInfo } from 'node:os'
import { describe, expect, it } from 'vitest'
import { namedHost, namedLogLevel } from '../../support/libvirt-provider/provider-host.ts'

describe('the host that variables name', () => {
  it('is beelink by default, with the files that the Secret is made from', () => {
    expect(namedHost({ KVM_TEST_POOL: '' })).toMatchObject({
      name: 'beelink',
      address: 'beelink:22',
      user: userInfo().username,
      pool: 'default',
      bridge: 'br0',
      keyFile: `${homedir()}/.ssh/proxy-operator_ed25519`,
      knownHostsFile: `${homedir()}/.ssh/kvm_known_hosts`,
      imageUrl: expect.stringMatching(/^https:.*debian-13-generic-amd64\.qcow2$/) as string,
    })
    expect(namedHost({})).not.toHaveProperty('socket')
  })

  it('takes every part from the variable that its advice names', () => {
    const names = namedHost({}).advice.match(/KVM_TEST_[A-Z_]+/g) ?? []
    const env = Object.fromEntries(names.map((name) => [name, `of ${name}`]))
    const { advice: _, close: __, ...parts } = namedHost(env)
    expect(Object.values(parts).sort()).toEqual(Object.values(env).sort())
    expect(namedHost({ KVM_TEST_HOST: 'nas1' }).address).toBe('nas1:22')
  })

  it('logs every call unless told otherwise', () => {
    const levels = ['', '0', '1', '2'].map((level) => namedLogLevel({ KVM_TEST_LOG_LEVEL: level }))
    expect(levels).toEqual(['debug', 'info', 'debug', 'trace'])
    expect(() => namedLogLevel({ KVM_TEST_LOG_LEVEL: '3' })).toThrow('it can be 0, 1 or 2')
  })
})

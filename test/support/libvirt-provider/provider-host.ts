// The host that the provider suite runs against: its shape, and how environment variables name one. It dials nothing.
import { homedir, userInfo } from 'node:os'
import { join } from 'node:path'
import type { LogLevel } from '../../../src/observe/logger.ts'

export interface ProviderHost {
  readonly name: string
  /** SSH endpoint, host:port. */
  readonly address: string
  readonly user: string
  /** Absent: where libvirt's daemons listen by default. */
  readonly socket?: string
  readonly pool: string
  readonly bridge: string
  readonly keyFile: string
  readonly knownHostsFile: string
  /** A qcow2 image that boots from UEFI and takes cloud-init's NoCloud. */
  readonly imageUrl: string
  /** Ends the message about a host that cannot be used. */
  readonly advice: string
  readonly close: () => Promise<void>
}

const image = 'https://cloud.debian.org/images/cloud/trixie/latest/debian-13-generic-amd64.qcow2'

const advice = [
  'Name the host by variables: KVM_TEST_HOST, KVM_TEST_ADDRESS (host:port), KVM_TEST_USER, KVM_TEST_SOCKET, KVM_TEST_POOL,',
  'KVM_TEST_BRIDGE, KVM_TEST_KEY, KVM_TEST_KNOWN_HOSTS, KVM_TEST_IMAGE_URL',
].join(' ')

/** An empty variable is as good as none. */
export function namedHost(env: NodeJS.ProcessEnv): ProviderHost {
  const value = (name: string, otherwise: string) => env[`KVM_TEST_${name}`] || otherwise
  const name = value('HOST', 'beelink')
  const socket = value('SOCKET', '')
  return {
    name,
    address: value('ADDRESS', `${name}:22`),
    user: value('USER', userInfo().username),
    ...(socket === '' ? {} : { socket }),
    pool: value('POOL', 'default'),
    bridge: value('BRIDGE', 'br0'),
    keyFile: value('KEY', join(homedir(), '.ssh/proxy-operator_ed25519')),
    knownHostsFile: value('KNOWN_HOSTS', join(homedir(), '.ssh/kvm_known_hosts')),
    imageUrl: value('IMAGE_URL', image),
    advice,
    close: () => Promise.resolve(),
  }
}

/** What `KVM_TEST_LOG_LEVEL` asks for: 1, the default, prints every libvirt call, 2 also what was sent and received, 0 neither. */
export function namedLogLevel(env: NodeJS.ProcessEnv): LogLevel {
  const written = env['KVM_TEST_LOG_LEVEL'] || '1'
  switch (written) {
    case '0':
      return 'info'
    case '1':
      return 'debug'
    case '2':
      return 'trace'
    default:
      throw new Error(`KVM_TEST_LOG_LEVEL is ${written}, it can be 0, 1 or 2`)
  }
}

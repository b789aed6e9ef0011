// Runs the libvirt stub as a process of its own until it is told to stop; what the stub is, is in test/support/libvirt-stub.
import { once } from 'node:events'
import { parseArgs } from 'node:util'
import { startLibvirtStub, type LibvirtStub, type LibvirtStubOptions } from '../test/support/libvirt-stub/stub.ts'

const usage = `Usage: node hack/stub-libvirt.ts [--port N] [--unix PATH] [--boot-delay-ms N] [--proxy-port N]

  --port           SSH port on 127.0.0.1 (default: a free one)
  --unix           also listen on this unix socket, for virsh -c 'qemu+unix:///system?socket=PATH'
  --boot-delay-ms  start of a VM until its agent answers (default 2000)
  --proxy-port     port of the VMs' proxies (default 3128)
`

function readOptions(): LibvirtStubOptions | undefined {
  const { values } = parseArgs({
    options: {
      port: { type: 'string' },
      unix: { type: 'string' },
      'boot-delay-ms': { type: 'string', default: '2000' },
      'proxy-port': { type: 'string', default: '3128' },
      help: { type: 'boolean', short: 'h' },
    },
  })
  if (values.help === true) return undefined
  return {
    bootDelayMs: wholeNumber('--boot-delay-ms', values['boot-delay-ms']),
    proxyPort: wholeNumber('--proxy-port', values['proxy-port']),
    ...(values.port === undefined ? {} : { port: wholeNumber('--port', values.port) }),
    ...(values.unix === undefined ? {} : { unixSocket: values.unix }),
  }
}

function wholeNumber(name: string, text: string): number {
  if (!/^\d+$/.test(text)) throw new Error(`${name} must be a whole number, not ${JSON.stringify(text)}`)
  return Number(text)
}

function describe(stub: LibvirtStub, unixSocket: string | undefined): string {
  const lines = [
    'A libvirt host that lives in this process. Its VMs are forward proxies on loopback addresses.',
    '',
    `address:      ${stub.address}`,
    `user:         ${stub.user}`,
    `key file:     ${stub.keyFile}`,
    `known_hosts:  ${stub.knownHostsFile}`,
    `              ${stub.knownHostsLine}`,
    ...(unixSocket === undefined
      ? []
      : [`virsh:        virsh -c 'qemu+unix:///system?socket=${unixSocket}' list --all`]),
    '',
    'providers.yaml:',
    '',
    providersConfig(stub),
    'An operator that uses it needs the flag --allow-loopback-instances.',
    '',
    'Ctrl-C ends it and everything in it.',
  ]
  return lines.join('\n')
}

function providersConfig(stub: LibvirtStub): string {
  return `providers:
  - name: kvm2-stub
    type: kvm2
    kvm2:
      sshKeyFile: ${stub.keyFile}
      knownHostsFile: ${stub.knownHostsFile}
      images:
        # Any http(s) URL of a qcow2 or raw file; the stub keeps it and never runs it.
        demo:
          url: http://127.0.0.1:8000/demo.qcow2
      machineTypes:
        small: {vcpus: 1, memoryMiB: 512}
      hosts:
        - name: stub
          address: ${stub.address}
          user: ${stub.user}
          socket: ${stub.socketPath}
          bridge: br0
`
}

async function main(): Promise<void> {
  const options = readOptions()
  if (options === undefined) {
    process.stdout.write(usage)
    return
  }
  // Whoever read the output may leave, as head(1) does; without a listener that would end the process untidily.
  const readerLeft = new Promise((resolve) => process.stdout.on('error', resolve))
  const stopped = Promise.race([once(process, 'SIGINT'), once(process, 'SIGTERM'), readerLeft])
  const stub = await startLibvirtStub(options)
  process.stdout.write(`${describe(stub, options.unixSocket)}\n`)
  await stopped
  await stub.close()
}

await main()

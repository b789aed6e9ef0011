// Runs the libvirt stub as a process of its own until it is told to stop, with an image to boot and a page to fetch beside it; what the
// stub is, is in test/support/libvirt-stub.
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { startImageServer, type ImageServer } from '../test/support/e2e/image-server.ts'
import { startTargetServers, type TargetServers } from '../test/support/e2e/target-server.ts'
import { startLibvirtStub, type LibvirtStub, type LibvirtStubOptions } from '../test/support/libvirt-stub/stub.ts'
import { writeStubImage } from '../test/support/stub-world.ts'

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

interface Neighbourhood {
  readonly stub: LibvirtStub
  readonly images: ImageServer
  readonly pages: TargetServers
}

const loopback = '127.0.0.1'
const imageName = 'image.qcow2'

function describe({ stub, images, pages }: Neighbourhood, unixSocket: string | undefined): string {
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
    'An operator takes it with the file below, and with these flags beside --providers-config:',
    '',
    `  --allow-loopback-instances --health-check-url ${pages.httpUrl}`,
    '',
    'providers.yaml, which fits hack/samples/proxy_kvm2.yaml:',
    '',
    providersConfig(stub, images.url(imageName)),
    'Ctrl-C ends it and everything in it.',
  ]
  return lines.join('\n')
}

function providersConfig(stub: LibvirtStub, imageUrl: string): string {
  return `providers:
  - name: kvm2-home
    type: kvm2
    kvm2:
      sshKeyFile: ${stub.keyFile}
      knownHostsFile: ${stub.knownHostsFile}
      images:
        # Any http(s) URL of a qcow2 or raw file does; the stub keeps it and never runs it.
        debian-13:
          url: ${imageUrl}
      machineTypes:
        small: {vcpus: 1, memoryMiB: 512}
      hosts:
        - name: kvm-1
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
  await using closing = new AsyncDisposableStack()
  const folder = closing.adopt(await mkdtemp(join(tmpdir(), 'stub-images-')), (it) => rm(it, { recursive: true }))
  const imageFile = join(folder, imageName)
  await writeStubImage(imageFile)
  const images = closing.adopt(await startImageServer(loopback, { [imageName]: imageFile }), (it) => it.close())
  const pages = closing.adopt(await startTargetServers(loopback), (it) => it.close())
  const stub = closing.adopt(await startLibvirtStub(options), (it) => it.close())
  process.stdout.write(`${describe({ stub, images, pages }, options.unixSocket)}\n`)
  await stopped
}

await main()

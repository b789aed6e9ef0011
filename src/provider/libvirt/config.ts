// The block of a kvm2 entry in the providers config: its schema as people write it, and the type that the provider works with.
import { z } from 'zod'

/** A host or IP address and a port; IPv6 in brackets. */
const addressPattern = /^(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9._])?)):([0-9]{1,5})$/

const nonEmpty = () => z.string().min(1, 'must not be empty')

/** What ends up in a volume name or a providerID, and what a Proxy's placement can spell. */
const catalogueName = () =>
  z.string().regex(/^[A-Za-z0-9._-]{1,253}$/, 'may hold letters, digits, dots, dashes and underscores only')

const positive = (most: number) => z.int().min(1).max(most)

const imageSchema = z.strictObject({
  url: z
    .string()
    .refine(isImageUrl, 'must be an http:// or https:// URL without user and password')
    .describe('Cloud image, qcow2 or raw.'),
  sha256: z
    .string()
    .regex(/^[0-9A-Fa-f]{64}$/, 'must be a SHA-256 digest: 64 hex characters')
    .optional()
    .describe('Expected digest, 64 hex characters; a change downloads the image again.'),
  format: z.enum(['qcow2', 'raw']).default('qcow2').describe('Format of the image.'),
  firmware: z
    .enum(['uefi', 'bios'])
    .default('uefi')
    .describe('uefi, with secure boot off, or bios for images without an EFI system partition.'),
})

const machineTypeSchema = z.strictObject({
  vcpus: positive(1024).describe('Number of virtual CPUs.'),
  memoryMiB: positive(64 * 1024 * 1024).describe('Memory, MiB.'),
})

const hostSchema = z.strictObject({
  name: catalogueName().describe('What placement.zone selects; unique. Becomes part of the providerID.'),
  address: z
    .string()
    .refine(
      (value) => parseAddress(value) !== undefined,
      'must be host:port, for example kvm-1.example.net:22 (IPv6 in brackets)',
    )
    .describe('SSH endpoint, host:port.'),
  user: z
    .string()
    .regex(/^[^\s:@/]+$/, 'must be a user name, without blanks, colon, @ and slash')
    .describe('SSH user, member of the libvirt group.'),
  socket: z
    .string()
    .startsWith('/', 'must be an absolute path')
    .default('/var/run/libvirt/libvirt-sock')
    .describe('libvirt socket on the host.'),
  pool: z
    .string()
    .regex(/^[^\s/]+$/, 'must be the name of a storage pool, without blanks and slashes')
    .default('default')
    .describe('Storage pool for base images, overlays and seeds.'),
  bridge: z
    .string()
    .regex(/^[^\s/]{1,15}$/, 'must be the name of a network interface, at most 15 characters')
    .describe("Host bridge for the instance's network interface."),
})

/** The block as it is written. Messages complete a sentence that begins with the key's name. */
export const kvm2BlockSchema = z
  .strictObject({
    sshKeyFile: nonEmpty().describe('Private key for every host, OpenSSH or PEM; read on every dial.'),
    knownHostsFile: nonEmpty()
      .optional()
      .describe('OpenSSH known_hosts to verify host keys against; read on every dial.'),
    insecureIgnoreHostKey: z.boolean().default(false).describe('Skip the verification of host keys.'),
    diskSizeGb: positive(64 * 1024)
      .default(10)
      .describe('Capacity of the overlay disk of each instance, GiB.'),
    vendorData: nonEmpty().optional().describe("cloud-init vendor-data for every seed, next to the Proxy's user-data."),
    installGuestAgent: z
      .boolean()
      .default(true)
      .describe('Add a vendor-data script that installs and starts qemu-guest-agent.'),
    images: z
      .record(catalogueName(), imageSchema)
      .default({})
      .describe('Images by the name that placement.image uses.'),
    machineTypes: z
      .record(catalogueName(), machineTypeSchema)
      .refine(
        (types) => Object.keys(types).length > 0,
        'must hold at least one machine type, such as small: {vcpus: 1, memoryMiB: 1024}',
      )
      .describe('Sizes by the name that placement.machineType uses.'),
    hosts: z.array(hostSchema).min(1, 'must list at least one host').describe('The hypervisors.'),
  })
  .superRefine((block, context) => {
    if (block.knownHostsFile === undefined && !block.insecureIgnoreHostKey) {
      context.addIssue({
        code: 'custom',
        path: ['knownHostsFile'],
        message: 'is required unless insecureIgnoreHostKey is true',
      })
    }
  })

/** The block as it is written, with defaults in. */
export type Kvm2Block = z.output<typeof kvm2BlockSchema>

/** Where to dial a host. */
export interface HostAddress {
  /** Name or IP address, IPv6 without brackets. */
  readonly host: string
  readonly port: number
}

export interface Kvm2Host {
  readonly name: string
  /** As it is written in the config, host:port. */
  readonly address: string
  readonly ssh: HostAddress
  readonly user: string
  readonly socketPath: string
  readonly pool: string
  readonly bridge: string
}

export interface Kvm2Image {
  readonly url: string
  /** Lower-case hex. */
  readonly sha256?: string
  readonly format: 'qcow2' | 'raw'
  readonly firmware: 'uefi' | 'bios'
}

export interface Kvm2MachineType {
  readonly vcpus: number
  readonly memoryMiB: number
}

/** How host keys are verified. */
export type HostKeyPolicy = { readonly kind: 'knownHosts'; readonly file: string } | { readonly kind: 'insecureIgnore' }

/** The block as the provider works with it: every default applied, units in names, catalogues as maps. */
export interface Kvm2Config {
  readonly sshKeyFile: string
  readonly hostKeys: HostKeyPolicy
  readonly diskSizeGiB: number
  readonly vendorData?: string
  readonly installGuestAgent: boolean
  readonly images: ReadonlyMap<string, Kvm2Image>
  readonly machineTypes: ReadonlyMap<string, Kvm2MachineType>
  /** In config order. */
  readonly hosts: readonly Kvm2Host[]
}

/** What an image named by URL, instead of by a key, is taken for. */
export function imageFromUrl(url: string): Kvm2Image {
  return { url, format: 'qcow2', firmware: 'uefi' }
}

/** The block in the provider's own terms. Expects one that {@link kvm2BlockSchema} accepted. */
export function normaliseKvm2Block(block: Kvm2Block): Kvm2Config {
  const { knownHostsFile, vendorData } = block
  return {
    sshKeyFile: block.sshKeyFile,
    hostKeys:
      block.insecureIgnoreHostKey || knownHostsFile === undefined
        ? { kind: 'insecureIgnore' }
        : { kind: 'knownHosts', file: knownHostsFile },
    diskSizeGiB: block.diskSizeGb,
    ...(vendorData !== undefined && { vendorData }),
    installGuestAgent: block.installGuestAgent,
    images: new Map(Object.entries(block.images).map(([key, image]) => [key, normaliseImage(image)])),
    machineTypes: new Map(Object.entries(block.machineTypes)),
    hosts: block.hosts.map(normaliseHost),
  }
}

function normaliseImage({ sha256, ...rest }: z.output<typeof imageSchema>): Kvm2Image {
  return sha256 === undefined ? rest : { ...rest, sha256: sha256.toLowerCase() }
}

function normaliseHost({ socket, ...rest }: z.output<typeof hostSchema>): Kvm2Host {
  const ssh = parseAddress(rest.address)
  if (ssh === undefined) throw new Error(`host ${rest.name}: address was not validated`)
  return { ...rest, ssh, socketPath: socket }
}

/** `host:port`, or undefined when it is not that. */
export function parseAddress(text: string): HostAddress | undefined {
  const [, bracketed, plain, digits] = addressPattern.exec(text) ?? []
  const host = bracketed ?? plain
  const port = Number(digits)
  return host !== undefined && port >= 1 && port <= 65_535 ? { host, port } : undefined
}

function isImageUrl(text: string): boolean {
  const url = URL.parse(text)
  return url !== null && /^https?:$/.test(url.protocol) && url.username === '' && url.password === ''
}

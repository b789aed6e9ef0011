// The block of a kvm or kvm2 entry in the providers config: its schema as people write it, and the type that the provider works with.
import { z } from 'zod'
import {
  catalogue,
  catalogueName,
  hostPort,
  httpUrl,
  namedList,
  nonEmptyText,
  parseHostPort,
  positiveInt,
  type HostPort,
} from '../config-fields.ts'

/**
 * Where the daemon listens unless the config says otherwise: the monolithic one, or the proxy of the modular ones, and
 * without either the modular one for QEMU, which itself passes calls about storage and networks on to its siblings.
 */
export const defaultSocketPaths = ['/var/run/libvirt/libvirt-sock', '/var/run/libvirt/virtqemud-sock'] as const

const imageSchema = z.strictObject({
  url: httpUrl().describe('Cloud image, qcow2 or raw.'),
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
  vcpus: positiveInt(1024).describe('Number of virtual CPUs.'),
  memoryMiB: positiveInt(64 * 1024 * 1024).describe('Memory, MiB.'),
})

const hostFields = z.strictObject({
  name: catalogueName().describe('What placement.zone selects; unique. Becomes part of the providerID.'),
  address: hostPort('kvm-1.example.net:22').describe('SSH endpoint, host:port.'),
  user: z
    .string()
    .regex(/^[^\s:@/]+$/, 'must be a user name, without blanks, colon, @ and slash')
    .describe('SSH user, member of the libvirt group.'),
  socket: z
    .string()
    .startsWith('/', 'must be an absolute path')
    .optional()
    .describe(`libvirt socket on the host. Default ${defaultSocketPaths[0]}, and without it ${defaultSocketPaths[1]}.`),
  pool: z
    .string()
    .regex(/^[^\s/]+$/, 'must be the name of a storage pool, without blanks and slashes')
    .default('default')
    .describe('Storage pool for base images, overlays and seeds.'),
  bridge: z
    .string()
    .regex(/^[^\s/]{1,15}$/, 'must be the name of a network interface, at most 15 characters')
    .optional()
    .describe("Host bridge for the instance's network interface. Required without network."),
  network: z
    .string()
    .regex(/^[^\s/]+$/, 'must be the name of a libvirt network, without blanks and slashes')
    .optional()
    .describe('libvirt network in place of bridge; its leases tell addresses too.'),
  drain: z
    .boolean()
    .default(false)
    .describe('Make no new instances here; those that are here are served until they go.'),
})

/** A rule over several keys runs even where one of them is wrong, so that one pass names every mistake. */
const hostSchema = hostFields
  .refine((host: unknown) => has(host, 'bridge') || has(host, 'network'), {
    path: ['bridge'],
    error: 'is required',
    when: ({ value }) => isMap(value),
  })
  .refine((host: unknown) => !has(host, 'bridge') || !has(host, 'network'), {
    path: ['network'],
    error: 'cannot stand beside bridge: an instance has one network interface',
    when: ({ value }) => isMap(value),
  })

const blockFields = z.strictObject({
  sshKeyFile: nonEmptyText().describe('Private key for every host, OpenSSH or PEM; read on every dial.'),
  knownHostsFile: nonEmptyText()
    .optional()
    .describe('OpenSSH known_hosts to verify host keys against; read on every dial.'),
  insecureIgnoreHostKey: z.boolean().default(false).describe('Skip the verification of host keys.'),
  diskSizeGb: positiveInt(64 * 1024)
    .default(10)
    .describe('Capacity of the overlay disk of each instance, GiB.'),
  vendorData: z.string().optional().describe("cloud-init vendor-data for every seed, next to the Proxy's user-data."),
  installGuestAgent: z
    .boolean()
    .default(true)
    .describe('Add a vendor-data script that installs and starts qemu-guest-agent.'),
  images: catalogue(imageSchema).default({}).describe('Images by the name that placement.image uses.'),
  machineTypes: catalogue(
    machineTypeSchema,
    'must hold at least one machine type, for example small: {vcpus: 1, memoryMiB: 1024}',
  ).describe('Sizes by the name that placement.machineType uses.'),
  hosts: namedList(hostSchema, 'must list at least one host').describe('The hypervisors.'),
})

const hostKeysRule = {
  path: ['knownHostsFile'],
  error: 'is required unless insecureIgnoreHostKey is true',
  when: () => true,
}

/** The block of type kvm as it is written. Messages complete a sentence that begins with the key's name. */
export const kvmBlockSchema = blockFields.refine((block: unknown) => !lacksHostKeys(block), hostKeysRule)

/** That of type kvm2, which has the fields of the first generation's and one more. */
export const kvm2BlockSchema = blockFields
  .extend({
    adoptFrom: z
      .array(z.enum(['kvm']))
      .default([])
      .describe('Types whose instances are taken over with a new mark, for an entry that was of that type before.'),
  })
  .refine((block: unknown) => !lacksHostKeys(block), hostKeysRule)

/** Takes anything: it is asked even when the block is wrong in other ways. */
function lacksHostKeys(block: unknown): boolean {
  return isMap(block) && block['knownHostsFile'] === undefined && block['insecureIgnoreHostKey'] !== true
}

function has(value: unknown, key: string): boolean {
  return isMap(value) && value[key] !== undefined
}

function isMap(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** A block as it is written, with defaults in. */
export type LibvirtBlock = z.output<typeof kvmBlockSchema> &
  Partial<Pick<z.output<typeof kvm2BlockSchema>, 'adoptFrom'>>

/** What the one network interface of an instance is on. */
export type NicSource =
  { readonly kind: 'bridge'; readonly bridge: string } | { readonly kind: 'network'; readonly network: string }

export interface LibvirtHost {
  readonly name: string
  /** As it is written in the config, host:port. */
  readonly address: string
  readonly ssh: HostPort
  readonly user: string
  /** The first that lets us in counts. */
  readonly socketPaths: readonly string[]
  readonly pool: string
  readonly nic: NicSource
  /** Takes no new instances. */
  readonly drain: boolean
}

export interface LibvirtImage {
  readonly url: string
  /** Lower-case hex. */
  readonly sha256?: string
  readonly format: 'qcow2' | 'raw'
  readonly firmware: 'uefi' | 'bios'
}

export interface MachineType {
  readonly vcpus: number
  readonly memoryMiB: number
}

/** How host keys are verified. */
export type HostKeyPolicy = { readonly kind: 'knownHosts'; readonly file: string } | { readonly kind: 'insecureIgnore' }

/** The block as the provider works with it: every default applied, units in names, catalogues as maps. */
export interface LibvirtConfig {
  readonly sshKeyFile: string
  readonly hostKeys: HostKeyPolicy
  readonly diskSizeGiB: number
  /** Never empty. */
  readonly vendorData?: string
  readonly installGuestAgent: boolean
  readonly images: ReadonlyMap<string, LibvirtImage>
  readonly machineTypes: ReadonlyMap<string, MachineType>
  /** In config order. */
  readonly hosts: readonly LibvirtHost[]
  /** Types whose marks are as good as our own until a create replaces them. */
  readonly adoptFrom: readonly 'kvm'[]
}

/** What an image named by URL, instead of by a key, is taken for. */
export function imageFromUrl(url: string): LibvirtImage {
  return { url, format: 'qcow2', firmware: 'uefi' }
}

/** The block in the provider's own terms. Expects one that {@link kvm2BlockSchema} accepted. */
export function normaliseLibvirtBlock(block: LibvirtBlock): LibvirtConfig {
  const { knownHostsFile, vendorData } = block
  return {
    sshKeyFile: block.sshKeyFile,
    hostKeys:
      block.insecureIgnoreHostKey || knownHostsFile === undefined
        ? { kind: 'insecureIgnore' }
        : { kind: 'knownHosts', file: knownHostsFile },
    diskSizeGiB: block.diskSizeGb,
    ...(vendorData !== undefined && vendorData !== '' && { vendorData }),
    installGuestAgent: block.installGuestAgent,
    images: new Map(Object.entries(block.images).map(([key, image]) => [key, normaliseImage(image)])),
    machineTypes: new Map(Object.entries(block.machineTypes)),
    hosts: block.hosts.map(normaliseHost),
    adoptFrom: block.adoptFrom ?? [],
  }
}

function normaliseImage({ sha256, ...rest }: z.output<typeof imageSchema>): LibvirtImage {
  return sha256 === undefined ? rest : { ...rest, sha256: sha256.toLowerCase() }
}

function normaliseHost({ socket, bridge, network, ...rest }: z.output<typeof hostSchema>): LibvirtHost {
  const ssh = parseHostPort(rest.address)
  const nic = nicSource(bridge, network)
  if (ssh === undefined || nic === undefined) throw new Error(`host ${rest.name} was not validated`)
  return { ...rest, ssh, socketPaths: socket === undefined ? defaultSocketPaths : [socket], nic }
}

function nicSource(bridge: string | undefined, network: string | undefined): NicSource | undefined {
  if (network !== undefined) return { kind: 'network', network }
  return bridge === undefined ? undefined : { kind: 'bridge', bridge }
}

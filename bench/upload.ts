// Times one volume's upload to a real libvirt host against virsh and a bare pipe over the same sshd with one cipher. No pass mark.
// RUNS says how often (default 5), SIZE_MIB how much (default 256), CIPHER which cipher the sshd offers.
import { createHash, randomBytes, randomUUID } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { mkdtemp, open, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { libvirtHostAvailable, startLibvirtHost, type LibvirtHost } from '../test/support/libvirt-host.ts'
import { table, writeResults, type Measurement } from './report.ts'
import { startBenchSshd } from './upload-sshd.ts'
import { uploadWays, type UploadWay } from './upload-ways.ts'

const mib = 2 ** 20

await main()

async function main(): Promise<void> {
  const available = libvirtHostAvailable()
  if (available.kind === 'no') {
    console.error(`cannot be measured here: ${available.reason}`)
    process.exitCode = 1
    return
  }
  const plan = {
    runs: wholeNumber('RUNS', 5),
    sizeBytes: wholeNumber('SIZE_MIB', 256) * mib,
    cipher: process.env['CIPHER'] ?? 'aes128-gcm@openssh.com',
  }
  const folder = await mkdtemp(join(tmpdir(), 'bench-upload-'))
  const host = await startLibvirtHost()
  try {
    await measure(host, folder, plan)
  } finally {
    await host.down()
    await rm(folder, { recursive: true })
  }
}

function wholeNumber(name: string, byDefault: number): number {
  const value = Number(process.env[name] ?? byDefault)
  if (!Number.isInteger(value) || value < 1) throw new Error(`${name} must be a whole number of at least 1`)
  return value
}

interface Plan {
  readonly runs: number
  readonly sizeBytes: number
  readonly cipher: string
}

async function measure(host: LibvirtHost, folder: string, { runs, sizeBytes, cipher }: Plan): Promise<void> {
  const file = join(folder, 'data')
  await writeRandom(file, sizeBytes)
  const sshd = await startBenchSshd(host, folder, cipher)
  try {
    const ways = await uploadWays(host, sshd, { file, folder })
    const seconds = new Map<string, number[]>(ways.map(({ name }) => [name, []]))
    // The first round warms caches and the code, and does not count.
    for (let round = 0; round <= runs; round++) {
      for (const way of rotated(ways, round)) {
        const took = await once(host, way, { file, sizeBytes })
        if (round > 0) seconds.get(way.name)?.push(took)
        console.log(`${round === 0 ? 'warm-up' : `round ${round}`}: ${way.name} ${took.toFixed(2)} s`)
      }
    }
    await report(seconds, { runs, sizeBytes, cipher })
  } finally {
    await sshd.stop()
  }
}

/** Every way comes first once: what a write leaves to the disk burdens whoever is next. */
function rotated<T>(list: readonly T[], by: number): T[] {
  return list.map((_, index) => list[(index + by) % list.length]).filter((item) => item !== undefined)
}

interface Data {
  readonly file: string
  readonly sizeBytes: number
}

/** Makes the volume, times the way, and compares what arrived. @returns seconds */
async function once(host: LibvirtHost, way: UploadWay, { file, sizeBytes }: Data): Promise<number> {
  const volume = `bench-upload-${randomUUID()}`
  await host.virsh(['-q', 'vol-create-as', host.pool, volume, `${sizeBytes}b`, '--format', 'raw', '--allocation', '0'])
  try {
    const began = performance.now()
    await way.upload(volume)
    const took = (performance.now() - began) / 1000
    const arrived = await digest(join(host.poolDirOutside, volume))
    if (arrived !== (await digest(file))) throw new Error(`${way.name} left other bytes than it was given`)
    return took
  } finally {
    await host.virsh(['-q', 'vol-delete', volume, '--pool', host.pool])
    // What is still to be written would slow the next one.
    await host.exec(['sync'])
  }
}

async function report(seconds: ReadonlyMap<string, readonly number[]>, plan: Plan): Promise<void> {
  const [own, ...peers] = [...seconds].map(([name, values]) => ({ name, values }))
  if (own === undefined) throw new Error('nothing was measured')
  const sizeMiB = plan.sizeBytes / mib
  const name = `upload of ${sizeMiB} MiB`
  const measurements = peers.map((peer): Measurement => ({ name, unit: 's', values: own.values, peer }))
  console.log(`\n${table(measurements)}`)
  const conditions = { ...plan, own: own.name, source: 'a file of random bytes, in the page cache' }
  console.log(`\n${await writeResults('upload', measurements, conditions)}`)
}

async function writeRandom(file: string, bytes: number): Promise<void> {
  await using handle = await open(file, 'w')
  for (let left = bytes; left > 0; left -= mib) await handle.write(randomBytes(Math.min(left, mib)))
}

async function digest(file: string): Promise<string> {
  const hash = createHash('sha256')
  await pipeline(createReadStream(file, { highWaterMark: mib }), hash)
  return hash.digest('hex')
}

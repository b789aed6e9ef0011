// The seed image: what a reader that shares no code with the writer finds in it, and whose it says it is.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  applicationUseOffset,
  buildIso,
  descriptorOffset,
  sectorBytes,
} from '../../../../src/provider/nocloud/iso9660.ts'
import { decodeSeedOwner, encodeSeedOwner } from '../../../../src/provider/nocloud/owner.ts'
import { buildSeed } from '../../../../src/provider/nocloud/seed.ts'
import { guestAgentScript } from '../../../../src/provider/nocloud/vendor-data.ts'
import { readIso } from '../../../support/iso-reader.ts'
import { damaged } from '../../../support/mutations.ts'

const owner = { installation: 'home', uid: '0f3a0f3a-1111-2222-3333-444455556666' }
const createdAt = new Date('2026-09-16T17:42:11Z')

describe('seed', () => {
  it('is labelled cidata and holds the three files under the names that cloud-init looks for', () => {
    const userData = Buffer.from('#cloud-config\npackages: [tinyproxy]\n')
    const iso = readIso(buildSeed({ owner, instanceName: 'proxy-abc', userData, installGuestAgent: true, createdAt }))
    expect(iso.label).toBe('cidata')
    expect([...iso.files.keys()].sort()).toEqual(['meta-data', 'user-data', 'vendor-data'])
    expect(iso.files.get('user-data')).toEqual(userData)
    expect(iso.files.get('meta-data')?.toString()).toBe('instance-id: proxy-abc\nlocal-hostname: proxy-abc\n')
    expect(iso.files.get('vendor-data')?.toString()).toBe(guestAgentScript)
  })

  it('carries user-data of any bytes and size unchanged', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 5 * sectorBytes }), (bytes) => {
        const image = buildSeed({
          owner,
          instanceName: 'proxy-abc',
          userData: bytes,
          installGuestAgent: false,
          createdAt,
        })
        expect(image.byteLength % sectorBytes).toBe(0)
        const { files } = readIso(image)
        expect(files.get('user-data')).toEqual(Buffer.from(bytes))
        expect(files.get('vendor-data')).toEqual(Buffer.alloc(0))
      }),
      { numRuns: 60 },
    )
  })

  it('carries 300 KiB of user-data', () => {
    const userData = Buffer.alloc(300 * 1024, '# filler\n')
    const iso = readIso(buildSeed({ owner, instanceName: 'proxy-abc', userData, installGuestAgent: true, createdAt }))
    expect(iso.files.get('user-data')?.equals(userData)).toBe(true)
  })

  it('refuses names that a directory record cannot carry', () => {
    const file = (name: string) => ({
      volumeLabel: 'x',
      createdAt,
      applicationUse: Buffer.alloc(0),
      files: [{ name, data: Buffer.alloc(0) }],
    })
    for (const name of ['', 'a/b', 'ä', 'x'.repeat(101)]) expect(() => buildIso(file(name))).toThrow(RangeError)
  })
})

describe('owner of a seed', () => {
  it('is read from the one sector at 32768', () => {
    const image = buildSeed({
      owner,
      instanceName: 'p',
      userData: Buffer.alloc(0),
      installGuestAgent: false,
      createdAt,
    })
    expect(decodeSeedOwner(image.subarray(descriptorOffset, descriptorOffset + sectorBytes))).toEqual(owner)
  })

  it('is nobody when the image was cut off before it, made by something else, or empty', () => {
    const foreign = buildIso({ volumeLabel: 'cidata', createdAt, applicationUse: Buffer.from('mkisofs'), files: [] })
    const half = encodeSeedOwner(owner).subarray(0, 60)
    const cut = buildIso({ volumeLabel: 'cidata', createdAt, applicationUse: half, files: [] })
    for (const image of [foreign, cut]) {
      expect(decodeSeedOwner(image.subarray(descriptorOffset, descriptorOffset + sectorBytes))).toBeUndefined()
    }
    expect(decodeSeedOwner(Buffer.alloc(0))).toBeUndefined()
    expect(decodeSeedOwner(Buffer.alloc(sectorBytes))).toBeUndefined()
    expect(decodeSeedOwner(Buffer.alloc(100, 1))).toBeUndefined()
  })

  it('is the owner, or nobody, or another in plain words, whatever became of the descriptor', () => {
    const image = buildSeed({
      owner,
      instanceName: 'p',
      userData: Buffer.alloc(0),
      installGuestAgent: false,
      createdAt,
    })
    const descriptor = image.subarray(descriptorOffset, descriptorOffset + sectorBytes)
    const area = descriptor.subarray(applicationUseOffset, applicationUseOffset + 120)
    const around = damaged([area], ['\n', '\0', ' ', 'uid=', 'installation=', 'egress-proxies-operator seed 2']).map(
      ({ bytes }) => Buffer.concat([descriptor.subarray(0, applicationUseOffset), bytes, Buffer.alloc(sectorBytes)]),
    )
    const anywhere = damaged([descriptor]).map(({ bytes }) => bytes)
    const seen = { owner: 0, nobody: 0, other: 0 }
    fc.assert(
      fc.property(fc.oneof(around, anywhere, fc.uint8Array({ maxLength: 3000 })), (bytes) => {
        const read = decodeSeedOwner(bytes)
        if (read === undefined) seen.nobody++
        else if (read.installation === owner.installation && read.uid === owner.uid) seen.owner++
        else {
          seen.other++
          // what is read is what can be written: it goes into log lines and messages
          expect(encodeSeedOwner(read).toString('latin1')).toContain(`uid=${read.uid}\n`)
        }
      }),
      { numRuns: 3000 },
    )
    for (const [what, count] of Object.entries(seen)) expect(count, what).toBeGreaterThan(0)
  })

  it('cannot be written in words that could not be read back', () => {
    for (const uid of ['', 'a b', 'a\nuid=c', 'ü'])
      expect(() => encodeSeedOwner({ installation: 'i', uid })).toThrow(RangeError)
  })
})

// Who a seed belongs to, as text in its volume descriptor: a seed without its instance must still tell. Not the mark of an instance.
import { applicationUseBytes, applicationUseOffset, sectorBytes } from './iso9660.ts'

/** Owner of a seed, in the words of the instance's mark. */
export interface SeedOwner {
  /** Id of the installation that made it. */
  readonly installation: string
  /** UID of the Proxy. */
  readonly uid: string
}

const heading = 'egress-proxies-operator seed 1'
const valuePattern = /^[!-~]{1,200}$/

/** @throws RangeError when a value has spaces, control characters or more than 200 characters */
export function encodeSeedOwner(owner: SeedOwner): Buffer {
  for (const value of [owner.installation, owner.uid]) {
    if (!valuePattern.test(value)) throw new RangeError(`${JSON.stringify(value)} cannot name the owner of a seed`)
  }
  return Buffer.from(`${heading}\ninstallation=${owner.installation}\nuid=${owner.uid}\n`, 'latin1')
}

/**
 * @param descriptor the 2048 bytes at offset 32768 of an image; may be shorter or anything else
 * @returns undefined when they name no owner: made by somebody else, or cut off while it was written
 */
export function decodeSeedOwner(descriptor: Uint8Array): SeedOwner | undefined {
  const bytes = Buffer.from(descriptor.buffer, descriptor.byteOffset, descriptor.byteLength)
  if (bytes.byteLength < sectorBytes || bytes.toString('latin1', 0, 7) !== '\x01CD001\x01') return undefined
  const area = bytes.toString('latin1', applicationUseOffset, applicationUseOffset + applicationUseBytes)
  const [first, installation, uid] = area.split('\n')
  if (first !== heading) return undefined
  const owner = { installation: value(installation, 'installation='), uid: value(uid, 'uid=') }
  return owner.installation === undefined || owner.uid === undefined
    ? undefined
    : { installation: owner.installation, uid: owner.uid }
}

function value(line: string | undefined, prefix: string): string | undefined {
  const text = line?.startsWith(prefix) === true ? line.slice(prefix.length) : ''
  return valuePattern.test(text) ? text : undefined
}

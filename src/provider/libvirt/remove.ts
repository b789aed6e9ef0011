// Takes a domain away for good. Whether it may be taken away is the caller's to know.
import { ErrorCode } from '../../wire/libvirt/errors.ts'
import { ProviderError } from '../errors.ts'
import { hasCode } from './errors.ts'
import type { Domain, HostApi, MutationGuard } from './host-api.ts'

/**
 * Destroys and undefines, and makes sure that it is gone. Idempotent.
 * @param host name of the host in the config
 */
export async function removeDomain(api: HostApi, domain: Domain, host: string, guard: MutationGuard): Promise<void> {
  await tolerating(api.destroyDomain(domain, guard), ErrorCode.OPERATION_INVALID, ErrorCode.NO_DOMAIN)
  await tolerating(api.undefineDomain(domain, guard), ErrorCode.NO_DOMAIN)
  // Started by somebody between the two, it would have lost its definition only and run on.
  if ((await api.findDomain({ uuid: domain.uuid }, { signal: guard.signal })) === undefined) return
  throw ProviderError.transient(
    `host ${host}: domain ${domain.name} is still there after it was destroyed and undefined`,
    {
      code: 'StillThere',
      target: host,
    },
  )
}

async function tolerating(call: Promise<void>, ...codes: readonly number[]): Promise<void> {
  try {
    await call
  } catch (thrown) {
    if (!hasCode(thrown, ...codes)) throw thrown
  }
}

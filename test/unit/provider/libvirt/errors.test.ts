// The table of errors: every row against the text a daemon gave, and what falls through it.
import { describe, expect, it } from 'vitest'
import { DeadlineError } from '../../../../src/lib/deadline.ts'
import { ProviderError } from '../../../../src/provider/errors.ts'
import {
  classify,
  classifyInCreate,
  connectionRows,
  libvirtRows,
  sshRows,
} from '../../../../src/provider/libvirt/errors.ts'
import { LibvirtConnectionError, LibvirtError } from '../../../../src/wire/libvirt/errors.ts'
import { SshError } from '../../../../src/wire/ssh/errors.ts'

function daemon(code: number, message: string, int1 = -1): LibvirtError {
  return new LibvirtError('DOMAIN_CREATE', {
    code,
    domain: 10,
    message,
    level: 2,
    dom: null,
    str1: null,
    str2: null,
    str3: null,
    int1,
    int2: -1,
    net: null,
  })
}

const scope = { target: 'beelink' }

describe('libvirt errors', () => {
  it.each(libvirtRows.map((row) => [row.captured, row] as const))('%s', (text, row) => {
    const error = classify(daemon(row.number, text, row.errno ?? -1), scope)
    expect([error.kind, error.code]).toEqual([row.kind, row.code])
    expect(error.origin).toBe(row.kind === 'permanent' ? 'environment' : undefined)
    expect(error.message).toContain('beelink')
    expect(error.message).toContain(text)
    expect(error.target).toBe('beelink')
  })

  it.each([
    [9, "operation failed: domain 'e1' already exists with uuid 1", -1],
    [1, 'internal error: wrong nlmsg len', -1],
    [38, 'Cannot check QEMU binary /nope: Permission denied', 13],
    [4711, 'of the future', -1],
  ])('code %i is transient', (code, text, int1) => {
    expect(classify(daemon(code, text, int1), scope).kind).toBe('transient')
  })

  it('are told by code and errno, never by domain or text', () => {
    expect(classify(daemon(38, 'No such file or directory', 28), scope).kind).toBe('quotaExceeded')
    expect(classify(daemon(38, 'No space left on device', 2), scope).code).toBe('FileMissing')
  })
})

describe('other errors', () => {
  it('of SSH: what somebody must correct is permanent, what may pass is not', () => {
    const permanent = Object.entries(sshRows).flatMap(([code, row]) => (row.kind === 'permanent' ? [code] : []))
    expect(permanent.sort()).toEqual([
      'CREDENTIALS_INVALID',
      'HOST_KEY_CHANGED',
      'HOST_KEY_REVOKED',
      'HOST_KEY_UNKNOWN',
      'UNAUTHORIZED',
    ])
    const error = classify(new SshError('UNAUTHORIZED', 'ssh', 'h:22 refused user u: add its public half'), scope)
    expect([error.kind, error.origin, error.code]).toEqual(['permanent', 'environment', 'Unauthorized'])
  })

  it('of the connection: only a refused login is permanent', () => {
    for (const [code, row] of Object.entries(connectionRows)) {
      expect(row.kind).toBe(code.startsWith('AUTH_') ? 'permanent' : 'transient')
    }
  })

  it('of an ended call are Cancelled, whatever broke because of it', () => {
    const signal = AbortSignal.abort(new Error('superseded'))
    for (const thrown of [
      new Error('superseded'),
      new LibvirtConnectionError('CLOSED', 'gone'),
      new DeadlineError('x', 5),
    ]) {
      const error = classify(thrown, { ...scope, signal })
      expect([error.kind, error.code]).toEqual(['transient', 'Cancelled'])
    }
    expect(classify(new SshError('UNAUTHORIZED', 'ssh', 'no'), { ...scope, signal }).code).toBe('Unauthorized')
  })

  it('that are ProviderErrors pass through', () => {
    const error = ProviderError.quotaExceeded('full', { code: 'PoolSpace' })
    expect(classify(error, scope)).toBe(error)
  })

  it('of no known kind are transient', () => {
    expect(classify('text', scope)).toMatchObject({
      kind: 'transient',
      code: 'Unexpected',
      message: 'host beelink: text',
    })
  })

  it('never are notFound in a create', () => {
    const error = classifyInCreate(daemon(42, 'Domain not found'), scope)
    expect([error.kind, error.code]).toEqual(['transient', 'DomainNotFound'])
  })
})

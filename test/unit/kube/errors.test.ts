// The classification of everything an API server, a proxy before it and a network can answer.
import { describe, expect, it } from 'vitest'
import { DeadlineError } from '../../../src/lib/deadline.ts'
import {
  KubeError,
  isAlreadyExists,
  isConflict,
  isExpired,
  isNotFound,
  isUidChanged,
} from '../../../src/kube/errors.ts'

const what = 'GET /api/v1/namespaces'

describe('an answer', () => {
  it.each([
    [400, 'BadRequest', 'KUBE_REFUSED'],
    [401, 'Unauthorized', 'KUBE_UNAUTHORIZED'],
    [403, 'Forbidden', 'KUBE_FORBIDDEN'],
    [404, 'NotFound', 'KUBE_NOT_FOUND'],
    [409, 'AlreadyExists', 'KUBE_ALREADY_EXISTS'],
    [409, 'Conflict', 'KUBE_CONFLICT'],
    [410, 'Expired', 'KUBE_EXPIRED'],
    [410, 'Gone', 'KUBE_EXPIRED'],
    [422, 'Invalid', 'KUBE_INVALID'],
    [429, 'TooManyRequests', 'KUBE_THROTTLED'],
    [500, 'InternalError', 'KUBE_SERVER'],
    [503, 'ServiceUnavailable', 'KUBE_SERVER'],
    [504, 'Timeout', 'KUBE_SERVER'],
  ])('%i %s is %s', (status, reason, code) => {
    const error = KubeError.fromStatus(what, status, { kind: 'Status', code: status, reason, message: 'why' })
    expect(error).toMatchObject({ code, status, reason, message: `${what}: ${status} ${reason}: why` })
  })

  it('has the details of its Status, and how long to wait from either place', () => {
    const details = { name: 'x', causes: [{ field: 'spec.port', message: 'no', reason: 'FieldValueInvalid' }] }
    expect(KubeError.fromStatus(what, 422, { details }).details).toEqual(details)
    expect(KubeError.fromStatus(what, 429, {}, '3').retryAfterMs).toBe(3000)
    expect(KubeError.fromStatus(what, 429, { details: { retryAfterSeconds: 2 } }).retryAfterMs).toBe(2000)
    expect(KubeError.fromStatus(what, 429, {}, 'Wed, 21 Oct 2026 07:28:00 GMT').retryAfterMs).toBeUndefined()
  })

  it('that is no Status is classified by its HTTP status and quoted in part', () => {
    const page = KubeError.fromStatus(what, 502, `<html>${'x'.repeat(1000)}`)
    expect(page).toMatchObject({ code: 'KUBE_SERVER', status: 502, reason: 'InternalError' })
    expect(page.message.length).toBeLessThan(300)
    for (const body of [null, [], 7, '', {}]) {
      expect(KubeError.fromStatus(what, 404, body)).toMatchObject({ code: 'KUBE_NOT_FOUND', reason: 'NotFound' })
    }
  })

  it('is told apart by the predicates', () => {
    const of = (status: number, reason?: string) => KubeError.fromStatus(what, status, { reason })
    expect([isNotFound(of(404)), isConflict(of(409)), isExpired(of(410))]).toEqual([true, true, true])
    expect([isConflict(of(409, 'AlreadyExists')), isAlreadyExists(of(409, 'AlreadyExists'))]).toEqual([false, true])
    expect(isUidChanged(KubeError.uidChanged('Proxy a/b', '1', '2'))).toBe(true)
    expect([isNotFound(new Error('404')), isConflict(undefined)]).toEqual([false, false])
  })
})

describe('no answer', () => {
  it('is unreachable, with what the network said', () => {
    const dials = ['connect ECONNREFUSED ::1:6443', 'connect ECONNREFUSED 127.0.0.1:6443']
    const refused = new AggregateError(dials.map((dial) => new Error(dial)))
    expect(KubeError.from(refused, what)).toMatchObject({
      code: 'KUBE_UNREACHABLE',
      status: 0,
      message: `${what}: no answer from the API server: ${dials.join('; ')}`,
    })
    expect(KubeError.from(refused, what).cause).toBe(refused)
    expect(
      KubeError.from(new TypeError('terminated', { cause: new Error('other side closed') }), what).message,
    ).toContain('other side closed')
    expect(KubeError.from(Object.assign(new Error(''), { code: 'EPIPE' }), what).message).toContain('EPIPE')
    expect(KubeError.from('odd', what).message).toContain('odd')
  })

  it('within the budget is a timeout', () => {
    const error = KubeError.from(new DeadlineError(what, 30_000), what)
    expect(error).toMatchObject({ code: 'KUBE_TIMEOUT', reason: 'Timeout', status: 0 })
    expect(error.message).toBe(`${what} did not finish within 30 s`)
    expect(KubeError.from(new DeadlineError('TLS handshake', 10_000), what).message).toBe(
      `${what}: TLS handshake did not finish within 10 s`,
    )
    expect(error.message).toContain('did not finish within 30 s')
  })

  it('that is classified already stays as it is', () => {
    const error = KubeError.protocol(what, 'odd')
    expect(KubeError.from(error, 'PUT /elsewhere')).toBe(error)
  })
})

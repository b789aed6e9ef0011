// Watch bodies cut at every place, lines of every kind, and the cap on their length.
import { describe, expect, it } from 'vitest'
import { KubeError } from '../../../src/kube/errors.ts'
import { parseWatchLine, splitLines } from '../../../src/kube/watch-stream.ts'

async function* body(...chunks: (string | Uint8Array)[]): AsyncGenerator<Uint8Array> {
  for (const chunk of chunks) yield await Promise.resolve(typeof chunk === 'string' ? Buffer.from(chunk) : chunk)
}

async function lines(source: AsyncIterable<Uint8Array>, maxBytes?: number): Promise<string[]> {
  const found: string[] = []
  for await (const line of splitLines(source, 'WATCH x', maxBytes)) found.push(line)
  return found
}

describe('lines of a body', () => {
  const text = '{"a":"ü€😀"}\n\r\n{"b":2}\n{"c":3}'
  const wanted = ['{"a":"ü€😀"}', '{"b":2}', '{"c":3}']

  it('are the same wherever the body is cut in two, in the middle of a character included', async () => {
    const bytes = Buffer.from(text)
    for (let at = 0; at <= bytes.length; at++) {
      expect(await lines(body(bytes.subarray(0, at), bytes.subarray(at)))).toEqual(wanted)
    }
  })

  it('are the same byte by byte', async () => {
    const bytes = Buffer.from(text)
    expect(await lines(body(...Array.from(bytes, (_, at) => bytes.subarray(at, at + 1))))).toEqual(wanted)
  })

  it('may be as long as the cap and no longer, whole or in pieces', async () => {
    expect(await lines(body('12345678\n', '1234', '5678\n'), 8)).toEqual(['12345678', '12345678'])
    for (const long of [['123456789\n'], ['12345', '6789\n'], ['12345', '6789']]) {
      await expect(lines(body(...long), 8)).rejects.toMatchObject({ code: 'KUBE_PROTOCOL' })
    }
  })

  it('end with the error of the body', async () => {
    const broken = (async function* () {
      yield* body('{"a":1}\n')
      throw new Error('the socket broke')
    })()
    await expect(lines(broken)).rejects.toThrow('the socket broke')
  })
})

describe('a line of a watch', () => {
  const parse = (value: unknown) => parseWatchLine(typeof value === 'string' ? value : JSON.stringify(value), 'WATCH x')
  const object = { metadata: { name: 'a', namespace: 'n', uid: 'u', resourceVersion: '5' }, spec: { size: 1 } }

  it('is one of the events of the protocol', () => {
    expect(parse({ type: 'ADDED', object })).toEqual({ kind: 'added', object })
    expect(parse({ type: 'MODIFIED', object })).toEqual({ kind: 'modified', object })
    expect(parse({ type: 'DELETED', object })).toEqual({ kind: 'deleted', object })
    const bookmark = { type: 'BOOKMARK', object: { kind: 'X', metadata: { resourceVersion: '9' } } }
    expect(parse(bookmark)).toEqual({ kind: 'bookmark', resourceVersion: '9' })
  })

  it('may be the error with which servers end a watch', () => {
    const status = { kind: 'Status', code: 410, reason: 'Expired', message: 'too old resource version: 1 (2)' }
    const event = parse({ type: 'ERROR', object: status })
    expect(event).toMatchObject({ kind: 'error', error: { code: 'KUBE_EXPIRED', status: 410, reason: 'Expired' } })
  })

  it.each([
    ['no JSON', 'x'],
    ['null', 'null'],
    ['an unknown type', { type: 'RENAMED', object }],
    ['an object without a version', { type: 'ADDED', object: { metadata: { name: 'a' } } }],
    ['no object', { type: 'ADDED' }],
    ['a bookmark without a version', { type: 'BOOKMARK', object: { metadata: {} } }],
  ])('is refused when it is %s', (_what, value) => {
    expect(() => parse(value)).toThrow(KubeError)
  })
})

// host:port as configs write it.
import { describe, expect, it } from 'vitest'
import { parseSshAddress } from '../../../../src/wire/ssh/address.ts'
import { SshError } from '../../../../src/wire/ssh/errors.ts'

describe('parseSshAddress', () => {
  it.each([
    ['beelink.example:22', 'beelink.example', 22],
    ['10.0.0.1:2222', '10.0.0.1', 2222],
    ['[fd00::1]:22', 'fd00::1', 22],
    ['[fe80::1%br0]:65535', 'fe80::1%br0', 65_535],
  ])('reads %s', (text, host, port) => {
    expect(parseSshAddress(text)).toEqual({ host, port })
  })

  it.each([
    '',
    'host',
    'host:',
    ':22',
    'host:0',
    'host:65536',
    'host:22x',
    'fd00::1:22',
    '[fd00::1]',
    'user@ host:22',
    '[x]:22',
  ])('refuses %j, quoting it', (text) => {
    const parse = () => parseSshAddress(text)
    expect(parse).toThrow(SshError)
    expect(parse).toThrow(JSON.stringify(text))
  })
})

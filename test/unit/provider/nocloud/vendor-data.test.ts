// What the operator adds to cloud-init, as a reader of MIME archives sees it.
import { describe, expect, it } from 'vitest'
import { buildVendorData, guestAgentScript } from '../../../../src/provider/nocloud/vendor-data.ts'

describe('vendor-data', () => {
  it('is empty, the document alone, or the script alone', () => {
    expect(buildVendorData({ installGuestAgent: false }).toString()).toBe('')
    expect(buildVendorData({ installGuestAgent: false, vendorData: '#cloud-config\n{}\n' }).toString()).toBe(
      '#cloud-config\n{}\n',
    )
    expect(buildVendorData({ installGuestAgent: true }).toString()).toBe(guestAgentScript)
    expect(guestAgentScript.startsWith('#!/bin/sh\n')).toBe(true)
  })

  it('carries both as parts of an archive that begins with MIME-Version', () => {
    const vendorData = '#cloud-config\nntp: {servers: [a.example]}\n# --==boundary==\n'
    const text = buildVendorData({ installGuestAgent: true, vendorData }).toString()
    expect(text.startsWith('MIME-Version: 1.0\n')).toBe(true)
    const boundary = /boundary="([^"]+)"/.exec(text)?.[1] ?? ''
    const [, ...parts] = text.split(`--${boundary}`)
    expect(parts.pop()).toBe('--\n')
    const decoded = parts.map((part) => {
      const [head = '', body = ''] = part.split('\n\n')
      return [/Content-Type: ([^;]+)/.exec(head)?.[1], Buffer.from(body, 'base64').toString()]
    })
    expect(decoded).toEqual([
      ['text/plain', vendorData],
      ['text/x-shellscript', guestAgentScript],
    ])
    expect(Math.max(...text.split('\n').map((line) => line.length))).toBeLessThanOrEqual(76)
  })
})

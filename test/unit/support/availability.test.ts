// What becomes of a suite whose daemons cannot be had: left out with a line, and in CI a failure unless the machine can never run it.
import { afterEach, expect, it, vi } from 'vitest'
import { canRun, type Availability } from '../../support/e2e/availability.ts'

const yes: Availability = { kind: 'yes' }
const missing: Availability = { kind: 'no', reason: 'packages are missing, INSTALL=1 installs them: qemu-utils' }
const ci = { CI: 'true' }

afterEach(() => {
  vi.restoreAllMocks()
})

it('runs where everything is there', () => {
  expect(canRun('a suite', [yes, yes], ci)).toBe(true)
})

it('leaves the suite out with a line that says why', () => {
  const warn = vi.spyOn(console, 'warn').mockReturnValue()
  expect(canRun('a suite', [yes, missing], {})).toBe(false)
  expect(warn).toHaveBeenCalledWith('left out: a suite: packages are missing, INSTALL=1 installs them: qemu-utils')
})

it('fails in CI for what the machine could run', () => {
  expect(() => canRun('a suite', [missing], ci)).toThrow('left out: a suite: packages are missing')
})

it.each([
  'needs root: namespaces, a bridge and libvirtd',
  'needs Linux on x86-64, this is Darwin on arm64',
  'cluster: a control plane of its own needs Linux; CLUSTER=existing with KUBECONFIG uses another',
  'needs /dev/kvm (even where guests are emulated, libvirt must find it)',
])('leaves out in CI what the machine can never run: %s', (reason) => {
  vi.spyOn(console, 'warn').mockReturnValue()
  expect(canRun('a suite', [yes, { kind: 'no', reason }], ci)).toBe(false)
})

it('leaves out in CI a suite of which another part can never run', () => {
  const never: Availability = { kind: 'no', reason: 'needs root: namespaces, a bridge and libvirtd' }
  vi.spyOn(console, 'warn').mockReturnValue()
  expect(canRun('a suite', [missing, never], ci)).toBe(false)
})

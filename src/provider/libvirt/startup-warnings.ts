// What can be said of a provider's SSH credentials before the first dial; nothing of it keeps the operator from starting.
import { closeSync, constants, openSync } from 'node:fs'
import { toError } from '../../lib/errors.ts'
import type { LibvirtConfig } from './config.ts'

/**
 * One line for each file that cannot be read now, and one where host keys are not verified. The files are not read: the
 * Secret that holds them may come later, and what is in them is judged at each dial.
 */
export function startupWarnings({ sshKeyFile, hostKeys }: Pick<LibvirtConfig, 'sshKeyFile' | 'hostKeys'>): string[] {
  const warnings = fileWarnings('SSH key file', sshKeyFile)
  switch (hostKeys.kind) {
    case 'knownHosts':
      return [...warnings, ...fileWarnings('known_hosts file', hostKeys.file)]
    case 'insecureIgnore':
      return [
        ...warnings,
        'WARNING: insecureIgnoreHostKey is on: any host key is accepted, and with it anybody between here and the hosts',
      ]
  }
}

function fileWarnings(what: string, file: string): string[] {
  try {
    // Opened, because access(2) asks for the real user instead of the effective one; non-blocking for a named pipe.
    closeSync(openSync(file, constants.O_RDONLY | constants.O_NONBLOCK))
    return []
  } catch (thrown) {
    const error = toError(thrown)
    const code = 'code' in error ? error.code : undefined
    const state = code === 'ENOENT' || code === 'ENOTDIR' ? 'does not exist' : `cannot be read (${error.message})`
    return [
      `WARNING: ${what} ${file} ${state}: every call of this provider fails until it can be read; no restart is needed`,
    ]
  }
}

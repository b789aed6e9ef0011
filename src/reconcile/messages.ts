// Sentences for people that stand in conditions and Events; pure, and nothing secret comes in.
import type { Proxy } from '../api/proxy.ts'
import type { Observation, OperationFailure } from './world.ts'

/** What failed, and which attempt it was. It changes with every attempt and never in between. */
export function describeFailure(failure: OperationFailure): string {
  const attempt = failure.failures === 1 ? '' : ` (attempt ${failure.failures})`
  return `${failure.error.message}${attempt}`
}

/** Why a running instance has no address yet. */
export function describeUnaddressed(name: string, observation: Observation): string {
  switch (observation.kind) {
    case 'failed':
      return `waiting for the address of instance ${name}; it could not be read: ${observation.error.message}`
    case 'seen':
      return observation.instance.state === 'running'
        ? `instance ${name} runs and has told no address yet`
        : `instance ${name} is ${observation.instance.state}`
    case 'unread':
    case 'gone':
      return `waiting for the address of instance ${name}`
  }
}

export function missingProviderMessage(proxy: Proxy): string {
  const provider = proxy.spec.provider ?? ''
  return `provider "${provider}" is not in the providers config: add it there, or delete the Proxy and name another`
}

// An event and the callback that hears of it → its packet.
import { exhaustive } from '../../../../src/lib/exhaustive.ts'
import { eventFrame } from '../../../../src/wire/libvirt/codec.ts'
import type { StubEvent } from '../model/events.ts'

export function eventFrameOf(event: StubEvent, callbackID: number): Buffer {
  switch (event.name) {
    case 'DOMAIN_EVENT_CALLBACK_LIFECYCLE':
      return eventFrame(event.name, { callbackID, ...event.message })
    case 'DOMAIN_EVENT_CALLBACK_REBOOT':
      return eventFrame(event.name, { callbackID, ...event.message })
    case 'DOMAIN_EVENT_CALLBACK_IO_ERROR':
      return eventFrame(event.name, { callbackID, ...event.message })
    case 'DOMAIN_EVENT_CALLBACK_CONTROL_ERROR':
      return eventFrame(event.name, { callbackID, ...event.message })
    case 'DOMAIN_EVENT_CALLBACK_AGENT_LIFECYCLE':
      return eventFrame(event.name, { callbackID, ...event.message })
    case 'DOMAIN_EVENT_CALLBACK_METADATA_CHANGE':
      return eventFrame(event.name, { callbackID, ...event.message })
    case 'STORAGE_POOL_EVENT_LIFECYCLE':
      return eventFrame(event.name, { callbackID, ...event.message })
    case 'STORAGE_POOL_EVENT_REFRESH':
      return eventFrame(event.name, { callbackID, ...event.message })
    default:
      return exhaustive(event)
  }
}

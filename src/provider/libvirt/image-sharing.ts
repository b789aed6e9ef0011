// What all providers of one process share about images: two entries of the config may name one host. No image is handled here.
import type { Clock } from '../../lib/clock.ts'
import { ImageClaims, type ShareTiming } from './image-claims.ts'
import { SharedWork } from './shared-work.ts'

/** Keyed by host address, pool and volume. */
export interface ImageSharing {
  /** Downloads under way, with those who wait for them. */
  readonly fetches: SharedWork
  readonly claims: ImageClaims
}

export function createImageSharing(clock: Clock, timing?: ShareTiming): ImageSharing {
  return { fetches: new SharedWork(), claims: new ImageClaims(clock, timing) }
}

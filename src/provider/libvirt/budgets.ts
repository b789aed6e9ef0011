// How long each kind of step may take; who applies them is elsewhere.

/** All in milliseconds. */
export interface Budgets {
  /** TCP connect, SSH handshake and libvirt's opening together. */
  readonly dialMs: number
  readonly rpcMs: number
  /** DOMAIN_CREATE, which returns when QEMU runs. */
  readonly startMs: number
  /** Uploads and downloads of at most 16 MiB: seeds, markers. */
  readonly smallTransferMs: number
  /** A whole image: from the HTTP request to the marker. */
  readonly imageMs: number
  /** How much sooner the download itself must end than the whole, so that a stalled mirror ends through its body. */
  readonly imageReserveMs: number
  /** The question for an image's size. */
  readonly headMs: number
  /** Running after a start. */
  readonly runningWaitMs: number
  readonly runningPollMs: number
  /** The goodbye of a connection that is closed. */
  readonly closeMs: number
}

export const defaultBudgets: Budgets = {
  dialMs: 10_000,
  rpcMs: 30_000,
  startMs: 90_000,
  smallTransferMs: 60_000,
  imageMs: 20 * 60_000,
  imageReserveMs: 60_000,
  headMs: 30_000,
  runningWaitMs: 15_000,
  runningPollMs: 500,
  closeMs: 5_000,
}

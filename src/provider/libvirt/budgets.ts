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
  /** A claim on an image that was not touched for so long, by the host's clock, is nobody's. */
  readonly claimMs: number
  /** The same for one that does not say whose it is yet: its holder has done nothing under it so far. */
  readonly claimUnsignedMs: number
  /** How often a claim is touched while it is in use. */
  readonly claimTouchMs: number
  /** Longest pause between two looks at a claim that another operator holds. */
  readonly claimPollMs: number
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
  claimMs: 15 * 60_000,
  claimUnsignedMs: 2_000,
  claimTouchMs: 3 * 60_000,
  claimPollMs: 1_000,
  runningWaitMs: 15_000,
  runningPollMs: 500,
  closeMs: 5_000,
}

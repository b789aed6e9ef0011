// Gathers what is written to a socket in one turn of the event loop into one system call; it delays nothing beyond that turn.
import type { Socket } from 'node:net'

/**
 * Why: ssh2 writes each of its packets, of at most 32 KiB, as three or four pieces: length, body, tag. With `noDelay` each
 * piece is a system call and a TCP segment of its own, on both ends, which costs an upload a third of its time.
 */
export class WriteBatch {
  readonly #socket: Socket
  #open = false

  constructor(socket: Socket) {
    this.#socket = socket
    // In front of ssh2's own listener: data from the host makes it write, too (a widened window, answers).
    socket.prependListener('data', () => this.begin())
  }

  /** What is written from here to the end of this turn leaves together. */
  begin(): void {
    if (this.#open) return
    this.#open = true
    this.#socket.cork()
    process.nextTick(() => {
      this.#open = false
      this.#socket.uncork()
    })
  }
}

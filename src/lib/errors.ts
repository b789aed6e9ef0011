// Small helpers on thrown values; the classes of errors live with what throws them.

/** A thrown value as an Error. */
export function toError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(String(thrown))
}

/** The message of a thrown value. */
export function errorMessage(thrown: unknown): string {
  return toError(thrown).message
}

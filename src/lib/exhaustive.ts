// Compile-time proof that a switch over a discriminated union handles every member; not a runtime validator.

/** Throws; typed so that it compiles only where `value` has no remaining member. */
export function exhaustive(value: never): never {
  throw new Error(`unhandled case: ${JSON.stringify(value)}`)
}

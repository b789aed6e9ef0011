// Does a piece of work without root's rights; nothing for work that runs beside other work in one process.

/** Root may read everything, so it becomes somebody else for as long as it takes. */
export async function asNobody<T>(work: () => Promise<T>): Promise<T> {
  if (process.geteuid?.() !== 0 || process.seteuid === undefined) return await work()
  process.seteuid(65_534)
  try {
    return await work()
  } finally {
    process.seteuid(0)
  }
}

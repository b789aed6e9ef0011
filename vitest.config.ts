// Test tiers as vitest projects: unit (pure), integration (loopback sockets), e2e (real daemons, one file at a time). Beside the
// tiers: hosts, against hypervisors that variables name.
import { defineConfig } from 'vitest/config'

export default defineConfig({
  test: {
    deps: { interopDefault: false },
    projects: [
      { extends: true, test: { name: 'unit', include: ['test/unit/**/*.test.ts'], testTimeout: 60_000 } },
      {
        extends: true,
        test: {
          name: 'integration',
          include: ['test/integration/**/*.test.ts'],
          testTimeout: 120_000,
          hookTimeout: 120_000,
        },
      },
      {
        extends: true,
        test: {
          name: 'e2e',
          include: ['test/e2e/**/*.test.ts'],
          testTimeout: 900_000,
          hookTimeout: 1_800_000,
          fileParallelism: false,
        },
      },
      {
        extends: true,
        test: {
          name: 'hosts',
          include: ['test/hosts/**/*.test.ts'],
          fileParallelism: false,
          // its output is the trace of calls, line by line
          disableConsoleIntercept: true,
        },
      },
    ],
  },
})

// The command `run` for a stubbed libvirt host, whose VMs are on loopback addresses that a real provider takes for no address.
import { runCommand } from '../../../src/commands/run.ts'

const stop = new AbortController()
process.once('SIGTERM', () => stop.abort(new Error('stopped by SIGTERM')))
process.exitCode = await runCommand(process.argv.slice(3), {
  stop: stop.signal,
  stdout: process.stdout,
  stderr: process.stderr,
  usage: '',
  addressPolicy: { allowLoopback: true },
})

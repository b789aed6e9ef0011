// `make demo-libvirt`: the operator at work on a real API server, a real libvirtd and a real VM. KEEP=1 lets it run until Ctrl-C.
import { openLibvirtStage } from './demo/libvirt-stage.ts'
import { runDemo } from './demo/run.ts'

await runDemo(openLibvirtStage)

// `make demo`: the operator at work without hypervisor, cluster or container engine. KEEP=1 lets it run until Ctrl-C.
import { runDemo } from './demo/run.ts'
import { openStubStage } from './demo/stub-stage.ts'

await runDemo(openStubStage)

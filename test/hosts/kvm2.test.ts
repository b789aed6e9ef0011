// The suite of type kvm2 against the host that the KVM_TEST_ variables name; `make test-integration-kvm2` runs it, no tier does.
import { createLogger } from '../../src/observe/logger.ts'
import { namedHost, namedLogLevel } from '../support/libvirt-provider/provider-host.ts'
import { libvirtProviderSuite } from '../support/libvirt-provider/suite.ts'

const log = createLogger({
  level: namedLogLevel(process.env),
  destination: { write: (line) => void process.stdout.write(line) },
})

libvirtProviderSuite('kvm2', log, () => Promise.resolve(namedHost(process.env)))

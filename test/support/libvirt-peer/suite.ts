// One suite for libvirt daemons: what is shown here of the real one and of the stub may be relied on in tests, and no more.
import { describe } from 'vitest'
import { suiteOfDomains } from './domain-suite.ts'
import { suiteOfLifecycles } from './lifecycle-suite.ts'
import type { LibvirtPeer } from './peer.ts'
import { suiteOfPackets } from './packet-suite.ts'
import { suiteOfStorage } from './storage-suite.ts'

/** @param open starts or reaches the daemon; called once per part, and ended by its `close` */
export function libvirtPeerSuite(title: string, open: () => Promise<LibvirtPeer>): void {
  describe(title, () => {
    suiteOfPackets(open)
    suiteOfStorage(open)
    suiteOfDomains(open)
    suiteOfLifecycles(open)
  })
}

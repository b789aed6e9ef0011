// What the operator adds to an instance's cloud-init: the entry's vendorData and a script that installs the guest agent; never
// the Proxy's own user-data.

export interface VendorDataOptions {
  /** The provider entry's own document, of any kind that cloud-init takes; absent or empty for none. */
  readonly vendorData?: string
  readonly installGuestAgent: boolean
}

/** Parts are in base64, which has no `=` before its end, so none of them can hold it. */
const boundary = '==egress-proxies-operator=='

/** The seed's vendor-data file; empty when there is nothing to add. */
export function buildVendorData(options: VendorDataOptions): Buffer {
  const own = options.vendorData ?? ''
  if (!options.installGuestAgent) return Buffer.from(own)
  if (own === '') return Buffer.from(guestAgentScript)
  return Buffer.from(
    multipart([
      { type: 'text/plain', name: 'vendor-data', body: own },
      { type: 'text/x-shellscript', name: 'guest-agent.sh', body: guestAgentScript },
    ]),
  )
}

interface Part {
  readonly type: string
  readonly name: string
  readonly body: string
}

/** MIME-Version comes first: cloud-init recognises an archive by it. `text/plain` parts are told apart by their first line. */
function multipart(parts: readonly Part[]): string {
  const lines = ['MIME-Version: 1.0', `Content-Type: multipart/mixed; boundary="${boundary}"`, '']
  for (const part of parts) {
    lines.push(
      `--${boundary}`,
      `Content-Type: ${part.type}; charset="utf-8"`,
      'MIME-Version: 1.0',
      'Content-Transfer-Encoding: base64',
      `Content-Disposition: attachment; filename="${part.name}"`,
      '',
      Buffer.from(part.body).toString('base64').replaceAll(/.{76}/g, '$&\n').trimEnd(),
    )
  }
  lines.push(`--${boundary}--`, '')
  return lines.join('\n')
}

/**
 * A script and not a cloud-config: cloud-init merges a vendor cloud-config under the user-data and drops every top-level key
 * that both have, so a Proxy with `packages:` of its own would silently lose the agent.
 */
export const guestAgentScript = `#!/bin/sh
# Installs and starts the QEMU guest agent, by which the operator learns this machine's address.
set -u
PATH=\${PATH:-/usr/sbin:/usr/bin:/sbin:/bin}

say() { echo "guest-agent: $*"; }

installed() { command -v qemu-ga >/dev/null 2>&1; }

install_agent() {
  if command -v apt-get >/dev/null 2>&1; then
    DEBIAN_FRONTEND=noninteractive
    export DEBIAN_FRONTEND
    apt-get -o DPkg::Lock::Timeout=300 update -q && apt-get -o DPkg::Lock::Timeout=300 install -q -y --no-install-recommends qemu-guest-agent
  elif command -v dnf >/dev/null 2>&1; then
    dnf install -y qemu-guest-agent
  elif command -v yum >/dev/null 2>&1; then
    yum install -y qemu-guest-agent
  elif command -v zypper >/dev/null 2>&1; then
    zypper --non-interactive install qemu-guest-agent
  elif command -v apk >/dev/null 2>&1; then
    apk add --no-cache qemu-guest-agent
  else
    say "no package manager that is known here"
    return 1
  fi
}

start_agent() {
  if command -v systemctl >/dev/null 2>&1; then
    systemctl enable qemu-guest-agent >/dev/null 2>&1
    systemctl start qemu-guest-agent
  elif command -v rc-service >/dev/null 2>&1; then
    rc-update add qemu-guest-agent default
    rc-service qemu-guest-agent start
  else
    say "neither systemctl nor OpenRC to start it with"
    return 1
  fi
}

if installed; then
  say "already installed"
else
  tries=0
  until install_agent && installed; do
    tries=$((tries + 1))
    if [ "$tries" -ge 5 ]; then
      say "could not be installed; without it this machine's address may stay unknown"
      exit 1
    fi
    say "attempt $tries failed, trying again"
    sleep $((tries * 5))
  done
fi
start_agent && say "running"
`

# shellcheck shell=bash
# Settings, their defaults, and the state folder. Sourced by libvirt-host; everything here runs outside the namespaces.

# Where this host keeps all that is its own.
LVH_STATE=$(realpath -m "${LVH_STATE:-${XDG_STATE_HOME:-$HOME/.local/state}/egress-proxies-operator/libvirt-host}")
# The first three numbers of the /24 that VMs, host and operator share: .1 is the host, .254 this machine, .50-.199 are VMs.
LVH_NET=${LVH_NET:-192.168.213}
# The only link that the rest of the machine sees.
LVH_LINK=${LVH_LINK:-lvh0}
LVH_BRIDGE=${LVH_BRIDGE:-br0}
LVH_SSH_PORT=${LVH_SSH_PORT:-2222}
# kvm, tcg (emulation) or auto.
LVH_ACCEL=${LVH_ACCEL:-auto}
# 1 allows a start beside a libvirtd that is not ours.
LVH_BESIDE=${LVH_BESIDE:-0}
# The process with whose end the host ends too, if any.
LVH_OWNER_PID=${LVH_OWNER_PID:-}

# The name under which VMs find this machine, answered by the host's own DNS.
gateway_name=gateway.libvirt-host.test
# shellcheck disable=SC2034 # namespaces.sh hands them to the init
settings=(LVH_STATE LVH_NET LVH_LINK LVH_BRIDGE LVH_SSH_PORT LVH_ACCEL)
marker=$LVH_STATE/.libvirt-host

log() {
  printf 'libvirt-host: %s\n' "$*" >&2
}

fail() {
  log "$*"
  exit 1
}

host_address() {
  printf '%s.1' "$LVH_NET"
}

gateway_address() {
  printf '%s.254' "$LVH_NET"
}

# A folder that this script did not make is not cleared, and so not used.
refuse_foreign_state() {
  if [ ! -e "$marker" ] && [ -n "$(ls -A "$LVH_STATE" 2>/dev/null)" ]; then
    fail "$LVH_STATE holds something that this script did not make; name another folder in LVH_STATE"
  fi
}

open_state() {
  refuse_foreign_state
  case $LVH_STATE/ in
    /run/* | /var/run/* | /sys/* | /proc/* | /dev/*) fail "LVH_STATE must not be below a folder that the host hides: $LVH_STATE" ;;
  esac
  mkdir -p "$LVH_STATE"
  chmod 0700 "$LVH_STATE"
  : >"$marker"
}

# One `up` or `down` at a time; the second waits. Nothing that outlives the command may inherit descriptor 9.
lock_state() {
  exec 9>"$LVH_STATE/lock"
  flock --wait 900 9 || fail "another libvirt-host command has been working in $LVH_STATE for 15 minutes"
}

# What `up` began with counts until `down`, whatever the variables say meanwhile.
save_settings() {
  local name
  for name in "${settings[@]}"; do
    printf '%s=%q\n' "$name" "${!name}"
  done >"$LVH_STATE/settings"
}

load_settings() {
  # shellcheck source=/dev/null
  source "$LVH_STATE/settings"
}

# Fresh folders for one life of the host. QEMU's capability cache stays: it saves seconds and is keyed by the binary.
prepare_state() {
  local root=$LVH_STATE/root
  rm -rf --one-file-system "$LVH_STATE/log"
  mkdir -p "$LVH_STATE"/{bin,log/libvirt,ssh} "$root/etc/libvirt" "$root/var/lib/libvirt/images" "$root/var/cache/libvirt"
  chmod 0711 "$root/var/lib/libvirt" "$root/var/lib/libvirt/images"
  save_settings
}

clear_state() {
  rm -rf --one-file-system "$LVH_STATE"/{init,settings,ssh} "$LVH_STATE"/root/{etc,var/lib}
}

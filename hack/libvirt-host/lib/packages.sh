# shellcheck shell=bash
# The Debian packages that the host and the image builder need. Sourced by libvirt-host. Installs only in CI or when told to.

run_packages=(
  libvirt-daemon-system libvirt-clients qemu-system-x86 qemu-utils ovmf dnsmasq-base
  openssh-server openssh-client iproute2 util-linux
)
build_packages=(
  mmdebstrap debian-archive-keyring cpio zstd xz-utils kmod binutils
  dosfstools mtools e2fsprogs fdisk syslinux syslinux-common
)

may_install() {
  [ "${INSTALL:-}" = 1 ] || [ "${CI:-}" = true ]
}

missing_packages() {
  local package
  for package in "$@"; do
    dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || printf '%s ' "$package"
  done
}

ensure_packages() {
  local missing
  missing=$(missing_packages "$@")
  [ -n "$missing" ] || return 0
  may_install || fail "packages are missing: ${missing}- run again with INSTALL=1, or: apt-get install $missing"
  log "installing $missing"
  # shellcheck disable=SC2086 # a list of words
  install_packages $missing
}

# In a subshell, for its trap.
install_packages() (
  mkdir -p "$cache_base"
  apt_log=$cache_base/libvirt-host-apt.log
  links_before=$(unit_links)
  hold_services
  trap release_services EXIT
  export DEBIAN_FRONTEND=noninteractive
  apt_update
  if ! apt-get install -y -q -o DPkg::Lock::Timeout=900 --no-install-recommends "$@" >"$apt_log" 2>&1; then
    tail -n 20 "$apt_log" >&2
    fail "apt-get install failed (whole log: $apt_log)"
  fi
  disable_new_units "$links_before"
)

# apt's own lock timeout does not cover the package lists.
apt_update() {
  local tries
  for tries in $(seq 150); do
    if apt-get update -q >"$apt_log" 2>&1; then
      return 0
    fi
    grep -q 'Could not get lock' "$apt_log" || break
    sleep 2
  done
  tail -n 20 "$apt_log" >&2
  fail "apt-get update failed, try $tries (whole log: $apt_log)"
}

# While this file says no, packages start none of their services. One that is there already is the administrator's.
hold_services() {
  [ -e /usr/sbin/policy-rc.d ] || printf '#!/bin/sh\n# libvirt-host\nexit 101\n' >/usr/sbin/policy-rc.d
  chmod 0755 /usr/sbin/policy-rc.d
}

release_services() {
  if grep -qx '# libvirt-host' /usr/sbin/policy-rc.d 2>/dev/null; then
    rm -f /usr/sbin/policy-rc.d
  fi
}

unit_links() {
  find /etc/systemd/system -type l 2>/dev/null | sort
}

# Installing also enables services for the next boot. This host uses none of them, so what was not enabled stays so.
disable_new_units() {
  local link
  comm -13 <(printf '%s\n' "$1") <(unit_links) | while read -r link; do
    rm -f "$link"
  done
  if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
  fi
}

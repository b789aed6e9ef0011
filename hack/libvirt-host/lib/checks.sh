# shellcheck shell=bash
# What must hold before the host starts, each refusal with its way out. Sourced by libvirt-host; changes nothing.

# Prints why this machine can never run the host, and nothing if it can.
unsuitable() {
  if [ "$(uname -s)/$(uname -m)" != Linux/x86_64 ]; then
    echo "needs Linux on x86-64, this is $(uname -s) on $(uname -m)"
  elif [ "$(id -u)" != 0 ]; then
    echo 'needs root: namespaces, a bridge and libvirtd'
  elif ! command -v dpkg-query >/dev/null; then
    echo 'needs Debian or Ubuntu: it runs on their packages'
  elif [ ! -c /dev/kvm ]; then
    echo 'needs /dev/kvm (even where guests are emulated, libvirt must find it)'
  elif [ ! -c /dev/net/tun ]; then
    echo 'needs /dev/net/tun'
  fi
}

# Prints whose libvirtd runs here, and nothing if there is none but ours.
foreign_libvirtd() {
  local process name mine=
  if init_alive; then
    mine=$(readlink "/proc/$(init_pid)/ns/pid")
  fi
  for process in /proc/[0-9]*; do
    # Processes come and go while we look.
    name=$(cat "$process/comm" 2>/dev/null) || continue
    case $name in
      libvirtd | virtqemud)
        if [ "$(readlink "$process/ns/pid" 2>/dev/null)" != "$mine" ]; then
          echo "$name is running as process ${process#/proc/}"
          return 0
        fi
        ;;
    esac
  done
}

# Prints the route that overlaps the host's subnet, and nothing if there is none. A default route overlaps all and does not count.
overlapping_route() {
  {
    ip -4 route show table all root "$LVH_NET.0/24"
    ip -4 route show table all match "$LVH_NET.0/24"
  } | grep -v -e '^default' -e '^unreachable default' | head -n 1
}

refuse_unsuitable_machine() {
  local reason
  reason=$(unsuitable)
  [ -z "$reason" ] || fail "$reason"
}

refuse_wrong_settings() {
  local number='(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])'
  [[ $LVH_NET =~ ^$number\.$number\.$number$ ]] ||
    fail "LVH_NET takes the first three numbers of a /24, as in 192.168.213, not '$LVH_NET'"
  [ "${#LVH_LINK}" -le 15 ] || fail "LVH_LINK is a link's name, at most 15 characters: '$LVH_LINK'"
  case $LVH_ACCEL in
    auto | kvm | tcg) ;;
    *) fail "LVH_ACCEL is auto, kvm or tcg, not '$LVH_ACCEL'" ;;
  esac
}

refuse_wrong_owner() {
  [ -z "$LVH_OWNER_PID" ] || [ -e "/proc/$LVH_OWNER_PID/comm" ] || fail "LVH_OWNER_PID names no process: $LVH_OWNER_PID"
}

refuse_busy_machine() {
  local found
  if [ "$LVH_BESIDE" != 1 ]; then
    found=$(foreign_libvirtd)
    [ -z "$found" ] ||
      fail "$found and was not started by this host; it is left alone. LVH_BESIDE=1 starts this host beside it"
  fi
  if ! unplugged; then
    fail "a link $LVH_LINK exists already and is not of this host; name another one in LVH_LINK"
  fi
  found=$(overlapping_route || true)
  [ -z "$found" ] ||
    fail "$LVH_NET.0/24 overlaps the route '$found'; name the first three numbers of a free /24 in LVH_NET"
}

# Can `up` work here? Prints the reason if not.
check() {
  local reason missing
  reason=$(unsuitable)
  if [ -z "$reason" ] && ! init_alive && [ "$LVH_BESIDE" != 1 ]; then
    reason=$(foreign_libvirtd)
    [ -z "$reason" ] || reason+=' and was not started by this host (LVH_BESIDE=1 allows both)'
  fi
  if [ -z "$reason" ] && ! may_install; then
    missing=$(missing_packages "${run_packages[@]}")
    images_cached || missing+=" $(missing_packages "${build_packages[@]}")"
    [ -z "${missing// /}" ] || reason="packages are missing, INSTALL=1 installs them: $missing"
  fi
  if [ -n "$reason" ]; then
    echo "$reason"
    return 1
  fi
  echo 'this machine can run the libvirt host'
}

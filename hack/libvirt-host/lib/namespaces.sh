# shellcheck shell=bash
# The host's namespaces seen from outside: its init process, the way in, and the cable. Sourced by libvirt-host.

init_pid() {
  cut -d' ' -f1 "$LVH_STATE/init"
}

# The time a process was started, in ticks since boot: with it a process id is never mistaken for a later one.
start_time() {
  sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20
}

is_zombie() {
  grep -q '^State:.Z' "/proc/$1/status" 2>/dev/null
}

# Whether the process that was started as the init is gone: not its number, which may be another's by now. While it is
# dying, its last act is to wait for the end of every process of its namespace.
init_ended() {
  local pid ticks
  [ -s "$LVH_STATE/init" ] || return 0
  read -r pid ticks <"$LVH_STATE/init"
  [ "$(start_time "$pid")" != "$ticks" ] || is_zombie "$pid"
}

# A dying process has no network namespace any more, though it may take a while to end.
init_alive() {
  ! init_ended && readlink "/proc/$(init_pid)/ns/net" >/dev/null 2>&1
}

# After a kill, what went with the init takes a moment to be gone: processes first, then the namespace with the cable's end.
settle() {
  wait_until 60 init_ended || fail "process $(init_pid), the init of this host, does not end"
  if own_link; then
    wait_until 60 unplugged || fail "the link $LVH_LINK does not go away"
  fi
}

# The link's alias tells whose it is.
link_alias() {
  printf 'libvirt-host %s' "$LVH_STATE" | cut -c1-250
}

own_link() {
  ip link show dev "$LVH_LINK" 2>/dev/null | grep -qxF "    alias $(link_alias)"
}

# wait_until SECONDS COMMAND...
wait_until() {
  local deadline=$((SECONDS + $1))
  shift
  until "$@"; do
    [ "$SECONDS" -lt "$deadline" ] || return 1
    sleep 0.05
  done
}

# Runs a command inside, with nothing of the caller's environment, so that no secret of a CI run ends up in a daemon.
inside() {
  local name variables=()
  for name in "${settings[@]}"; do
    variables+=("$name=${!name}")
  done
  nsenter --target "$(init_pid)" --mount --net --pid --uts --ipc -- \
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C TERM="${TERM:-dumb}" "${variables[@]}" "$@" 8>&- 9>&-
}

# The init outlives this command: no controlling terminal, no descriptor of ours (a reader of our output would wait for it),
# no environment of ours.
start_init() {
  local name variables=()
  choose_acceleration
  save_settings
  for name in "${settings[@]}" LVH_OWNER_PID; do
    variables+=("$name=${!name}")
  done
  rm -f "$LVH_STATE/init"
  (
    close_descriptors
    exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C "${variables[@]}" \
      setsid unshare --mount --net --pid --uts --ipc --fork --kill-child --propagation slave \
      "$here/inside" init </dev/null >"$LVH_STATE/log/init.log" 2>&1
  ) &
  disown
  wait_until 30 test -s "$LVH_STATE/init" || {
    tail -n 5 "$LVH_STATE/log/init.log" >&2
    fail 'the namespaces were not made'
  }
}

close_descriptors() {
  local entry descriptor
  for entry in /proc/self/fd/*; do
    descriptor=${entry##*/}
    # bash reads this script through 255, which it closes itself on exec.
    if [ "$descriptor" -gt 2 ] && [ "$descriptor" != 255 ]; then
      eval "exec $descriptor>&-"
    fi
  done
}

# A CPU flag, not /dev/kvm, tells whether guests can run: the device also exists where they cannot.
choose_acceleration() {
  if [ "$LVH_ACCEL" = auto ]; then
    LVH_ACCEL=tcg
    if grep -qwE 'vmx|svm' /proc/cpuinfo; then
      LVH_ACCEL=kvm
    fi
  fi
}

# One end comes out here as $LVH_LINK with the gateway's address, the other goes into the host's bridge. It gets its alias
# before it comes out, so that it can be told from another's at any time.
plug_cable() {
  if unplugged; then
    in_network ip link delete dev uplink 2>/dev/null || true
    in_network ip link add "$LVH_LINK" type veth peer name uplink
    in_network ip link set dev "$LVH_LINK" alias "$(link_alias)"
    in_network ip link set dev "$LVH_LINK" netns $$
  elif ! own_link; then
    fail "the link $LVH_LINK is not of this host; it is left alone"
  fi
  ip link set dev "$LVH_LINK" addrgenmode none
  ip address replace "$(gateway_address)/24" dev "$LVH_LINK"
  ip link set dev "$LVH_LINK" up
}

# Runs a command of this machine in the host's network.
in_network() {
  nsenter --target "$(init_pid)" --net -- "$@"
}

# Ending the init ends every process of its namespace; its parent (unshare) goes after the last of them.
end_init() {
  local init parent
  init=$(init_pid)
  parent=$(awk '/^PPid:/{print $2}' "/proc/$init/status")
  kill -KILL "$init"
  settle
  wait_until 60 gone "$parent" || fail "process $parent, the parent of the init, does not end"
}

gone() {
  [ ! -e "/proc/$1" ] || is_zombie "$1"
}

# The kernel removes a network namespace, and the cable's end with it, a moment after its last process.
unplugged() {
  ! ip link show dev "$LVH_LINK" >/dev/null 2>&1
}

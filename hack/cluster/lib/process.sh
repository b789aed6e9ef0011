# shellcheck shell=bash disable=SC2154,SC2034 # its names are shared with cluster.sh, which sources it
# Processes that outlive the script: started in a session of their own, known again by more than their number.
# Sourced by cluster.sh, which sets `state` and `say`/`die`; knows nothing of Kubernetes.

# process_identity PID: what tells a process from a later one that was given the same number: its start time and the
# boot. Fails when there is no such process, or only a zombie that nobody has reaped.
process_identity() {
  local stat='' fields boot
  # all of it, for the name may hold any character; and not by $(<file), which ends the shell where there is no file
  IFS= read -rd '' stat <"/proc/$1/stat" || [[ -n $stat ]] || return 1
  read -ra fields <<<"${stat##*) }" # the name before it may hold blanks
  [[ ${fields[0]} != [ZX] ]] || return 1
  read -r boot </proc/sys/kernel/random/boot_id
  printf '%s %s\n' "${fields[19]}" "$boot"
} 2>/dev/null

# process_id NAME: prints the number of the running process that this folder's NAME.pid was written for
process_id() {
  local pid identity
  [[ -f $state/run/$1.pid ]] || return 1
  read -r pid identity <"$state/run/$1.pid" || return 1
  [[ $(process_identity "$pid") == "$identity" ]] || return 1
  printf '%s\n' "$pid"
}

running() { process_id "$1" >/dev/null; }

# Nothing of the caller may stay open in a process that outlives it: the lock on the state folder would never be
# released, and whoever reads the script's output through a pipe would wait for its end.
close_inherited() {
  local path fd
  for path in /proc/self/fd/*; do
    fd=${path##*/}
    ((fd < 3)) || { exec {fd}>&-; } 2>/dev/null
  done
}

# start_process NAME PROGRAM ARGUMENT...: unless it runs already. The process itself writes its file before it becomes
# the program, so that there is no moment at which it runs and is not on record.
start_process() {
  local name=$1
  shift
  running "$name" && return
  mkdir -p "$state/run" "$state/log"
  rm -f "$state/run/$name.pid"
  (
    cd "$state" || exit
    self=$BASHPID # before the substitution, which is a process of its own
    echo "$self $(process_identity "$self")" >"run/$name.pid.new"
    mv "run/$name.pid.new" "run/$name.pid"
    close_inherited
    exec env -i HOME="$state" PATH="$PATH" LANG=C setsid "$@"
  ) >>"$state/log/$name.log" 2>&1 </dev/null &
  local child=$!
  until [[ -s $state/run/$name.pid ]]; do
    kill -0 "$child" 2>/dev/null || die "cannot start $name; see $state/log/$name.log"
    sleep 0.02
  done
}

# wait_until SECONDS COMMAND...: tries the command until it succeeds
wait_until() {
  local deadline=$((SECONDS + $1))
  shift
  until "$@"; do
    ((SECONDS < deadline)) || return 1
    sleep 0.1
  done
}

all_stopped() {
  local name
  for name in "$@"; do ! running "$name" || return 1; done
}

# stop_processes SECONDS NAME...: asks all of them to end, and kills those that have not after that time. The signal goes
# to the process group, which `setsid` named after the process.
stop_processes() {
  local grace=$1 name pid signal
  shift
  for signal in TERM KILL; do
    for name in "$@"; do
      if pid=$(process_id "$name"); then kill "-$signal" -- "-$pid" 2>/dev/null || true; fi
    done
    if wait_until "$grace" all_stopped "$@"; then
      for name in "$@"; do rm -f "$state/run/$name.pid"; done
      return
    fi
  done
  die "cannot stop all of: $*"
}

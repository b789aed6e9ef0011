#!/usr/bin/env bash
# A real Kubernetes control plane on loopback: etcd, kube-apiserver (RBAC on) and kube-controller-manager as processes.
# It has no nodes, so Pods stay Pending.
#
# usage: hack/cluster/cluster.sh COMMAND
#   up               start it, or what of it does not run; prints the line that selects it, for `eval`
#   down             stop it and remove its state
#   status           a line per process; the exit status is 3 unless all run
#   env              print the line that selects it
#   kubeconfig       print only the path of its administrator's kubeconfig
#   stop-apiserver   stop only the API server; what it stored stays
#   start-apiserver  start it again, on the same port
#   kubectl ARG...   kubectl as its administrator
#   build            get the programs (download or compile, once per machine) and print their folder
#   check            exit status 0 if `up` can be expected to work here; otherwise says why not
#
# environment:
#   CLUSTER_DIR       state folder, one per cluster (default ${XDG_RUNTIME_DIR:-/tmp}/egress-cluster)
#   CLUSTER           existing: use the cluster of $KUBECONFIG, and leave it alone. Or the one way to get the programs:
#                     assets (KUBEBUILDER_ASSETS), download, build. Default: the first of these three that works.
#   CLUSTER_API_PORT, CLUSTER_ETCD_PORT  ports (default: free ones, kept while the state folder exists)
#   CLUSTER_APISERVER_FLAGS  more flags for kube-apiserver from its next start on, separated by blanks; kept too
#   CLUSTER_OWNER_PID  take the cluster down when this process has ended
#   CLUSTER_TIMEOUT   seconds that a start may take (default 180)
#   CLUSTER_RELEASE_URL, CLUSTER_ETCD_RELEASE_URL  mirrors of dl.k8s.io and of etcd's GitHub releases
#   INSTALL=1         install missing Debian packages (always done when CI=true)
# shellcheck source-path=SCRIPTDIR
set -euo pipefail
umask 077

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
state=${CLUSTER_DIR:-${XDG_RUNTIME_DIR:-/tmp}/egress-cluster}
[[ $state == /* ]] || state=$PWD/$state
readonly components=(etcd kube-apiserver kube-controller-manager)
readonly start_timeout=${CLUSTER_TIMEOUT:-180}
started=() # by this run, to be stopped again if it fails

say() { printf 'cluster: %s\n' "$*" >&2; }
die() {
  say "$*"
  exit 1
}

# shellcheck source=lib/process.sh
. "$here/lib/process.sh"
# shellcheck source=lib/pki.sh
. "$here/lib/pki.sh"
# shellcheck source=lib/programs.sh
. "$here/lib/programs.sh"
# shellcheck source=lib/download.sh
. "$here/lib/download.sh"
# shellcheck source=lib/build.sh
. "$here/lib/build.sh"
# shellcheck source=lib/control-plane.sh
. "$here/lib/control-plane.sh"

usage() { sed -n '2,/^#   INSTALL/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }

is_ours() { [[ -e $state/.egress-cluster ]]; }

# Takes the folder's lock for the rest of the run. The lock is on the folder itself, which therefore may have been
# removed, or removed and made again, by the time it is ours.
lock_state() {
  local lock
  while [[ -d $state ]]; do
    exec {lock}<"$state" || die "cannot open $state"
    flock -w 600 "$lock" || die "another run has been busy with $state for 10 minutes"
    [[ ! $state -ef /proc/self/fd/$lock ]] || return 0
    exec {lock}<&-
  done
  return 1
}

# Makes the folder ours, if it is new or empty; never one that holds something else.
claim_state() {
  until mkdir -p "$state" && lock_state; do :; done
  [[ -O $state ]] || die "$state belongs to another user; set CLUSTER_DIR"
  if ! is_ours; then
    [[ -z $(ls -A "$state") ]] || die "$state holds something else; set CLUSTER_DIR to a folder that is new or empty"
    touch "$state/.egress-cluster"
  fi
  chmod 700 "$state"
  mkdir -p "$state/log" "$state/run"
}

# require_state: for commands that need a cluster that was started
require_state() {
  if ! is_ours || [[ ! -f $state/admin.kubeconfig ]]; then die "no cluster in $state; start it with: $0 up"; fi
}

print_env() { printf 'export KUBECONFIG=%q\n' "$1"; }

up() {
  require_tools
  find_programs
  claim_state
  trap 'stop_started' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  start_all
  watch_owner
  trap - EXIT
  print_env "$state/admin.kubeconfig"
}

stop_started() {
  trap - EXIT
  if ((${#started[@]})); then
    say "stopping what was started; the logs stay in $state/log until: $0 down"
    stop_processes 10 "${started[@]}"
  fi
}

down() {
  if ! lock_state; then
    say "nothing in $state"
    return
  fi
  if is_ours; then
    stop_all
  elif [[ -n $(ls -A "$state") ]]; then
    die "$state is not the state of a cluster: left alone"
  fi
  rm -rf -- "${state:?}"
}

status() {
  local name pid code=0
  for name in "${components[@]}"; do
    if pid=$(process_id "$name"); then
      printf '%-24s running  pid %s\n' "$name" "$pid"
    else
      printf '%-24s stopped\n' "$name"
      code=3
    fi
  done
  return "$code"
}

# watch_owner: tests that are killed cannot take their cluster down, so a process of its own does when they are gone
watch_owner() {
  local identity
  [[ -n ${CLUSTER_OWNER_PID:-} ]] || return 0
  identity=$(process_identity "$CLUSTER_OWNER_PID") || die "CLUSTER_OWNER_PID=$CLUSTER_OWNER_PID is not a running process"
  stop_processes 5 owner-watch
  start_process owner-watch env CLUSTER_DIR="$state" "$BASH" "$here/cluster.sh" down-after "$CLUSTER_OWNER_PID" "$identity"
}

# down-after PID IDENTITY: that process
down_after() {
  while [[ $(process_identity "$1") == "$2" ]]; do sleep 1; done
  down
}

check() {
  local missing
  [[ $(uname -s) == Linux ]] || die "a control plane of its own needs Linux; CLUSTER=existing with KUBECONFIG uses another"
  missing=$(missing_tools)
  [[ -z $missing ]] || may_install || die "not installed: ${missing% } (INSTALL=1 installs ${apt_packages[*]})"
  [[ -z $missing ]] || return 0
  obtainable || die "no way to get the programs: $(printf '%s; ' "${tried[@]}")"
}

# The cluster of CLUSTER=existing is only looked at.
existing_kubectl() {
  local kubectl
  [[ -n ${KUBECONFIG:-} ]] || die "CLUSTER=existing needs KUBECONFIG"
  kubectl=$(command -v kubectl) || kubectl=${KUBEBUILDER_ASSETS:-}/kubectl
  [[ -x $kubectl ]] || die "CLUSTER=existing needs kubectl"
  "$kubectl" "$@"
}

existing() {
  case $1 in
    up | check | status | env)
      existing_kubectl get --raw /readyz --request-timeout=20s >/dev/null || die "the cluster of KUBECONFIG=$KUBECONFIG does not answer"
      [[ $1 == check ]] || print_env "$KUBECONFIG"
      ;;
    kubeconfig) printf '%s\n' "${KUBECONFIG:?}" ;;
    down) say "the cluster of KUBECONFIG=${KUBECONFIG:-} was not started here: left alone" ;;
    kubectl) existing_kubectl "${@:2}" ;;
    *) die "$1 is not for a cluster that was not started here (CLUSTER=existing)" ;;
  esac
}

main() {
  local command=${1:-help}
  case $command in
    up | down | status | env | kubeconfig | stop-apiserver | start-apiserver | build | kubectl | check)
      if [[ ${CLUSTER:-} == existing ]]; then
        existing "$@"
        return
      fi
      ;;&
    up | down | status | check) "$command" ;;
    env) require_state && print_env "$state/admin.kubeconfig" ;;
    kubeconfig) require_state && printf '%s\n' "$state/admin.kubeconfig" ;;
    stop-apiserver) require_state && lock_state && stop_apiserver ;;
    start-apiserver) require_state && lock_state && start_apiserver && wait_ready ;;
    kubectl)
      require_state
      # its cache is per address, and another cluster may have had this port
      KUBECONFIG=$state/admin.kubeconfig KUBECACHEDIR=$state/kubectl-cache exec "$state/bin/kubectl" "${@:2}"
      ;;
    build)
      require_tools
      find_programs
      printf '%s\n' "$programs_dir"
      ;;
    down-after) down_after "${@:2}" ;;
    help | -h | --help) usage ;;
    *)
      usage >&2
      exit 2
      ;;
  esac
}

main "$@"

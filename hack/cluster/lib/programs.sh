# shellcheck shell=bash disable=SC2154,SC2034 # its names are shared with cluster.sh, which sources it
# Which folder etcd, kube-apiserver, kube-controller-manager and kubectl are taken from, and in which order the ways are
# tried. Sourced by cluster.sh, which sets `here` and `say`/`die`; the two ways that make something are in files of their own.
#
# A way has three functions: NAME_at_hand (sets programs_dir, makes nothing), NAME_make (sets programs_dir; may use the
# folder $work) and NAME_possible (whether NAME_make can be expected to succeed). One that fails adds why to `tried`.

readonly program_names=(etcd kube-apiserver kube-controller-manager kubectl)
readonly apt_packages=(openssl curl ca-certificates) # beyond coreutils, util-linux (flock, setsid), tar and gzip
cache=${XDG_CACHE_HOME:-${HOME:?}/.cache}/egress-proxies-operator
programs_dir=
tried=()

# The versions are pinned once, in go.mod: the release that is downloaded is the one that would be built.
module_version() { awk -v module="$1" '$1 == module { print $2; exit }' "$here/src/go.mod"; }
kubernetes_version() { module_version k8s.io/kubernetes; }
etcd_version() { module_version go.etcd.io/etcd/server/v3; }

may_install() { [[ ${INSTALL:-} == 1 || ${CI:-} == true ]]; }

# apt_install PACKAGE...: only in CI or when told to
apt_install() {
  local root=()
  ((EUID == 0)) || root=(sudo -n)
  say "installing $*"
  "${root[@]}" apt-get -qq update >&2 &&
    "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o DPkg::Lock::Timeout=600 install --no-install-recommends "$@" >&2
}

missing_tools() {
  local tool
  for tool in openssl curl flock setsid tar base64 sha256sum; do command -v "$tool" >/dev/null || printf '%s ' "$tool"; done
}

require_tools() {
  local missing
  missing=$(missing_tools)
  [[ -n $missing ]] || return 0
  may_install || die "not installed: ${missing% } (INSTALL=1 lets me run: apt-get install ${apt_packages[*]})"
  apt_install "${apt_packages[@]}" || die "apt-get could not install ${apt_packages[*]}"
  missing=$(missing_tools)
  [[ -z $missing ]] || die "still not installed: ${missing% }"
}

# complete FOLDER: it has every program
complete() {
  local name
  for name in "${program_names[@]}"; do [[ -x $1/$name ]] || return 1; done
}

assets_at_hand() {
  if [[ -z ${KUBEBUILDER_ASSETS:-} ]]; then
    tried+=('KUBEBUILDER_ASSETS is not set')
  elif ! complete "$KUBEBUILDER_ASSETS"; then
    # envtest's archives hold no controller manager, without which nothing is garbage collected and no namespace ends
    tried+=("KUBEBUILDER_ASSETS=$KUBEBUILDER_ASSETS does not hold all of: ${program_names[*]}")
  else
    programs_dir=$(cd "$KUBEBUILDER_ASSETS" && pwd) && return
  fi
  return 1
}
assets_make() { return 1; }
assets_possible() { return 1; }

# The ways to try, in order, into the array `ways`; CLUSTER names a single one.
choose_ways() {
  case ${CLUSTER:-} in
    '') ways=(assets download build) ;;
    assets | download | build) ways=("$CLUSTER") ;;
    *) die "CLUSTER=$CLUSTER is not one of: existing, assets, download, build" ;;
  esac
}

any_at_hand() {
  local way
  for way in "$@"; do ! "${way}_at_hand" || return 0; done
  return 1
}

# find_programs: sets programs_dir. What is at hand comes before what must be made, so that nothing is asked of the
# network on a machine that has it all. One run at a time makes something, and the next finds it.
find_programs() {
  local ways lock way work
  choose_ways
  ! any_at_hand "${ways[@]}" || return 0
  mkdir -p "$cache"
  exec {lock}>"$cache/kube.lock"
  if ! flock -n "$lock"; then
    say "another run is getting the programs; waiting for it"
    flock "$lock"
  fi
  tried=()
  if ! any_at_hand "${ways[@]}"; then
    # beside its final place, so that the last step of a way is a rename
    work=$(mktemp -d "$cache/.kube.XXXXXX")
    # shellcheck disable=SC2064 # expanded now: the name is local
    trap "rm -rf '$work'" EXIT
    for way in "${ways[@]}"; do
      find "$work" -mindepth 1 -delete
      if "${way}_make"; then break; fi
    done
    rm -rf "$work"
    trap - EXIT
  fi
  exec {lock}>&-
  [[ -z $programs_dir ]] || return 0
  printf '  - %s\n' "${tried[@]}" >&2
  die "found no way to get ${program_names[*]}; what stopped each is listed above"
}

# obtainable: whether find_programs can be expected to succeed. Makes nothing.
obtainable() {
  local ways way
  choose_ways
  ! any_at_hand "${ways[@]}" || return 0
  for way in "${ways[@]}"; do ! "${way}_possible" || return 0; done
  return 1
}

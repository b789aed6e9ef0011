# shellcheck shell=bash disable=SC2154,SC2034 # its names are shared with cluster.sh, which sources it
# The way `build` of programs.sh: one executable compiled from Go modules, with a link per program.

# Only these flags and this environment reach the compiler: with another set it would compile every package anew.
go_() { GOFLAGS=-mod=readonly GOWORK=off CGO_ENABLED=0 go -C "$here/src" "$@"; }

# What `kubectl version` and the API server's /version tell. The date is fixed, so that equal sources give equal programs.
link_flags() {
  local version minor package
  version=$(kubernetes_version)
  minor=${version#v1.}
  printf -- '-s -w'
  for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    printf -- " -X $package.%s" "gitVersion=$version" gitMajor=1 "gitMinor=${minor%%.*}" gitTreeState=clean \
      "gitCommit=0000000000000000000000000000000000000000" buildDate=2026-01-01T00:00:00Z
  done
}

# A folder per compiler, flags and sources: whoever changes one gets a new one and leaves the old to who runs it.
build_folder() {
  local key
  key=$({
    go_ env GOVERSION GOOS GOARCH
    link_flags
    cd "$here/src" && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
  } | sha256sum)
  printf '%s/kube-%s\n' "$cache" "${key:0:16}"
}

build_at_hand() {
  local folder
  command -v go >/dev/null && folder=$(build_folder) && complete "$folder" && programs_dir=$folder
}

# Asks the module proxy, or else the module cache, no more than whether the version exists.
build_possible() {
  if ! command -v go >/dev/null; then
    may_install && return
    tried+=('go is not installed')
    return 1
  fi
  go_ list -m "k8s.io/kubernetes@$(kubernetes_version)" >/dev/null 2>&1 && return
  tried+=('go is installed, but cannot get modules')
  return 1
}

build_make() {
  local began=$SECONDS name
  if ! command -v go >/dev/null && ! { may_install && apt_install golang-go; }; then
    tried+=('go is not installed, so nothing can be compiled (any from 1.21 on fetches the version it needs)')
    return 1
  fi
  say "compiling Kubernetes $(kubernetes_version): once per machine, about 10 minutes on 2 cores"
  mkdir "$work/bin"
  if ! go_ build -trimpath -buildvcs=false -ldflags "$(link_flags)" -o "$work/bin/kube" ./cmd/kube >&2; then
    tried+=("go build in $here/src failed; its words are further above")
    return 1
  fi
  for name in "${program_names[@]}"; do ln -s kube "$work/bin/$name"; done
  mv "$work/bin" "$(build_folder)" && build_at_hand || return 1
  say "compiled in $((SECONDS - began)) s: $programs_dir"
}

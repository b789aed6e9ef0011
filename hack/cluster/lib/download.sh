# shellcheck shell=bash disable=SC2154,SC2034 # its names are shared with cluster.sh, which sources it
# The way `download` of programs.sh: the published release, checked against the SHA-256 sums published with it.

# fetch URL FILE [CURL-OPTION...]: gives up soon where nothing answers or nothing moves; says why in `tried`
fetch() {
  local url=$1 file=$2 error
  shift 2
  error=$(curl --fail --silent --show-error --location --connect-timeout 5 --speed-limit 10000 --speed-time 15 "$@" \
    --output "$file" "$url" 2>&1) && return
  tried+=("$url: $error")
  return 1
}

# fetch_sum URL [NAME]: sets `sum` from a file that holds one, or from the line for NAME of a list
fetch_sum() {
  fetch "$1" "$work/sums" --max-time 15 || return 1
  sum=$(awk -v name="${2:-}" 'name == "" || $2 == name || $2 == "*" name { print $1; exit }' "$work/sums")
  [[ $sum =~ ^[0-9a-f]{64}$ ]] && return
  tried+=("$1: holds no SHA-256${2:+ of $2}")
  return 1
}

# fetch_checked URL FILE SUM
fetch_checked() {
  fetch "$1" "$2" || return 1
  [[ $(sha256sum <"$2") == "$3  -" ]] && return
  tried+=("$1: its SHA-256 is not the published one, $3")
  say "$1 is not what was published: not used"
  return 1
}

release_arch() {
  case $(uname -m) in
    x86_64) echo amd64 ;;
    aarch64) echo arm64 ;;
    *) return 1 ;;
  esac
}

release_url() { printf '%s/%s/bin/linux/%s\n' "${CLUSTER_RELEASE_URL:-https://dl.k8s.io}" "$(kubernetes_version)" "$1"; }

release_folder() { printf '%s/kube-release-%s-etcd-%s-%s\n' "$cache" "$(kubernetes_version)" "$(etcd_version)" "$1"; }

download_at_hand() {
  local arch folder
  arch=$(release_arch) && folder=$(release_folder "$arch") && complete "$folder" && programs_dir=$folder
}

download_possible() {
  local arch work code=1
  arch=$(release_arch) || return 1
  work=$(mktemp -d)
  ! fetch "$(release_url "$arch")/kubectl.sha256" "$work/sum" --max-time 10 || code=0
  rm -rf "$work"
  return "$code"
}

download_make() {
  local arch name sum archive etcd_url
  arch=$(release_arch) || { tried+=("no release is published for $(uname -m)"); return 1; }
  mkdir "$work/bin"
  for name in kube-apiserver kube-controller-manager kubectl; do
    fetch_sum "$(release_url "$arch")/$name.sha256" || return 1
    say "downloading $name $(kubernetes_version)"
    fetch_checked "$(release_url "$arch")/$name" "$work/bin/$name" "$sum" || return 1
  done
  archive=etcd-$(etcd_version)-linux-$arch
  etcd_url=${CLUSTER_ETCD_RELEASE_URL:-https://github.com/etcd-io/etcd/releases/download}/$(etcd_version)
  fetch_sum "$etcd_url/SHA256SUMS" "$archive.tar.gz" || return 1
  say "downloading etcd $(etcd_version)"
  fetch_checked "$etcd_url/$archive.tar.gz" "$work/etcd.tar.gz" "$sum" || return 1
  tar -xzf "$work/etcd.tar.gz" -C "$work/bin" --strip-components=1 --no-same-owner "$archive/etcd" || return 1
  chmod 755 "$work"/bin/*
  mv "$work/bin" "$(release_folder "$arch")" && download_at_hand
}

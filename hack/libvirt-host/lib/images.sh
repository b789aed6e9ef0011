# shellcheck shell=bash
# The cache of guest images, outside the checkout and keyed by the scripts that build them. Sourced by libvirt-host.

image_names=(tiny cloudinit)
cache_base=${XDG_CACHE_HOME:-$HOME/.cache}/egress-proxies-operator

images_dir() {
  local key
  key=$(cd "$here/images" && sha256sum ./* | sha256sum | cut -c1-12)
  printf '%s/images-%s' "$cache_base" "$key"
}

image_path() {
  printf '%s/%s.qcow2\n' "$(images_dir)" "$1"
}

images_cached() {
  local name
  for name in "${image_names[@]}"; do
    [ -s "$(image_path "$name")" ] || return 1
  done
}

# Each change of the builder leaves a folder behind.
forget_old_images() {
  find "$cache_base" -maxdepth 1 -type d -name 'images-*' -mtime +30 -exec rm -rf --one-file-system {} +
}

# Builds what is missing, for all who share the cache: a second one waits and then finds it done.
ensure_images() {
  local dir missing=() name
  if images_cached; then
    touch "$(images_dir)"
    return 0
  fi
  [ "$(id -u)" = 0 ] || fail 'building the images needs root: mmdebstrap runs the packages in a chroot'
  ensure_packages "${build_packages[@]}"
  dir=$(images_dir)
  mkdir -p "$dir"
  exec 8>"$cache_base/images.lock"
  flock --wait 1800 8 || fail "another build has held $cache_base/images.lock for 30 minutes"
  for name in "${image_names[@]}"; do
    [ -s "$(image_path "$name")" ] || missing+=("$name")
  done
  if [ "${#missing[@]}" -gt 0 ]; then
    log "building images: ${missing[*]} (about a minute)"
    # An interrupted build leaves its work folder; with the lock held it is nobody's.
    rm -rf --one-file-system "$dir"/build.*
    if ! "$here/images/build" "$dir" "${missing[@]}" >"$dir/build.log" 2>&1; then
      tail -n 20 "$dir/build.log" >&2
      fail "the image build failed (whole log: $dir/build.log)"
    fi
  fi
  exec 8>&-
  forget_old_images
}

# shellcheck shell=bash
# The initramfs of both images, made from extracted packages. Sourced by `build`; what runs in the guest is guest-init.

# make_initramfs PACKAGES TREE FILE
make_initramfs() {
  local packages=$1 tree=$2 file=$3
  mkdir -p "$tree"/{bin,dev,etc/tinyproxy,lib/modules,mnt,proc,root,run,sbin,sys,tmp,usr/share/udhcpc,var/log}
  ln -s lib "$tree/lib64"
  ln -s /run "$tree/var/run"
  install_busybox "$packages" "$tree"
  install_programs "$packages" "$tree"
  install_modules "$packages" "$tree"
  printf 'root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n' >"$tree/etc/passwd"
  printf 'root:x:0:\nnogroup:x:65534:\n' >"$tree/etc/group"
  install -m 0644 "$here/tinyproxy.conf" "$tree/etc/tinyproxy/tinyproxy.conf"
  install -m 0755 "$here/guest-dhcp" "$tree/usr/share/udhcpc/default.script"
  install -m 0755 "$here/guest-init" "$tree/init"
  (cd "$tree" && find . | cpio -o -H newc -R 0:0 --quiet) | zstd -q -9 >"$file"
}

install_busybox() {
  local packages=$1 tree=$2 applet
  cp "$packages/usr/bin/busybox" "$tree/bin/"
  # It is linked statically, so it runs here whatever this machine's libc is.
  for applet in $("$packages/usr/bin/busybox" --list); do
    [ "$applet" = busybox ] || ln -s /bin/busybox "$tree/bin/$applet"
  done
}

# The three programs with exactly the libraries that their own loader resolves.
install_programs() {
  local packages=$1 tree=$2 libraries=$1/usr/lib/x86_64-linux-gnu program library
  local loader=$libraries/ld-linux-x86-64.so.2
  cp -L "$loader" "$tree/lib/ld-linux-x86-64.so.2"
  for program in usr/sbin/qemu-ga usr/bin/tinyproxy usr/bin/jq; do
    cp "$packages/$program" "$tree/bin/"
    while read -r library; do
      cp -L "$library" "$tree/lib/"
    done < <("$loader" --library-path "$libraries" --list "$packages/$program" | awk '/=> \//{print $3}')
  done
}

# The kernel modules that a guest of this project meets, uncompressed, in the order in which insmod must load them.
install_modules() {
  local packages=$1 tree=$2 kernel module name
  kernel=$(basename "$packages"/usr/lib/modules/*)
  depmod -b "$packages/usr" "$kernel"
  : >"$tree/etc/modules"
  while read -r module; do
    name=$(basename "$module")
    name=${name%.xz}
    case $module in
      *.xz) xz -dc "$module" >"$tree/lib/modules/$name" ;;
      *) cp "$module" "$tree/lib/modules/$name" ;;
    esac
    strip --strip-debug "$tree/lib/modules/$name"
    echo "$name" >>"$tree/etc/modules"
  done < <(
    modprobe -d "$packages/usr" -S "$kernel" --show-depends -a \
      virtio_net virtio_blk virtio_scsi ahci sr_mod isofs ext4 virtio_rng evdev button virtio_console |
      awk '$1 == "insmod" && !seen[$2]++ {print $2}'
  )
}

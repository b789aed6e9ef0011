# shellcheck shell=bash
# Disk images without root's loop devices: an EFI system partition, an ext4 file system, a GPT disk of both. Sourced by `build`.

esp_mib=48

# make_esp FILE KERNEL_OPTIONS: a FAT file system with $work/vmlinuz and $work/initrd.img, started by systemd-boot or syslinux.
make_esp() {
  local esp=$1 options=$2 entry=$work/entry
  export MTOOLS_SKIP_CHECK=1
  rm -f "$esp"
  truncate -s "${esp_mib}M" "$esp"
  mkfs.vfat -n ESP "$esp" >/dev/null
  mmd -i "$esp" ::/EFI ::/EFI/BOOT ::/loader ::/loader/entries ::/syslinux
  mcopy -i "$esp" "$work/loader.efi" ::/EFI/BOOT/BOOTX64.EFI
  mcopy -i "$esp" "$work/vmlinuz" ::/vmlinuz
  mcopy -i "$esp" "$work/initrd.img" ::/initrd.img

  printf 'timeout 0\ndefault guest.conf\n' >"$entry"
  mcopy -i "$esp" "$entry" ::/loader/loader.conf
  printf 'title guest\nlinux /vmlinuz\ninitrd /initrd.img\noptions %s\n' "$options" >"$entry"
  mcopy -i "$esp" "$entry" ::/loader/entries/guest.conf
  printf 'DEFAULT guest\nPROMPT 0\nTIMEOUT 0\nLABEL guest\n  LINUX /vmlinuz\n  INITRD /initrd.img\n  APPEND %s\n' \
    "$options" >"$entry"
  mcopy -i "$esp" "$entry" ::/syslinux/syslinux.cfg
  syslinux --install --directory syslinux "$esp"
}

# make_ext4 FILE DIR: an ext4 file system labelled ROOT that holds DIR, with a little room.
make_ext4() {
  local file=$1 dir=$2 used_mib
  used_mib=$(du -sm "$dir" | cut -f1)
  rm -f "$file"
  truncate -s "$((used_mib * 115 / 100 + 100))M" "$file"
  mke2fs -q -t ext4 -L ROOT -m 0 -d "$dir" "$file"
}

# make_disk FILE ESP [ROOT]: a GPT disk; the first MiB holds the table and the BIOS boot code.
make_disk() {
  local disk=$1 esp=$2 root=${3:-} root_mib=0 table
  table="start=2048, size=$((esp_mib * 2048)), type=C12A7328-F81F-11D2-BA4B-00A0C93EC93B, attrs=\"LegacyBIOSBootable\""
  if [ -n "$root" ]; then
    root_mib=$(($(stat -c %s "$root") / 1048576))
    table+=$'\n'"start=$(((1 + esp_mib) * 2048)), size=$((root_mib * 2048)), type=4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709"
  fi
  rm -f "$disk"
  truncate -s "$((1 + esp_mib + root_mib + 1))M" "$disk"
  printf 'label: gpt\n%s\n' "$table" | sfdisk -q "$disk"
  dd if=/usr/lib/syslinux/mbr/gptmbr.bin of="$disk" conv=notrunc bs=440 count=1 status=none
  dd if="$esp" of="$disk" bs=1M seek=1 conv=notrunc,sparse status=none
  if [ -n "$root" ]; then
    dd if="$root" of="$disk" bs=1M seek="$((1 + esp_mib))" conv=notrunc,sparse status=none
  fi
}

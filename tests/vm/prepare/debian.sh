# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154,SC2034
# Fills a prepared folder with Debian's kernel: image, `release`, modules, headers and the initramfs. Sourced by prepare.sh.

# prepare_debian KERNEL SCRATCH RESULT: Debian's kernel as it is, and iommufd and vfio built for it.
prepare_debian() {
  local kernel=$1 scratch=$2 result=$3 packages package headers=$3/headers release=$1-amd64
  mapfile -t packages < <(packages_for "$kernel")
  download "$scratch/packages" "${packages[@]}"

  say "unpacking"
  mkdir -p "$scratch/kernel" "$headers/libc" "$scratch/source"
  for package in "$scratch"/packages/*.deb; do
    case $(basename "$package") in
      linux-binary-* | linux-image-* | linux-modules-*) dpkg-deb -x "$package" "$scratch/kernel" ;;
      linux-headers-* | linux-kbuild-*) dpkg-deb -x "$package" "$headers" ;;
      linux-source-*) unpack_driver_sources "$package" "$scratch/source" ;;
      linux-libc-dev_*) dpkg-deb -x "$package" "$result/uapi" ;;
      *) dpkg-deb -x "$package" "$headers/libc" ;;
    esac
  done
  basename -a "$scratch"/packages/*.deb > "$result/packages"
  rm -rf "$scratch/packages"
  run_on_own_libc "$headers"
  slim "$headers"

  say "building iommufd and vfio for $release"
  if ! build_iommufd_and_vfio "$scratch/source" "$headers" "$scratch/built" > "$scratch/build.log" 2>&1; then
    cat "$scratch/build.log" >&2
    die "iommufd and vfio did not build for $release"
  fi
  gather_modules "$scratch/kernel" "$scratch/built" "$release" "$result/modules"
  echo "$release" > "$result/release"
  cp "$(find "$scratch/kernel" -name 'vmlinuz*' -type f | head -n 1)" "$result/kernel"
  unpack_kernel "$result/kernel"
  make_initramfs "$result/modules" "$result/initramfs.cpio"
}

# unpack_kernel IMAGE: QEMU can boot the kernel inside the image directly, which spares each boot the second that unpacking
# takes in software emulation. Where it lies is told by the boot header (Documentation/arch/x86/boot.rst: setup_sects,
# payload_offset, payload_length). A kernel packed in another manner boots as it is.
unpack_kernel() {
  local image=$1 setup_sectors offset length start
  setup_sectors=$(od -An -tu1 -j $((0x1f1)) -N 1 "$image")
  offset=$(od -An -tu4 -j $((0x248)) -N 4 "$image")
  length=$(od -An -tu4 -j $((0x24c)) -N 4 "$image")
  start=$(((setup_sectors + 1) * 512 + offset))
  # The payload's last four bytes are its size, which zstd does not know.
  if head -c $((start + length - 4)) "$image" | tail -c +$((start + 1)) | zstd -q -dc > "$image.unpacked" 2> /dev/null; then
    mv "$image.unpacked" "$image"
  else
    rm "$image.unpacked"
  fi
}

# slim HEADERS: leaves what building a module for x86 reads.
slim() {
  local headers=$1
  find "$headers"/usr/src/*-common/arch -mindepth 1 -maxdepth 1 ! -name x86 ! -name um -exec rm -rf {} +
  rm -rf "$headers"/usr/src/*-common/include/dt-bindings "$headers"/usr/src/*-amd64/vmlinux
  rm -rf "${headers:?}"/usr/share "$headers"/libc/usr/{share,sbin} "$headers"/libc/usr/lib/x86_64-linux-gnu/{gconv,audit}
}

# make_initramfs MODULES FILE: busybox and the modules. /init itself is added by run.sh at each boot, so that a change to it
# needs no new preparation.
make_initramfs() {
  local modules=$1 file=$2 root
  root=$(mktemp -d -p "$scratch")
  mkdir -p "$root/bin"
  cp "$(command -v busybox)" "$root/bin/busybox"
  ! ldd "$root/bin/busybox" > /dev/null 2>&1 || die "busybox is not static: apt-get install busybox-static"
  ln -s busybox "$root/bin/sh"
  cp -r "$modules/lib" "$root/lib"
  (cd "$root" && find . | cpio --quiet -o -H newc) > "$file"
}

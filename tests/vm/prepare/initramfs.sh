# shellcheck shell=bash
# The two ways to a prepared folder end here: kernel image, `release`, modules and the initramfs. Sourced by prepare.sh.

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
  cp "$(find "$scratch/kernel" -name 'vmlinuz*' -type f | head -n 1)" "$result/vmlinuz"
  make_initramfs "$result/modules" "$result/initramfs.cpio"
}

# slim HEADERS: leaves what building a module for x86 reads.
slim() {
  local headers=$1
  find "$headers"/usr/src/*-common/arch -mindepth 1 -maxdepth 1 ! -name x86 ! -name um -exec rm -rf {} +
  rm -rf "$headers"/usr/src/*-common/include/dt-bindings "$headers"/usr/src/*-amd64/vmlinux
  rm -rf "$headers"/libc/usr/{share,sbin} "$headers"/libc/usr/lib/x86_64-linux-gnu/{gconv,audit}
  rm -rf "$headers"/usr/share
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

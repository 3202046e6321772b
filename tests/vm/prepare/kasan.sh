# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154,SC2034
# Fills a prepared folder with an own kernel that watches itself (kasan.config), from Debian's source. Sourced by prepare.sh.

# Options that the rest relies on; merging a configuration drops silently what has an unmet dependency.
kasan_must_have=(KASAN=y PROVE_LOCKING=y IOMMUFD=m VFIO_DEVICE_CDEV=y VFIO_NOIOMMU=y VFIO_PCI_DMABUF=y VFIO_CONTAINER=y
  INTEL_IOMMU=y UDMABUF=y DMABUF_HEAPS_SYSTEM=y UIO_PCI_GENERIC=m BLK_DEV_NVME=m 9P_FS=y VIRTIO_CONSOLE=y HUGETLBFS=y)

# keep_headers SOURCE BUILD DIR: of a built kernel, what an external module needs, laid out in DIR as Debian's header packages are.
keep_headers() {
  local source=$1 build=$2 common=$3/usr/src/linux-headers-kasan-common flavour=$3/usr/src/linux-headers-kasan-amd64
  mkdir -p "$common" "$flavour"
  (cd "$source" && find Makefile Kbuild include scripts arch/x86/include arch/x86/Makefile* -type f -print0 | cpio --quiet -0pdm "$common")
  (cd "$build" && find .config Makefile Module.symvers include scripts arch/x86/include tools/objtool/objtool -type f \
    ! -name '*.o' ! -name '.*.cmd' -print0 2> /dev/null | cpio --quiet -0pdm "$flavour")
}

prepare_kasan() {
  local kernel=$1 scratch=$2 result=$3 source=$2/source build=$2/build series version option
  need flex=flex bison=bison bc=bc perl=perl
  # Headers for the programs that the build runs itself; `need` takes a file that is not there for a missing tool.
  [ -f /usr/include/gelf.h ] || need /usr/include/gelf.h=libelf-dev
  [ -f /usr/include/stdio.h ] || need /usr/include/stdio.h=libc6-dev
  series=$(cut -d. -f1,2 <<< "$kernel")
  version=$(packages_for "$kernel" | sed -n 's/^linux-libc-dev=//p')
  download "$scratch/packages" "linux-source-$series=$version" "linux-libc-dev=$version"
  basename -a "$scratch"/packages/*.deb > "$result/packages"

  say "unpacking"
  mkdir -p "$source" "$build"
  dpkg-deb -x "$scratch"/packages/linux-libc-dev_*.deb "$result/uapi"
  # Four fifths of the tree are drivers that this configuration never looks at; only their Kconfig files are needed.
  dpkg --fsys-tarfile "$scratch"/packages/linux-source-*.deb | tar -xO "./usr/src/linux-source-$series.tar.xz" | xz -T0 -dc |
    tar -x -C "$source" --strip-components=1 --exclude='*/drivers/gpu/drm/*.[ch]' --exclude='*/drivers/net/*/*.[ch]' \
      --exclude='*/drivers/media/*.[ch]' --exclude='*/sound/*.[ch]' --exclude='*/arch/arm*/*.dts*' \
      --exclude='*/fs/xfs/*.[ch]' --exclude='*/fs/btrfs/*.[ch]'

  local make=(make -s -C "$source" "O=$build" "-j$(nproc)" LOCALVERSION=-upcie-kasan)
  "${make[@]}" tinyconfig
  (cd "$build" && "$source/scripts/kconfig/merge_config.sh" -m -O . .config "$vm_dir/prepare/kasan.config") > "$scratch/config.log"
  "${make[@]}" olddefconfig
  for option in "${kasan_must_have[@]}"; do
    grep -q "^CONFIG_$option$" "$build/.config" || die "kasan.config: CONFIG_$option did not take effect"
  done

  say "building a kernel with KASAN and lockdep; this takes several minutes"
  "${make[@]}" bzImage modules > "$scratch/build.log" 2>&1 || { tail -n 40 "$scratch/build.log" >&2; die "the kernel did not build"; }
  "${make[@]}" INSTALL_MOD_PATH="$result/modules" INSTALL_MOD_STRIP=1 modules_install > /dev/null
  rm -f "$result"/modules/lib/modules/*/{build,source}
  "${make[@]}" kernelrelease > "$result/release"
  keep_headers "$source" "$build" "$result/headers"
  cp "$build/arch/x86/boot/bzImage" "$result/kernel"
  # It boots packed: entered directly (PVH), it runs checked code before there is a shadow to check against.
  make_initramfs "$result/modules" "$result/initramfs.cpio"
}

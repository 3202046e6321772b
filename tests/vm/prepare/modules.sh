# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154,SC2034
# Debian builds its kernels without iommufd. This builds Debian's own, unmodified iommufd and vfio sources as external modules
# for Debian's own kernel, and gathers the modules that the guest needs. Sourced by prepare.sh.

# What tests load; their dependencies come along. Everything else that tests use (virtio, udmabuf, dma-heaps) is built in.
guest_modules=(9p 9pnet_virtio iommufd vfio vfio_iommu_type1 vfio-pci uio_pci_generic nvme)

# run_on_own_libc HEADERS: lets the kernel's build tools run on the C library that was downloaded beside them.
# Paths are looked up at run time, since the cache moves into place only when it is complete.
run_on_own_libc() {
  local headers=$1 tool
  find "$headers/usr/lib" -type f -name 'modpost.real-lsb-64' -o -type f -name 'objtool.real-x86' | while read -r tool; do
    mv "$tool" "$tool.bin"
    cat > "$tool" <<'WRAPPER'
#!/bin/sh
tool=$(realpath "$0")
libc=${tool%/usr/lib/linux-kbuild*}/libc/usr/lib/x86_64-linux-gnu
exec "$libc/ld-linux-x86-64.so.2" --library-path "$libc" "$tool.bin" "$@"
WRAPPER
    chmod +x "$tool"
  done
}

# unpack_driver_sources PACKAGE DIR: only what is built, out of a source tree of 1.5 GB.
unpack_driver_sources() {
  local package=$1 dir=$2 top
  top=$(basename "$package"); top=${top%%_*}
  dpkg --fsys-tarfile "$package" | tar -xO "./usr/src/$top.tar.xz" | xz -T0 -dc |
    tar -x -C "$dir" --strip-components=1 "$top"/{drivers/iommu,drivers/vfio,lib/interval_tree.c}
}

# build_iommufd_and_vfio SOURCE HEADERS DIR: leaves the .ko files in DIR.
build_iommufd_and_vfio() {
  local source=$1 headers=$2 dir=$3 name options option defines
  mkdir -p "$dir"
  cp -r "$source/drivers/iommu/iommufd" "$source/drivers/vfio" "$dir/"
  cp "$source"/drivers/iommu/iommu-p*.h "$dir/"                    # iommufd includes "../iommu-priv.h" and its like

  # iommufd needs the interval tree's span iterator, a part of lib/ that Debian's kernel leaves out.
  {
    printf '#include <linux/interval_tree.h>\n#include <linux/module.h>\n'
    sed -n '/^#ifdef CONFIG_INTERVAL_TREE_SPAN_ITER/,$p' "$source/lib/interval_tree.c"
  } > "$dir/iommufd/span.c"
  # Kbuild files go before the Makefiles: the kernel's own list of objects, plus what would be built in elsewhere.
  # shellcheck disable=SC2016
  printf 'include $(src)/Makefile\niommufd-y += iova_bitmap.o driver.o span.o\n' > "$dir/iommufd/Kbuild"
  # Of the subdirectories only pci/: the others are drivers for buses and vendors that the guest does not have.
  for name in vfio vfio/pci; do sed '\#/$#{\# pci/$#!d}' "$dir/$name/Makefile" > "$dir/$name/Kbuild"; done
  echo 'obj-m += iommufd/ vfio/' > "$dir/Kbuild"

  # The options that Debian leaves off, for make and for the compiler, which sees an option of 'm' as *_MODULE.
  options=(IOMMUFD=m VFIO_DEVICE_CDEV=y VFIO_NOIOMMU=y VFIO_PCI_DMABUF=y)
  # No-IOMMU page tables need a symbol that not every flavour exports.
  if grep -q pt_iommu_amdv1_init "$headers"/usr/src/*-amd64/Module.symvers; then options+=(IOMMUFD_NOIOMMU=y); fi
  defines="-DCONFIG_IOMMUFD_DRIVER=1 -DCONFIG_IOMMUFD_DRIVER_CORE=1 -DCONFIG_INTERVAL_TREE_SPAN_ITER=1"
  for option in "${options[@]}"; do
    case $option in
      *=m) defines+=" -DCONFIG_${option%=m}_MODULE=1" ;;
      *=y) defines+=" -DCONFIG_${option%=y}=1" ;;
    esac
  done
  "$vm_dir/kbuild.sh" --headers "$headers" "$dir" "${options[@]/#/CONFIG_}" KCFLAGS="$defines"
}

# gather_modules DEBIAN_TREE BUILT RELEASE DIR: DIR becomes a root for `modprobe -d`, modules uncompressed and stripped.
gather_modules() {
  local tree=$1 built=$2 release=$3 dir=$4 all=$1/usr/lib/modules/$3 module file to=$4/lib/modules/$3
  ln -sfn usr/lib "$tree/lib"
  rm -rf "$all/kernel/drivers/vfio"
  mkdir -p "$all/updates" "$to"
  find "$built" -name '*.ko' -exec cp -t "$all/updates" {} +
  depmod -b "$tree" "$release" 2> /dev/null                       # it warns of lists that only a full installation has
  for module in "${guest_modules[@]}"; do modprobe -d "$tree" -S "$release" --show-depends "$module"; done |
    awk '$1 == "insmod" && !seen[$2]++ { print $2 }' | while read -r file; do
      module=$to/$(basename "${file%.xz}")
      case $file in *.xz) xz -dc "$file" > "$module" ;; *) cp "$file" "$module" ;; esac
      strip --strip-debug "$module"
    done
  depmod -b "$dir" "$release" 2> /dev/null
}

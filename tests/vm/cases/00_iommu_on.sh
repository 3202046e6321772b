# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# What the other cases rely on with a translating IOMMU, as far as it needs no library. First in its boot: no module is loaded.
a=$(nvme_bdf a) b=$(nvme_bdf b)

check "the running kernel is the prepared one" test -d "/run/vm/modules/lib/modules/$(uname -r)"
check_output "64 huge pages are reserved" 64 cat /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages
check "/dev/udmabuf and a system heap exist" test -c /dev/udmabuf -a -c /dev/dma_heap/system
check "debugfs, devpts and hugetlbfs are mounted" test -e /sys/kernel/debug/dma_buf -a -e /dev/pts/ptmx -a -d /dev/hugepages
check "no cdev and no /dev/iommu before the modules" test ! -e /dev/iommu -a ! -e /dev/vfio/devices

check "vfio loads" load_vfio
check "/dev/iommu and /dev/vfio/vfio exist" test -c /dev/iommu -a -c /dev/vfio/vfio
for bdf in "$a" "$b"; do
  device=/sys/bus/pci/devices/$bdf
  check "$bdf binds to vfio-pci" bind_device "$bdf" vfio-pci
  check "$bdf has a cdev" vfio_node "$bdf"
  check_output "$bdf is alone in its group" "$bdf" ls "$device/iommu_group/devices"
  group=$(readlink "$device/iommu_group")
  check "$bdf's group node exists" test -c "/dev/vfio/${group##*/}"
  check "$bdf's domain translates" grep -q '^DMA' "$device/iommu_group/type"
done
check "unbinding takes the cdev away" unbind_device "$a"
check "a has none" test ! -e /dev/vfio/devices/vfio0

as_nobody() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
check_output "another user can be" 65534 as_nobody id -u
cannot_open_iommu() { ! as_nobody test -r /dev/iommu; }
check "another user cannot open /dev/iommu" cannot_open_iommu

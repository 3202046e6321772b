# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154
# boot: --iommu on --ivshmem 4M --nvme a,cmb_size_mb=1,ns=512 --nvme b,ns=512,ns=4096,max_ioqpairs=4,mdts=5
# What vm.md says of a translating IOMMU, as far as it needs no library.
a=$(nvme_bdf a) b=$(nvme_bdf b) vram=$(ivshmem_bdf)

check_output "release is the prepared kernel's" "$UPCIE_SELF_RELEASE" uname -r
check_output "64 huge pages are reserved" 64 cat /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages
check "/dev/udmabuf and a system heap exist" test -c /dev/udmabuf -a -c /dev/dma_heap/system
check "debugfs, devpts and hugetlbfs are mounted" test -e /sys/kernel/debug/dma_buf -a -e /dev/pts/ptmx -a -d /dev/hugepages
check "no cdev and no /dev/iommu before the modules" test ! -e /dev/iommu -a ! -e /dev/vfio/devices

check "vfio loads" load_vfio
check "/dev/iommu exists" test -c /dev/iommu
check "/dev/vfio/vfio exists" test -c /dev/vfio/vfio
for bdf in "$a" "$b" "$vram"; do
  check "$bdf binds to vfio-pci" bind_device "$bdf" vfio-pci
  check "$bdf has a cdev" vfio_node "$bdf"
  check "$bdf is alone in its group" test "$(ls "/sys/bus/pci/devices/$bdf/iommu_group/devices")" = "$bdf"
  check "$bdf's group node exists" test -c "/dev/vfio/$(basename "$(readlink "/sys/bus/pci/devices/$bdf/iommu_group")")"
  check "$bdf's domain translates" grep -q '^DMA' "/sys/bus/pci/devices/$bdf/iommu_group/type"
done

# The host filled the images; the kernel's own driver reads them.
check "nvme loads" load_module nvme
for bdf in "$a" "$b"; do check "$bdf binds to nvme" bind_device "$bdf" nvme; done
check "its cdev is gone" test ! -e "/dev/vfio/devices/vfio0"
for drive in a1 b1 b2; do
  bdf=$(nvme_bdf "${drive%?}")
  check_output "$drive holds what the host wrote" "$(cat "/run/out/cksum.$drive")" sh -c "cksum < $(nvme_block "$bdf" "${drive#?}")"
done
a1=$(nvme_block "$a" 1) b1=$(nvme_block "$b" 1) b2=$(nvme_block "$b" 2)
check_output "b2 has 4096-byte blocks" 4096 cat "/sys/block/${b2#/dev/}/queue/logical_block_size"
check_output "mdts limits b's transfers" 128 cat "/sys/block/${b1#/dev/}/queue/max_hw_sectors_kb"
check "the guest writes for the host to check" dd "if=$a1" "of=$b1" bs=512 count=8 oflag=direct status=none

as_nobody() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
check_output "another user can be" 65534 as_nobody id -u
cannot_open_iommu() { ! as_nobody test -r /dev/iommu; }
check "another user cannot open /dev/iommu" cannot_open_iommu

# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# boot: --iommu off
# Without an IOMMU: vfio's unsafe mode with its differently named nodes, and uio.
a=$(nvme_bdf a) b=$(nvme_bdf b)

check "no IOMMU groups" test -z "$(ls /sys/kernel/iommu_groups)"
check "vfio loads, safe" load_vfio
check "without an IOMMU vfio-pci refuses" sh -c "! bash -c '. $UPCIE_VM_GUEST/devices.sh; bind_device $a vfio-pci' 2> /dev/null"
check "the unsafe mode switches on" load_vfio noiommu
check "a binds to vfio-pci" bind_device "$a" vfio-pci
check_output "its cdev is named noiommu-vfio0" /dev/vfio/devices/noiommu-vfio0 vfio_node "$a"
check "its group is named noiommu-<n>" sh -c "ls /dev/vfio | grep -q '^noiommu-[0-9]'"
check "uio_pci_generic loads" load_module uio_pci_generic
check "b binds to uio_pci_generic" bind_device "$b" uio_pci_generic
check "/dev/uio0 exists" test -c /dev/uio0

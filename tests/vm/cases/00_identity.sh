# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# boot: --iommu on --iommu-mode pt
# IOMMU on, but domains are identity by default; and a group's type can be changed.
a=$(nvme_bdf a)

check_output "a's domain is identity" identity cat "/sys/bus/pci/devices/$a/iommu_group/type"
check "vfio loads" load_vfio
check "a binds to vfio-pci" bind_device "$a" vfio-pci
check "a has a cdev" vfio_node "$a"
check "a unbinds" unbind_device "$a"
check "the group becomes translating" set_group_type "$a" DMA
check "the group becomes identity again" set_group_type "$a" identity
check "nvme loads" load_module nvme
check "a binds to nvme" bind_device "$a" nvme
check "a driver in use forbids the change" sh -c "! bash -c '. $UPCIE_VM_GUEST/devices.sh; set_group_type $a DMA' 2> /dev/null"

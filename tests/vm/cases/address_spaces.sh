# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# The iommu, memory and os rooms against the kernel, with an IOMMU.
address_spaces=$UPCIE_BUILD/tests/vm/address_space_check
a=$(nvme_bdf a)
check "vfio loads" load_vfio
check "a binds to vfio-pci" bind_device "$a" vfio-pci
cdev=$(vfio_node "$a")
check "iommufd maps and refuses as it says" "$address_spaces" iommufd "$cdev"
check "memlock binds a user without capabilities" "$address_spaces" limit "$cdev"
group=$(readlink "/sys/bus/pci/devices/$a/iommu_group")
check "type1 maps and refuses as it says" "$address_spaces" type1 "/dev/vfio/${group##*/}"

# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# boot: --iommu off
# Physical addresses by both ways there are, each the other's witness.
address_spaces=$UPCIE_BUILD/tests/vm/address_space_check
a=$(nvme_bdf a)
check "vfio loads, no-IOMMU mode" load_vfio noiommu
check "a binds to vfio-pci" bind_device "$a" vfio-pci
check "pagemap answers for hugepages alone" "$address_spaces" pagemap
check "GET_PA agrees with pagemap" "$address_spaces" noiommu "$(vfio_node "$a")"

# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# boot: --iommu off --cpu EPYC --memory 4096 --ivshmem 16M --append slub_debug=FZP
# The same by physical addresses, which IOMMU_IOAS_NOIOMMU_GET_PA gives: the BAR's own on the bus.
# host before: fill-stamps a1.img --size 64M --seed 4711 --range 16384:4096
# host after: check-stamps ../ivshmem --seed 4711 --range 16384:2048 --first 16384
# shellcheck source=tests/vm/guest/drives.sh
. "$UPCIE_VM_GUEST/drives.sh"
bar_check=$UPCIE_BUILD/tests/vm/bar_check
a=$(nvme_bdf a)
vram=$(ivshmem_bdf)
at_its_bus_address() {
  local address
  read -r address _ _ < <(sed -n 3p "/sys/bus/pci/devices/$vram/resource")
  "$bar_check" read "$a" noiommu "$vram" 4711:16384:2048 | tee /tmp/bar_check | grep -q "it is one run: $(printf '%#x' "$address")\$" ||
    { cat /tmp/bar_check; return 1; }
}
check "vfio loads, no-IOMMU mode" load_vfio noiommu
check "a binds to vfio-pci" bind_device "$a" vfio-pci
check "ivshmem binds to vfio-pci" bind_device "$vram" vfio-pci
check "noiommu: a transfer of 1 MiB into the BAR, at the address that sysfs gives" at_its_bus_address

# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# boot: --iommu off
# The drive without an IOMMU: by vfio's no-IOMMU cdev and GET_PA, and by uio with hugepages and pagemap.
# host before: fill-stamps a1.img --size 64M --seed 4711 --range 16384:4096
# host after: check-stamps a1.img --seed 4711 --range 16384:4096
# host after: check-stamps a1.img --seed 101 --range 49152:1024
# host after: check-stamps a1.img --seed 104 --range 50176:4096
# host after: check-stamps a1.img --seed 100 --range 54272:300
# host after: check-stamps a1.img --seed 102 --range 54784:1024
# host after: check-stamps a1.img --seed 101 --range 57344:1024
# host after: check-stamps a1.img --seed 104 --range 58368:4096
# host after: check-stamps a1.img --seed 100 --range 62464:300
# host after: check-stamps a1.img --seed 102 --range 62976:1024
# shellcheck source=tests/vm/guest/drives.sh
. "$UPCIE_VM_GUEST/drives.sh"
a=$(nvme_bdf a)
check "vfio loads, no-IOMMU mode" load_vfio noiommu
check "uio loads" load_module uio_pci_generic
check "a binds to vfio-pci" bind_device "$a" vfio-pci
run_drive noiommu "$a" 10 49152
check "a binds to uio_pci_generic" bind_device "$a" uio_pci_generic
run_drive uio "$a" 50 57344

# shellcheck shell=bash
# boot: --iommu off
# The paths without an IOMMU: physical addresses.
vfio_check=$UPCIE_BUILD/tests/vm/vfio_check
a=$(nvme_bdf a)
b=$(nvme_bdf b)
check "vfio loads, no-IOMMU mode" load_vfio noiommu
check "uio loads" load_module uio_pci_generic
check "vfio-pci takes a" "$vfio_check" bind "$a" vfio-pci
check "uio_pci_generic takes b" "$vfio_check" bind "$b" uio_pci_generic
check "no-IOMMU cdev" "$vfio_check" path "$a" noiommu
check "uio" "$vfio_check" path "$b" uio

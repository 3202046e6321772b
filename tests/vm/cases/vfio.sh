# shellcheck shell=bash
# boot: --iommu on
# pci, vfio and open against the kernel, with an IOMMU.
vfio_check=$UPCIE_BUILD/tests/vm/vfio_check
a=$(nvme_bdf a)
b=$(nvme_bdf b)
check "vfio loads" load_vfio
check "nvme loads" load_module nvme
check "a goes to nvme" bind_device "$a" nvme
disk=$(nvme_block "$a" 1)
check "a swap area is made" mkswap "$disk"
check "and used" swapon "$disk"
check "a disk in use is not taken away" "$vfio_check" refuse-mounted "$a"
check "the swap area is let go" swapoff "$disk"
check "vfio-pci takes a and gives it back" "$vfio_check" bind "$a" vfio-pci
check "vfio-pci takes b and gives it back" "$vfio_check" bind "$b" vfio-pci
check "cdev" "$vfio_check" path "$a" cdev
check "group" "$vfio_check" path "$a" group
check "two functions share an address space" "$vfio_check" share "$a" "$b"
check "a second opener" "$vfio_check" second "$a"
check "a delegated function" "$vfio_check" delegate "$a"
check "a goes back to the kernel" "$vfio_check" restore "$a"
check_output "which gives it to nvme" nvme driver_of "$a"

# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# boot: --cpu EPYC --ivshmem 16M
# module: src/kmod/dmabuf_import
# The dma-buf importer with an IOMMU: addresses of the default domain are called so and refused; those of an identity domain agree
# with pagemap and sysfs. EPYC: a processor that the kernel trusts to forward peer-to-peer traffic.
import_check=$UPCIE_BUILD/tests/vm/dmabuf_import_check
a=$(nvme_bdf a)
b=$(nvme_bdf b)
check "vfio loads" load_vfio
check "the module loads" load_own_module upcie_dmabuf_import
check_output "its node is root's alone" "600 root" stat -c '%a %U' /dev/upcie_dmabuf_import

check "b's domain translates" grep -q '^DMA' "/sys/bus/pci/devices/$b/iommu_group/type"
check "default domain: said so, and refused" "$import_check" udmabuf "$b" default_domain
# A function that leaves takes its domain along, so the mapping must be gone before.
check "b is removed while it imports, in a translating domain" "$import_check" remove "$b"
check "b binds to vfio-pci" bind_device "$b" vfio-pci
check "the same on vfio-pci" "$import_check" udmabuf "$b" default_domain
check "b's group becomes identity" set_group_type "$b" identity
check "identity: every page where pagemap says" "$import_check" udmabuf "$b" physical
check "vfio's own domain is not the default one" "$import_check" owned "$b"

check "a binds to vfio-pci" bind_device "$a" vfio-pci
check "a's BAR as b: where sysfs says" "$import_check" bar "$a" "$b"
check "revocation is an event, and ESTALE" "$import_check" revoke "$a" "$b"
check "b unbinds" unbind_device "$b"
check "b is removed while it imports, in an identity domain" "$import_check" remove "$b"
check "the module unloads" rmmod upcie_dmabuf_import

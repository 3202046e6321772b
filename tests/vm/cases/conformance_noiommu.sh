# shellcheck shell=bash
# boot: --iommu off
# The conformance suite where nothing translates: physical addresses, from the kernel and from pagemap.
a=$(nvme_bdf a)
export UPCIE_VM_CHECK_TIMEOUT=240 # 65 s on a busy machine
check "vfio loads without an IOMMU" load_vfio noiommu
check "a binds to vfio-pci" bind_device "$a" vfio-pci
check "conformance over noiommu" env UPCIE_TEST_DEVICE="$a" UPCIE_TEST_PATH=noiommu UPCIE_TEST_SCRATCH=0:8192 \
    "$UPCIE_BUILD/tests/conformance/conformance" --gtest_brief=1 '--gtest_filter=-*Witness*'
check "uio loads" load_module uio_pci_generic
check "a binds to uio_pci_generic" bind_device "$a" uio_pci_generic
# uio has no interrupts that this library uses.
check "conformance over uio" env UPCIE_TEST_DEVICE="$a" UPCIE_TEST_PATH=uio UPCIE_TEST_SCRATCH=0:8192 \
    "$UPCIE_BUILD/tests/conformance/conformance" --gtest_brief=1 '--gtest_filter=-*Witness*:Queues.InterruptsWake'
unset UPCIE_VM_CHECK_TIMEOUT

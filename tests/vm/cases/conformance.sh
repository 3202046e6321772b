# shellcheck shell=bash
# boot: --iommu on
# The conformance suite on QEMU's controller: what the simulator is held to as well. The two tests that need the host as
# a witness are for a run whose images the host has filled (tests/conformance/README.md).
a=$(nvme_bdf a)
check "vfio loads" load_vfio
check "a binds to vfio-pci" bind_device "$a" vfio-pci
export UPCIE_VM_CHECK_TIMEOUT=240 # 65 s on a busy machine
for way in cdev group; do
    check "conformance over $way" env UPCIE_TEST_DEVICE="$a" UPCIE_TEST_PATH="$way" UPCIE_TEST_SCRATCH=0:8192 \
        "$UPCIE_BUILD/tests/conformance/conformance" --gtest_brief=1 '--gtest_filter=-*Witness*'
done
unset UPCIE_VM_CHECK_TIMEOUT

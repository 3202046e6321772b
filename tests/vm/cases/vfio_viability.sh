# shellcheck shell=bash
# boot: --iommu on --nvme none --qemu -device --qemu pcie-pci-bridge,id=br0,bus=pcie.0 --qemu -drive --qemu if=none,id=x1,format=raw,file=null-co://,file.read-zeroes=on --qemu -device --qemu nvme,bus=br0,addr=1,drive=x1,serial=x1 --qemu -drive --qemu if=none,id=x2,format=raw,file=null-co://,file.read-zeroes=on --qemu -device --qemu nvme,bus=br0,addr=2,drive=x2,serial=x2
# Two controllers behind a PCI bridge share an IOMMU group: one of them on the kernel's driver keeps the other from use.
vfio_check=$UPCIE_BUILD/tests/vm/vfio_check
controllers=()
for file in /sys/bus/pci/devices/*; do
  if [ "$(< "$file/class")" = 0x010802 ]; then controllers+=("${file##*/}"); fi
done
check "vfio loads" load_vfio
check "nvme loads" load_module nvme
check "the second goes to nvme" bind_device "${controllers[1]}" nvme
check "the first goes to vfio-pci" bind_device "${controllers[0]}" vfio-pci
check "the first is refused, and the second named" "$vfio_check" viability "${controllers[0]}"
check "the second goes to vfio-pci" bind_device "${controllers[1]}" vfio-pci
check "now two functions of one group share an address space" "$vfio_check" share "${controllers[0]}" "${controllers[1]}"

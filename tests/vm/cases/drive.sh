# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# The drive behind an IOMMU, by cdev and by group, as root and as nobody, with the host as witness of all data.
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
# host after: check-stamps a1.img --seed 165 --range 65536:4096
# host before: fill-stamps b2.img --size 64M --block-size 4096 --nsid 2 --seed 4711 --range 256:128
# host after: check-stamps b2.img --block-size 4096 --nsid 2 --seed 103 --range 1024:128
# shellcheck source=tests/vm/guest/drives.sh
. "$UPCIE_VM_GUEST/drives.sh"
a=$(nvme_bdf a)
check "vfio loads" load_vfio
check "a binds to vfio-pci" bind_device "$a" vfio-pci

run_drive cdev "$a" 50 49152
run_drive group "$a" 10 57344

b=$(nvme_bdf b)
check "b binds to vfio-pci" bind_device "$b" vfio-pci
check "cdev: blocks of 4096 bytes in the second namespace" "$drive_check" transfer "$b" cdev 2 4711:256:128 103:1024:128 1

# Memory taken away under reads. QEMU's controller reports success all the same; the stamps tell, and the kernel's log.
# The kernel reports at most ten faults in five seconds, and killed owners may just have caused some.
sleep 6
dmesg --clear
check "cdev: a mapping taken away is noticed" "$drive_check" stale "$a" cdev 1 "$host_stamps"
check "the IOMMU reported faults" sh -c "dmesg | grep -q 'DMAR:.*fault'"
check "group: a mapping taken away is noticed" "$drive_check" stale "$a" group 1 "$host_stamps"

# Somebody with a cdev of his own and no privilege.
as_nobody() { setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all "$@"; }
refused() { ! as_nobody "$drive_check" transfer "$a" cdev 1 "$host_stamps" - 1; }
check "another user is refused" refused
cdev=$(vfio_node "$a")
check "the cdev is given away" chown 65534:65534 "$cdev"
check "and anybody may open /dev/iommu" chmod 0666 /dev/iommu
check "the cdev's owner reads and writes" as_nobody "$drive_check" transfer "$a" cdev 1 "$host_stamps" 165:65536:4096 1
chmod 0600 /dev/iommu
chown 0:0 "$cdev"

# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# boot: --cpu EPYC --ivshmem 16M
# Fake VRAM: a drive reads straight into another device's BAR, which the host sees as a file.
# host before: fill-stamps a1.img --size 64M --seed 4711 --range 16384:4096
# host after: check-stamps ../ivshmem --seed 4711 --range 16384:2048 --first 16384
# host after: check-stamps a1.img --seed 107 --range 75776:512
# shellcheck source=tests/vm/guest/drives.sh
. "$UPCIE_VM_GUEST/drives.sh"
bar_check=$UPCIE_BUILD/tests/vm/bar_check
a=$(nvme_bdf a)
vram=$(ivshmem_bdf)
check "vfio loads" load_vfio
check "a binds to vfio-pci" bind_device "$a" vfio-pci
check "ivshmem binds to vfio-pci" bind_device "$vram" vfio-pci
check "cdev: what takes the BAR away is noticed" "$bar_check" stale "$a" cdev "$vram" 4711:16384:1024
check "cdev: what cannot be mapped is refused" "$bar_check" refusals "$a" cdev "$vram"
check "upcie verify into the BAR finds the host's stamps" "$upcie" verify "$a" --path cdev --read-only --seed 4711 --lba 16384 --blocks 4096 --into "bar:$vram:2"
check "upcie verify writes out of it" "$upcie" verify "$a" --path cdev --destructive --seed 107 --lba 75776 --blocks 512 --into "bar:$vram:2"
# Last: the host looks at what these two leave in the BAR.
check "group: a transfer of 1 MiB into the BAR" "$bar_check" read "$a" group "$vram" 4711:16384:2048
check "cdev: a transfer of 1 MiB into the BAR" "$bar_check" read "$a" cdev "$vram" 4711:16384:2048

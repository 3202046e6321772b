# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# boot: --ivshmem 4M --nvme a,cmb_size_mb=1,ns=512 --nvme b,ns=512,ns=4096,max_ioqpairs=4,mdts=5
# For self_test.sh: the machine has what run.sh's options ask for, and its drives hold what the host put into the images.
a=$(nvme_bdf a) b=$(nvme_bdf b)

check "ivshmem is there" ivshmem_bdf
check "ivshmem's BAR 2 has 4 MiB" test "$(stat -c %s "/sys/bus/pci/devices/$(ivshmem_bdf)/resource2")" = 4194304
check "a has a CMB, a BAR of its own" test -e "/sys/bus/pci/devices/$a/resource2"
check "nvme loads" load_module nvme
for bdf in "$a" "$b"; do check "$bdf binds to nvme" bind_device "$bdf" nvme; done
a1=$(nvme_block "$a" 1) b1=$(nvme_block "$b" 1) b2=$(nvme_block "$b" 2)
while read -r drive sum; do
  check_output "$drive holds what the host wrote" "$sum" sh -c "cksum < ${!drive}"
done < /run/out/cksums
check_output "b2 has 4096-byte blocks" 4096 cat "/sys/block/${b2#/dev/}/queue/logical_block_size"
check_output "mdts limits b's transfers" 128 cat "/sys/block/${b1#/dev/}/queue/max_hw_sectors_kb"
check "the guest writes for the host to check" dd "if=$a1" "of=$b1" bs=512 count=8 oflag=direct status=none

#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Tests the VM itself: that the guest comes up in three ways as the library's tests expect it, that the images of the drives
# are the same seen from both sides, and that every way to end gives the status that run.sh promises. Seven boots.
set -euo pipefail
vm_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$vm_dir/prepare/common.sh"
. "$vm_dir/guest/checks.sh"

need python3=python3-minimal
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
image=$vm_dir/disk_image.py

prepared=$("$vm_dir/prepare.sh" --dir)
touch "$out/now"
"$vm_dir/prepare.sh" --dir > /dev/null
check "a warm prepare.sh changes nothing" test -z "$(find "$prepared" -newer "$out/now")"
check "the kernel's own headers declare iommufd's newest call" grep -q IOMMU_IOAS_NOIOMMU_GET_PA \
  "$prepared/uapi/usr/include/linux/iommufd.h"
check "the image checker is sound" "$image" self-test

# Each drive has a pattern of its own. machine.sh, first below, is boot 1.
mkdir "$out/disks" "$out/boot1"
for drive in a1 b1 b2; do
  check "filling $drive" "$image" fill "$out/disks/$drive.img" --seed "0x$drive" --size 16M
  echo "$drive $(cksum < "$out/disks/$drive.img")" >> "$out/boot1/cksums"
done

# run_status NAME WANTED OPTIONS... : run.sh ends with that status
run_status() {
  local name=$1 wanted=$2 status=0 output
  shift 2
  output=$("$vm_dir/run.sh" --out "$out/status" "$@" 2>&1) || status=$?
  if [ "$status" = "$wanted" ]; then check "$name" true; else fail "$name" "status $status, wanted $wanted: ${output: -300}"; fi
}

add_checks < <("$vm_dir/suite.sh" none "$out" --disks "$out/disks" -- "$vm_dir"/self/machine.sh "$vm_dir"/cases/00_*.sh || true)
check "a1 is unchanged" "$image" check "$out/disks/a1.img" --seed 0xa1
check "b1 begins with what the guest copied from a1" "$image" check "$out/disks/b1.img" --seed 0xa1 --range 0:8
check "the rest of b1 is unchanged" "$image" check "$out/disks/b1.img" --seed 0xb1 --range 8:32760
check "ivshmem's memory is a file here" test -s "$out/boot1/ivshmem"
check "console.log and dmesg are kept" test -s "$out/boot1/console.log" -a -s "$out/boot1/dmesg"

# 200 is out of isa-debug-exit's range, so this also proves that the status goes by file.
run_status "the command's status is passed through" 200 --nvme none -- sh -c 'exit 200'
run_status "a panic yields 99" 99 --nvme none -- sh -c 'echo c > /proc/sysrq-trigger'
run_status "the timeout yields 124" 124 --nvme none --timeout 12 -- sleep 60
finish_checks

# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# The command line on a real kernel: from the kernel's driver to vfio and back, and data in both directions.
# host before: fill-stamps a1.img --size 64M --seed 4711 --range 16384:4096
# host after: check-stamps a1.img --seed 4711 --range 16384:4096
# host after: check-stamps a1.img --seed 105 --range 71680:256
# host after: check-stamps a1.img --seed 106 --range 73728:100
# shellcheck source=tests/vm/guest/drives.sh
. "$UPCIE_VM_GUEST/drives.sh"
image="python3 $UPCIE_VM_GUEST/../disk_image.py"
a=$(nvme_bdf a)
folder=$(mktemp -d)

# answers STATUS COMMAND...: ends with just this status.
answers() {
  local wanted=$1 status=0
  shift
  "$@" || status=$?
  [ $status -eq "$wanted" ] || { echo "status $status, wanted $wanted"; return 1; }
}
driver_is() { [ "$(driver_of "$a")" = "$1" ] || { echo "its driver is $(driver_of "$a")"; return 1; }; }
# path_is PATH STATE: as `upcie list` sees device a.
path_is() {
  "$upcie" list --json > "$folder/list" && python3 - "$folder/list" "$a" "$1" "$2" <<'PYTHON'
import json, sys
file, bdf, path, state = sys.argv[1:]
device = next(one for one in json.load(open(file))["result"]["functions"] if one["bdf"] == bdf)
found = next(one for one in device["paths"] if one["path"] == path)
sys.exit(None if found["state"] == state else f"{path} is {found}")
PYTHON
}

check "vfio loads" load_vfio
check "nvme loads" load_module nvme
check "a is the kernel's" bind_device "$a" nvme
check "list: cdev after a bind" path_is cdev after-bind
check "reading a drive of the kernel's is refused: something is missing" answers 4 "$upcie" read "$a" --output "$folder/none"
check "bind" "$upcie" bind "$a"
check "bound to vfio-pci" driver_is vfio-pci
for path in cdev group; do check "list: $path is ready" path_is "$path" ready; done
check "doctor says a path is ready" answers 0 "$upcie" doctor --json
check "identify" sh -c "'$upcie' identify $a | grep -q upcie-a"
for path in cdev group; do
  check "$path: read" "$upcie" read "$a" --path "$path" --lba 16384 --blocks 4096 --output "$folder/read"
  check "$path: it is the host's" $image check-stamps "$folder/read" --seed 4711 --range 16384:4096 --first 16384
done
check "write without --destructive is refused" answers 2 "$upcie" write "$a" --lba 16384 --blocks 64 --pattern zero
check "write a pattern" "$upcie" write "$a" --lba 71680 --blocks 256 --pattern stamp --seed 105 --destructive
check "a file to write" $image fill-stamps "$folder/whole" --size 64M --seed 106 --range 73728:100
check "cut out of it" dd if="$folder/whole" of="$folder/piece" bs=512 skip=73728 count=100 status=none
check "write the file, with interrupts" "$upcie" write "$a" --lba 73728 --input "$folder/piece" --interrupt --destructive
check "bench reads with two queues" sh -c "'$upcie' bench $a --queues 2 --seconds 0.5 --json | grep -q '\"iops\"'"
check "bench --write without --destructive is refused" answers 2 "$upcie" bench "$a" --write --seconds 0.1
check "unbind" "$upcie" unbind "$a"
check "it is the kernel's again" driver_is nvme
rm -rf "$folder"

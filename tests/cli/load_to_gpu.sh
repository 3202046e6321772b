#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The documentation's example: a file's pieces, scattered over a drive, arrive in GPU memory whole and in order.
# load_to_gpu.sh PROGRAM FAKE_LIBRARIES
set -u
program=$1
fakes=$2
failed=0
pass() { echo "PASS: $1"; }
fail() {
    echo "FAIL: $1"
    failed=1
}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export UPCIE_CUDA_LIBRARY=$fakes/libfake_cuda.so UPCIE_HIP_LIBRARY=$fakes/libfake_hip.so

head -c 8388608 /dev/urandom > "$folder/drive"
printf '%s\n' '16 5000' '9000 1' '12000 4096' '7 3' > "$folder/extents"
while read -r lba count; do
    dd if="$folder/drive" bs=512 skip="$lba" count="$count" status=none
done < "$folder/extents" > "$folder/file"

for gpu in stub stub:whole-object stub:suballocated cuda:0 hip:0; do
    for more in '' ',scatter=1'; do
        rm -f "$folder/copy"
        if timeout 60 "$program" "sim:size=8M,file=$folder/drive$more" "$gpu" "$folder/extents" "$folder/copy" > "$folder/said" 2>&1 &&
            cmp -s "$folder/file" "$folder/copy"; then
            pass "$gpu$more: the file arrives"
        else
            fail "$gpu$more: $(cat "$folder/said")"
        fi
    done
done
echo '16 nonsense' > "$folder/wrong"
timeout 20 "$program" "sim:size=8M" stub "$folder/wrong" > /dev/null 2>&1
status=$?
if [ $status -eq 2 ]; then pass "a wrong list is wrong usage"; else fail "a wrong list: status $status"; fi
echo '16000 1000' > "$folder/beyond"
said=$(timeout 20 "$program" "sim:size=8M" stub "$folder/beyond" 2>&1)
status=$?
if [ $status -eq 1 ] && grep -q 'not all inside' <<< "$said"; then
    pass "blocks that the drive has not are an error"
else
    fail "blocks that the drive has not: status $status: $said"
fi
exit $failed

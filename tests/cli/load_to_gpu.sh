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
# refused STATUS WORDS NAME: the list in $folder/list.
refused() {
    local said status=0
    said=$(timeout 20 "$program" "sim:size=8M" stub "$folder/list" 2>&1) || status=$?
    if [ $status -eq "$1" ] && grep -q "$2" <<< "$said"; then
        pass "$3"
    else
        fail "$3: status $status: $said"
    fi
}
for wrong in '16 nonsense' '0 -5' '-5 1' '+0 1' '0 99999999999999999999' '99999999999999999999 1' '0 0' '16' '0 1 2' '0x10 1' ''; do
    printf '16 8\n%s\n' "$wrong" > "$folder/list"
    [ -n "$wrong" ] || : > "$folder/list"
    refused 2 'no lines of "LBA COUNT"' "a list with \"$wrong\" is wrong usage"
done
for beyond in '16000 1000' '0 18446744073709551615' '18446744073709551615 1' '18446744073709551615 18446744073709551615' \
    '0 36028797018963968'; do # whose bytes are 2^64
    echo "$beyond" > "$folder/list"
    refused 1 'not all inside' "blocks that the drive has not ($beyond) are an error"
done
timeout 20 "$program" "sim:size=8M" stub "$folder/extents" "$folder/copy" > /dev/full 2> "$folder/said"
status=$?
if [ $status -eq 1 ] && grep -q 'standard output' "$folder/said"; then
    pass "what cannot be said is an error"
else
    fail "standard output that is full: status $status: $(cat "$folder/said")"
fi
exit $failed

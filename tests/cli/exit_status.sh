#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The program as a user calls it: exit statuses, messages that name the cause, JSON that parses.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

bad_read='misplaced:1@op=read&lba=16..23&once'

expect 0 'namespace 1' identify sim:size=1M
expect 0 'GOOD' verify sim:size=1M --blocks 64
expect 0 'fault 2 of 2 never happened' verify 'sim:size=1M,faults=late:5ms@op=read&once;lost@op=read&lba=2000' --blocks 64
expect 0 'was reset 1 time' reset 'sim:size=1M,to=1,faults=never-idle@once'
expect_json 'd["result"]["escalations"] == 0' reset sim:size=1M
expect_json 'd["result"]["blocks_done"] == 128 and len(d["result"]["data"]) == 128 * 1024' read 'sim:size=1M,faults=error:2:0x81@op=read&nth=2' --blocks 256
expect_json 'd["result"]["blocks_done"] == 0' read sim:size=1M --output /dev/full
expect 3 'LBA 17 holds the block written for LBA 18' verify "sim:size=1M,faults=$bad_read" --blocks 64 --size 4K
expect 3 'no data arrived' verify 'sim:size=1M,faults=dropped@op=read&lba=8..15' --blocks 64 --size 4K
expect 3 'is stale' verify 'sim:size=1M,faults=dropped@op=write&lba=8&nth=2' --blocks 64 --size 512 --passes 2
expect 3 'differ, the first at byte 100' verify 'sim:size=1M,faults=corrupt:100@op=read&lba=8&once' --blocks 64 --size 512
expect 1 'read blocks 8 to 15' verify 'sim:size=1M,faults=error:2:0x81@op=read&lba=8..15' --blocks 64 --size 4K
expect 1 'ETIMEDOUT' verify 'sim:size=1M,faults=lost@op=read&nth=3' --blocks 64 --size 4K --timeout 0.3
expect 1 'CFS' verify 'sim:size=1M,faults=cfs@op=read&nth=3' --blocks 64 --size 4K
expect 1 'ENODEV' verify 'sim:size=1M,faults=gone@op=read&nth=3' --blocks 64 --size 4K
expect 1 'ETIMEDOUT' identify 'sim:size=1M,to=1,faults=never-ready'
expect 2 '--destructive' verify 0abc:12:13.4
expect 2 "no subcommand 'nonsense'" nonsense
expect 2 "no subcommand 'nonsense'" nonsense --json
expect 2 'subcommand' --json
expect 2 '1 blocks from block 4096 on: the namespace has 2048 blocks, 0 to 2047' read sim:size=1M --lba 4096
expect 2 'all from block 2048 on' read sim:size=1M --lba 2048 --blocks 0
expect 2 'pattern stamp alone' write sim:size=1M --pattern zero --seed 4
expect 2 'excludes' verify sim:size=1M --read-only --passes 2
expect 2 'no size' bench sim:size=1M --size 010000 --seconds 0.1
expect 2 'no size' verify sim:size=1M --size 01K
expect 2 'no size' verify sim:size=1M --size 99999999999999999999
expect 2 'seconds' verify sim:size=1M --timeout 010
expect 2 'is not bar:BDF:N' verify sim:size=1M --into bar:zzz:2
expect 2 'twice' identify sim:size=1M,size=2M
expect 0 'IOPS' bench sim:size=1M --size 0x1000 --seconds 0.1
expect 0 'IOPS' bench sim:size=1M --size 4KiB --seconds 0.1
expect 0 'GOOD' verify sim:size=16M,mdts=9,sgl=bytes,scatter=1 --size 2M --blocks 0
expect 4 'is not active' identify sim:size=1M --nsid 3
expect 4 'interrupt vector' bench sim:size=1M,vectors=none --interrupt --seconds 0.1
expect 4 'interrupt vector' read sim:size=1M,vectors=none --interrupt
expect 4 'interrupt vector' bench sim:size=1M,vectors=1 --interrupt --seconds 0.1
expect 0 'GOOD' verify sim:size=1M,thread=off --blocks 64 --interrupt
expect 0 'IOPS' bench sim:size=1M,thread=off --interrupt --seconds 0.1
expect 1 'CFS' bench 'sim:size=1M,faults=cfs@op=read&nth=100' --seconds 5
expect 1 'ENODEV' bench 'sim:size=1M,faults=gone@op=read&nth=100' --seconds 5
expect 1 'CFS' bench 'sim:size=1M,faults=cfs@op=read&nth=100' --seconds 5 --timeout 0.1
expect 1 'ENODEV' verify 'sim:size=1M,faults=gone@op=read&nth=3' --blocks 64 --size 4K --timeout 0.1
expect 0 ' 16 commands of up to' verify sim:size=1M,mqes=16 --blocks 64 --depth 1000
expect 2 'has 2048 blocks' read sim:size=1M --lba 2048
expect 4 'ENODEV' identify 0abc:12:13.4
expect 2 'size' identify sim:size=wrong
expect 0 'IOPS' bench sim:size=1M --seconds 0.2
expect 0 'ready again' reset sim:size=1M
expect 0 'complete -F _upcie upcie' completion bash

expect_json 'd["result"]["counts"]["misplaced"] == 8' verify "sim:size=1M,faults=$bad_read" --blocks 64 --size 4K
expect_json 'd["error"]["code"] == 0x281 and d["result"]["failed_blocks"] == 8' verify 'sim:size=1M,faults=error:2:0x81@op=read&lba=8..15' --blocks 64 --size 4K
expect_json 'd["error"]["name"] == "ENODEV" and d["error"]["hint"]' identify 0abc:12:13.4
expect_json 'd["result"]["controller"]["model"] and d["path"]["reason"]' identify sim:
expect_json 'd["result"]["iops"] > 0' bench sim:size=1M --seconds 0.2
expect_json 'all(c["status"] == "ok" or c["fix"] for c in d["result"]["checks"])' doctor
expect_json 'isinstance(d["result"]["functions"], list)' list --all

# What one process wrote, another checks; damage done between the two is found at its place.
disk="sim:size=1M,file=$work/disk"
expect 0 'GOOD' verify "$disk" --blocks 64 --seed 42
expect 0 'seed 0x2a (taken from LBA 0)' verify "$disk" --blocks 64 --read-only
printf 'x' | dd of="$work/disk" bs=1 seek=$((9 * 512 + 77)) conv=notrunc status=none
expect 3 'LBA 9 is corrupt: 1 of 512 bytes differ, the first at byte 77' verify "$disk" --blocks 64 --read-only

# A report: of probes that are programs of any kind, one that crashes and one that hangs among them.
mkdir "$work/bin"
cp "$upcie" "$work/bin/upcie"
probe_that() {
    printf '#!/bin/sh\n%s\n' "$2" >"$work/bin/upcie_probe_$1"
    chmod +x "$work/bin/upcie_probe_$1"
}
probe_that dmabuf_cuda 'kill -ABRT $$'
probe_that dmabuf_hip 'echo garbage'
probe_that vram_ioas_cuda 'sleep 60'
real=$upcie upcie=$work/bin/upcie
report=(report --out "$work/report" --only dmabuf --only vram_ioas_cuda)
expect 0 'SIGABRT ended it' "${report[@]}" --timeout 1
expect_json '[p["outcome"] for p in d["result"]["probes"]] == ["failed", "failed", "timed_out"]' "${report[@]}" --timeout 1
expect 0 'no differences' report --diff "$work/report" "$work/report/report.json"
expect 0 'was killed' report --render "$work/report"
expect 0 '| kernel, driver |' report --compare "$work/report" "$work/report"
expect 1 'not JSON' report --render "$work/bin/upcie_probe_dmabuf_hip"
expect 4 'ENOENT' report --diff "$work/report" "$work/nowhere"
expect 2 'At least 2' report --diff "$work/report"
expect 2 'no such probe' report --out "$work/report" --only nonsense
expect 2 'neither a PCI address' report --device nonsense
# One that cannot be written leaves what was there; a limit of the file size stands for a full disk.
before=$(cat "$work/report/report.json" "$work/report/report.md" | sha256sum)
status=0
(trap '' XFSZ && ulimit -f 1 && "$upcie" "${report[@]}" --name "$(printf '%2000s' x)" --timeout 1) >"$work/out" 2>"$work/err" || status=$?
if [ "$status" -ne 1 ] || ! grep -q 'EFBIG.*Make room' "$work/err" || [ "$(find "$work/report" -type f | wc -l)" -ne 2 ] ||
    [ "$before" != "$(cat "$work/report/report.json" "$work/report/report.md" | sha256sum)" ]; then
    echo "FAIL: a report that does not fit ends with $status"
    cat "$work/err"
    failed=1
fi
echo mine >"$work/report/report.md"
expect 4 'EEXIST' "${report[@]}"
rm "$work/bin"/upcie_probe_*
PATH=/usr/bin:/bin expect 4 'find the probes' report --out "$work/report2"
upcie=$real

# A descriptor that the caller closed must not become a file of ours, for the text would go there; and an answer that
# went nowhere is none.
for closed in '2>&-' '>&-' '<&- >&- 2>&-'; do
    wanted=1
    [[ $closed != '2>&-' ]] || wanted=0
    for command in 'identify sim:size=1M' 'write sim:size=1M --pattern ones' 'verify sim:size=1M --blocks 64' 'read sim:size=1M --blocks 8'; do
        status=0
        timeout 20 bash -c "'$upcie' $command $closed" >"$work/out" 2>"$work/err" || status=$?
        [ "$status" -eq "$wanted" ] || { echo "FAIL: upcie $command $closed ends with $status"; failed=1; }
    done
done
# Output that cannot be written is no success.
for command in 'identify sim:' 'identify sim: --json' 'list --all' '--help'; do
    status=0
    # shellcheck disable=SC2086
    "$upcie" $command >/dev/full 2>"$work/err" || status=$?
    [ "$status" -eq 1 ] || { echo "FAIL: upcie $command >/dev/full ends with $status"; failed=1; }
done

# The probes lie beside it: what is no device's name is wrong usage, and one that is not there a question not asked.
for probe in "$(dirname "$upcie")"/upcie_probe_*; do
    name=$(basename "$probe")
    [ -f "$probe" ] || continue
    [ "$("$probe" --version)" = "$name $("$upcie" --version | cut -d' ' -f2)" ] ||
        { echo "FAIL: $name --version says $("$probe" --version)"; failed=1; }
    case $name in
        *_vfio_cdev | *_noiommu_pa | *_vfio_bar_import_* | *_vram_ioas_*) words='' ;;
        *_vfio_share) words=primary ;;
        *_vfio_delegate) words=standalone ;;
        *) continue ;;
    esac
    for device in nonsense=2 0abc:12:13.4=1; do
        status=0
        # shellcheck disable=SC2086
        "$probe" $words "${device%=*}" >"$work/out" 2>"$work/err" || status=$?
        [ "$status" -eq "${device#*=}" ] || { echo "FAIL: $name $words ${device%=*} ends with $status"; failed=1; }
    done
done

# A signal ends a long run in order: with what it has so far, and an error that says why.
interrupted() {
    local signal=$1 check=$2 status=0 child
    shift 2
    "$upcie" "$@" --json >"$work/out" 2>"$work/err" &
    child=$!
    sleep 1
    kill -"$signal" "$child"
    wait "$child" || status=$?
    if [ "$status" -ne 1 ] || ! python3 -c 'import json, sys
d = json.load(open(sys.argv[2]))
assert d["error"]["name"] == "EINTR" and "SIG" + sys.argv[1] in d["error"]["hint"], d["error"]
assert eval(sys.argv[3]), d["result"]' "$signal" "$work/out" "$check"; then
        echo "FAIL: upcie $* ends with $status on SIG$signal"
        sed 's/^/      | /' "$work/out" "$work/err"
        failed=1
    fi
}
interrupted INT 'd["result"]["ios"] > 0' bench sim:size=1M --seconds 60
interrupted TERM 'd["result"]["ios"] > 0' bench sim:size=1M --seconds 60 --queues 2
interrupted TERM 'd["result"]["counts"]["good"] > 0 and not d["result"]["bad"]' verify sim:size=64M --blocks 0 --passes 1000000
interrupted TERM 'd["result"]["blocks_done"] > 0' write "sim:size=64G,lba=512,file=$work/large" --pattern zero --blocks 0 --size 4K

# The second one ends it at once, of whichever kind it is; and one that comes while the controller is brought up counts.
"$upcie" verify 'sim:size=1M,faults=lost@op=write&nth=3' --timeout 30 --passes 1000000 >"$work/out" 2>&1 &
child=$!
sleep 0.5
kill -INT "$child"
sleep 0.3
kill -TERM "$child"
begin=$SECONDS status=0
wait "$child" || status=$?
[ "$status" -eq 143 ] && [ $((SECONDS - begin)) -lt 5 ] || { echo "FAIL: SIGINT, then SIGTERM: status $status"; failed=1; }
"$upcie" read 'sim:size=1M,ready=1500ms' --json >"$work/out" 2>"$work/err" &
child=$!
sleep 0.5
kill -INT "$child"
status=0
wait "$child" || status=$?
if [ "$status" -ne 1 ] || ! grep -q EINTR "$work/out"; then
    echo "FAIL: SIGINT during bring-up: status $status"
    failed=1
fi
# Where there is no thread for it, the simulator says so.
status=0
(ulimit -v 12000 && "$upcie" identify sim:size=1M --json) >"$work/out" 2>"$work/err" || status=$?
case $status in
    1 | 4) grep -q '"exit_code"' "$work/out" || { echo "FAIL: no document without threads"; failed=1; } ;;
    127) ;; # not even the program loads
    *) echo "FAIL: without memory for a thread the status is $status"; failed=1 ;;
esac
for bad in -1 -4096 010000 0 5000 99999999999999999999; do
    status=0
    "$(dirname "$upcie")/upcie_probe_dmabuf_stub" --runs "$bad" >"$work/out" 2>&1 || status=$?
    [ "$status" -eq 2 ] || { echo "FAIL: upcie_probe_dmabuf_stub --runs $bad ends with $status"; failed=1; }
done

# A GPU's probe: without a GPU it says so, and over the tests' own library it tells the manners apart.
probe=$(dirname "$upcie")/upcie_probe_dmabuf_cuda fake=$(dirname "$upcie")/../tests/fake_gpu/libfake_cuda.so
status=0
"$probe" --library /nowhere/libcuda.so >"$work/out" 2>&1 || status=$?
if [ "$status" -ne 1 ] || ! grep -q 'UPCIE_CUDA_LIBRARY' "$work/out"; then
    echo "FAIL: upcie_probe_dmabuf_cuda without a library ends with $status"
    failed=1
fi
if [ -f "$fake" ]; then
    for manner in exact whole-object suballocated; do
        status=0
        UPCIE_FAKE_GPU_MANNER=$manner "$probe" --library "$fake" --json >"$work/out" 2>&1 || status=$?
        if [ "$status" -ne 0 ] || ! python3 -c 'import json, sys
d = json.load(open(sys.argv[1]))
assert {a["topic"]: a["answer"] for a in d["verdict"]["answers"]}["manner"] == sys.argv[2], d["verdict"]' "$work/out" "$manner"; then
            echo "FAIL: upcie_probe_dmabuf_cuda over a GPU that is $manner ends with $status"
            tail -20 "$work/out"
            failed=1
        fi
    done
else
    echo "SKIP: upcie_probe_dmabuf_cuda over the tests' library: $fake is not built"
fi

# A device to import as that does not exist is told as any other; what is wrong usage is said on standard error alone.
for flavour in stub cuda hip; do
    dmabuf=$(dirname "$upcie")/upcie_probe_dmabuf_$flavour
    # A GPU that is there, or one that is missing as well.
    for library in "${fake%cuda.so}$flavour.so" /nowhere/lib.so; do
        status=0
        UPCIE_CUDA_LIBRARY=$library UPCIE_HIP_LIBRARY=$library "$dmabuf" --as 0000:ff:1f.7 --json >"$work/out" 2>&1 || status=$?
        if [ "$status" -ne 1 ] || ! grep -q '"reason": .*0000:ff:1f.7: ENODEV' "$work/out"; then
            echo "FAIL: upcie_probe_dmabuf_$flavour --as a device that does not exist ends with $status"
            tail -3 "$work/out"
            failed=1
        fi
    done
    status=0
    "$dmabuf" --as nonsense --json >"$work/out" 2>"$work/err" || status=$?
    if [ "$status" -ne 2 ] || [ -s "$work/out" ] || ! grep -q 'no PCI address' "$work/err"; then
        echo "FAIL: upcie_probe_dmabuf_$flavour --as nonsense ends with $status"
        failed=1
    fi
done
# What HIP has no call for is not an answer of HIP's.
if [ -f "${fake%cuda.so}hip.so" ]; then
    UPCIE_HIP_LIBRARY=${fake%cuda.so}hip.so "$(dirname "$upcie")/upcie_probe_dmabuf_hip" --json >"$work/out" 2>&1
    if ! python3 -c 'import json, sys
d = json.load(open(sys.argv[1]))
seen = {o["name"]: o for o in d["observations"]}
for name in ("own.dma_buf_fd.import", "own.shareable_handle.export"):
    assert seen[name]["value"] is None and seen[name]["errno"] is None, seen[name]
    assert "not looked at: " in seen[name]["note"] and "HIP" in seen[name]["note"], seen[name]
assert seen["own.dma_buf_fd.export"]["value"] == "ok", seen
held = {c["name"] for c in d["controls"]}
assert "a.descriptor_is_of_the_whole" in held and "a.whole_is_described" not in held, held
assert "524" not in seen["descriptor.mmap"].get("note", ""), seen["descriptor.mmap"]' "$work/out"; then
        echo "FAIL: upcie_probe_dmabuf_hip over the tests' library"
        tail -20 "$work/out"
        failed=1
    fi
fi

# Without /dev/iommu the probe of address spaces says what is missing, a GPU's library included.
probe=$(dirname "$upcie")/upcie_probe_vram_ioas
if [ ! -e /dev/iommu ]; then
    for flavour in stub cuda; do
        status=0
        UPCIE_CUDA_LIBRARY=/nowhere/libcuda.so "${probe}_$flavour" >"$work/out" 2>&1 || status=$?
        if [ "$status" -ne 1 ] || ! grep -q 'could not be asked: open on /dev/iommu: ENOENT' "$work/out" ||
            ! grep -q CONFIG_IOMMUFD "$work/out"; then
            echo "FAIL: upcie_probe_vram_ioas_$flavour without /dev/iommu ends with $status"
            tail -3 "$work/out"
            failed=1
        fi
    done
    grep -q 'ENOENT; and .*/nowhere/libcuda.so' "$work/out" || { echo "FAIL: nor does it say that there is no GPU"; failed=1; }
fi
for bad in '6' '0 100' '0 0 5000' '0 -4096' '0 0x'; do
    status=0
    # shellcheck disable=SC2086
    "$(dirname "$upcie")/upcie_probe_vfio_bar_import_stub" 0abc:12:13.4 $bad >"$work/out" 2>&1 || status=$?
    [ "$status" -eq 2 ] || { echo "FAIL: upcie_probe_vfio_bar_import_stub 0abc:12:13.4 $bad ends with $status"; failed=1; }
done

# A BAR from a GPU: what can be asked without a device, and by whom.
share=$(dirname "$upcie")/upcie_probe_vfio_share_gpu
status_of() { # WANTED PATTERN COMMAND...
    local wanted=$1 pattern=$2
    shift 2
    status=0
    "$@" >"$work/out" 2>&1 || status=$?
    if [ "$status" -ne "$wanted" ] || ! grep -q "$pattern" "$work/out"; then
        echo "FAIL: $* ends with $status"
        tail -5 "$work/out"
        failed=1
    fi
}
status_of 0 'bar  *-  (not looked at' "${share}_stub" standalone --memory
status_of 2 'name a device' "${share}_stub" standalone
status_of 2 excludes "${share}_stub" standalone 0000:ff:1f.7 --memory
status_of 1 'could not be asked.*0000:ff:1f.7' "${share}_stub" primary 0000:ff:1f.7
status_of 1 'could not be asked.*nowhere' "${share}_cuda" standalone --memory --library /nowhere/libcuda.so
if [ -f "$fake" ]; then
    export UPCIE_FAKE_GPU_PRIVILEGE=63 # a capability that nobody has
    status_of 0 'ordinary_as_iomemory: refused.*CUDA_ERROR_NOT_PERMITTED' "${share}_cuda" standalone --memory --library "$fake"
    unset UPCIE_FAKE_GPU_PRIVILEGE
    if [ "$(id -u)" -ne 0 ]; then
        status_of 1 'could not be asked.*uid' "${share}_cuda" standalone --memory --try-capabilities --library "$fake"
    fi
fi

# The completion scripts are read without complaint by the shells that are here.
for shell in bash zsh fish; do
    if command -v "$shell" >/dev/null; then
        "$upcie" completion "$shell" >"$work/completion"
        "$shell" -n "$work/completion" || { echo "FAIL: $shell does not accept its completion script"; failed=1; }
    fi
done
completed=$(bash -c '. <("$1" completion bash); COMP_WORDS=(upcie ver); COMP_CWORD=1; COMP_LINE="upcie ver"; COMP_POINT=9
    _upcie; echo "${COMPREPLY[*]}"' bash "$upcie")
[ "$completed" = verify ] || { echo "FAIL: bash completes \"upcie ver\" to \"$completed\""; failed=1; }

[ "$failed" -eq 0 ] && echo 'all as expected'
exit "$failed"

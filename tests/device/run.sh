#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The device level, on a machine with a GPU: run.sh [OUT], in the folder that tests/device/pack.sh made. As root it runs
# everything again as an unprivileged user. Needs no drive and changes no setting: the drive is simulated, the GPU is not. OUT
# (./out) gets the reports that docs/findings shows. The last line is "N passed, N failed, N skipped".
set -u
cd "$(dirname "$(realpath "${BASH_SOURCE[0]}")")" || exit 1
out=${1:-$PWD/out}
mkdir -p "$out"
export LD_LIBRARY_PATH=$PWD/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
passed=0 failed=0 skipped=0
pass() { passed=$((passed + 1)); echo "PASS: $1"; }
fail() { failed=$((failed + 1)); echo "FAIL: $1"; }
skip() { skipped=$((skipped + 1)); echo "SKIP: $1: $2"; }

# suite NAME COMMAND...: a GoogleTest program; its tests count one by one.
suite() {
    local name=$1 log
    shift
    log=$out/${name// /-}.log
    timeout 300 "$@" >"$log" 2>&1
    local status=$?
    local good bad left
    good=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' "$log" | tail -1)
    bad=$(sed -n 's/^\[  FAILED  \] \([0-9]*\) test.*/\1/p' "$log" | tail -1)
    left=$(sed -n 's/^\[  SKIPPED \] \([0-9]*\) test.*/\1/p' "$log" | tail -1)
    if [ $status -ne 0 ] && [ "${bad:-0}" -eq 0 ]; then bad=1; fi
    passed=$((passed + ${good:-0})) failed=$((failed + ${bad:-0})) skipped=$((skipped + ${left:-0}))
    echo "$name: ${good:-0} passed, ${bad:-0} failed, ${left:-0} skipped"
    if [ "${bad:-0}" -ne 0 ]; then tail -n 40 "$log"; fi
    grep -B1 '^\[  SKIPPED \] .* ms)' "$log" | grep -v '^\[\|^--' || true
}

# holds NAME PATTERN COMMAND...: it ends well and says so.
holds() {
    local name=$1 pattern=$2 said
    shift 2
    if said=$(timeout 120 "$@" 2>&1) && grep -q "$pattern" <<<"$said"; then
        pass "$name"
    else
        fail "$name"
        tail -n 5 <<<"$said"
    fi
}

# everything AS...: all of it, with AS before each command.
everything() {
    local who=$1 gpu drive list file
    shift
    work=$(mktemp -d)
    chmod 777 "$work"
    for gpu in cuda hip; do
        case $gpu in
            cuda) [ -e /dev/nvidia0 ] || { skip "$gpu, $who" "no /dev/nvidia0"; continue; } ;;
            hip) [ -e /dev/kfd ] || { skip "$gpu, $who" "no /dev/kfd"; continue; } ;;
        esac
        suite "$gpu suite, $who" "$@" "bin/${gpu}_suite"
        for drive in sim:size=64M sim:size=64M,scatter=1; do
            holds "$gpu, $who: a GPU's memory is the buffer of $drive" "^GOOD" "$@" bin/upcie verify "$drive" --into $gpu --blocks 0
        done
        holds "$gpu, $who: data that go wrong are found there" "8 misplaced" "$@" bash -c \
            "bin/upcie verify 'sim:size=4M,faults=misplaced:1@op=read&lba=16..23&once' --into $gpu --blocks 64 --size 4K; [ \$? -eq 3 ]"
        list=$work/extents file=$work/file
        head -c 8388608 /dev/urandom >"$work/drive"
        printf '%s\n' '16 5000' '9000 1' '12000 4096' '7 3' >"$list"
        while read -r lba count; do dd if="$work/drive" bs=512 skip="$lba" count="$count" status=none; done <"$list" >"$file"
        chmod -R a+rwX "$work"
        holds "$gpu, $who: a file's blocks are loaded by the example" 4659200 "$@" bin/load_to_gpu "sim:size=8M,file=$work/drive" \
            $gpu "$list" "$work/copy.$who"
        if cmp -s "$file" "$work/copy.$who"; then pass "$gpu, $who: and are the file"; else fail "$gpu, $who: and are the file"; fi
    done
    holds "$who: the report" "report.md" "$@" bin/upcie report --out "$work/report"
    cp -r "$work/report" "$out/report-$who"
    rm -rf "$work"
}

everything "$(id -un)"
if [ "$(id -u)" -eq 0 ]; then
    # Others have to be able to read the programs.
    copy=$(mktemp -d)
    cp -r bin lib "$copy/"
    chmod -R a+rX "$copy"
    cd "$copy" || exit 1
    LD_LIBRARY_PATH=$copy/lib everything uid-1000 setpriv --reuid 1000 --regid 1000 --clear-groups
    rm -rf "$copy"
else
    skip "as another user" "only root can become one"
fi
echo "reports and logs: $out"
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
